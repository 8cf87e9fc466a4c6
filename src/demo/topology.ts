// Pure: how the world is wired. Interfaces, addresses and routes as lines of `ip -batch`, and who receives what.
//
// Pods and the outside must be able to have any address. There, every address is local (`local 0.0.0.0/0 dev lo`), and
// rules see to it that this holds for what comes in only: what is sent leaves by the one default route, even when the
// destination is "local". The node is an ordinary router.
import { type Address, bitsOf, type Family, formatAddress, parseAddress } from '../cidr/address.ts';
import { type Cidr, containsAddress, formatCidr, parseCidr } from '../cidr/cidr.ts';
import type { NodeLink, Place, Probe, WorldOptions } from './model.ts';

export interface Topology {
  readonly links: readonly TopologyLink[];
  readonly podRanges: readonly Cidr[];
  readonly routes: readonly { readonly cidr: Cidr; readonly via: string }[];
}

interface TopologyLink {
  readonly name: string;
  readonly addresses: readonly { readonly address: Address; readonly subnet: Cidr }[];
  readonly extraAddresses: readonly Address[];
}

/** Documentation ranges for the families' node addresses; eth0 also has an address of each family for SNAT. */
const DEFAULT_LINKS: readonly NodeLink[] = [
  {
    name: 'eth0',
    addresses: ['192.168.50.10/24', '2001:db8:50::10/64'],
    extraAddresses: ['198.51.100.7', '2001:db8:51::7'],
  },
  { name: 'eth1', addresses: ['192.168.60.10/24', '2001:db8:60::10/64'] },
];
const DEFAULT_POD_RANGES = ['10.244.0.0/16', '10.245.0.0/16', 'fd00:244::/48', 'fd00:245::/48'];

/** The node's ends of the links to the two pod namespaces, in Calico's style. */
export const POD_INTERFACE = 'calipod';
export const PEER_INTERFACE = 'calipeer';

/** Reads the options. Throws an Error that names the option and the value when one is wrong. */
export function readTopology(options: WorldOptions): Topology {
  const links = (options.links ?? DEFAULT_LINKS).map(readLink);
  if (links.length === 0) throw new Error('links: the node needs at least one');
  const routes = (options.routes ?? []).map(({ cidr, via }, index) => {
    if (!links.some(link => link.name === via)) throw new Error(`routes[${index}].via: ${via} is not a link`);
    return { cidr: readCidr(cidr, `routes[${index}].cidr`), via };
  });
  const podRanges = (options.podRanges ?? DEFAULT_POD_RANGES).map((text, i) =>
    readCidr(text, `podRanges[${i}]`),
  );
  return { links, routes, podRanges };
}

function readLink(link: NodeLink, index: number): TopologyLink {
  const field = `links[${index}]`;
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$/.test(link.name)) {
    throw new Error(`${field}.name: ${link.name} is not an interface name of at most 15 characters`);
  }
  return {
    name: link.name,
    addresses: link.addresses.map(text => ({
      address: readAddress(text.replace(/\/.*/, ''), `${field}.addresses`),
      subnet: readCidr(text, `${field}.addresses`, 'clear'),
    })),
    extraAddresses: (link.extraAddresses ?? []).map(text => readAddress(text, `${field}.extraAddresses`)),
  };
}

function readCidr(text: string, field: string, hostBits: 'refuse' | 'clear' = 'refuse'): Cidr {
  const parsed = parseCidr(text, { hostBits });
  if (!parsed.ok) throw new Error(`${field}: ${text} ${parsed.reason}`);
  return parsed.value;
}

/** Throws an Error that names the field and the value when the text is not an address. */
export function readAddress(text: string, field: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new Error(`${field}: ${text} ${parsed.reason}`);
  return parsed.value;
}

/** Where the node's routes lead a flow from `from` to the address: the longest of routes and pod ranges decides. */
export function receiverOf(topology: Topology, from: Probe['from'], destination: Address): Place {
  const own = topology.links.flatMap(link => [
    ...link.addresses.map(({ address }) => address),
    ...link.extraAddresses,
  ]);
  if (own.some(address => address.family === destination.family && address.value === destination.value)) {
    return 'node';
  }
  const ranges = [
    ...topology.podRanges.map(cidr => ({
      cidr,
      place: from === 'pod' ? ('peer' as const) : ('pod' as const),
    })),
    ...topology.routes.map(({ cidr }) => ({ cidr, place: 'outside' as const })),
  ].filter(({ cidr }) => containsAddress(cidr, destination));
  ranges.sort((a, b) => b.cidr.prefix - a.cidr.prefix);
  return ranges[0]?.place ?? 'outside';
}

/** An address of the range that is a pod's: not the node's own (a tunnel's, say), and on no route. */
export function podAddressIn(topology: Topology, range: Cidr): Address | undefined {
  const { family, base } = range;
  const candidates = Array.from({ length: 256 }, (_, i) => ({ family, value: base + BigInt(i) }));
  return candidates.find(
    address => containsAddress(range, address) && receiverOf(topology, 'outside', address) === 'pod',
  );
}

/** What /proc/sys must hold before the interfaces are made. Keys are paths below /proc/sys/net. */
export function sysctlsOf(place: Place): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const scope of ['all', 'default']) {
    values.set(`ipv4/conf/${scope}/rp_filter`, '0');
    values.set(`ipv4/conf/${scope}/send_redirects`, '0');
    // No duplicate address detection: an address is ready when it is there.
    values.set(`ipv6/conf/${scope}/accept_dad`, '0');
    values.set(`ipv6/conf/${scope}/accept_ra`, '0');
    values.set(`ipv6/conf/${scope}/accept_redirects`, '0');
    // Every source address is local in the other places, which would make every packet a martian.
    if (place !== 'node') values.set(`ipv4/conf/${scope}/accept_local`, '1');
  }
  if (place === 'node') {
    values.set('ipv4/ip_forward', '1');
    values.set('ipv6/conf/all/forwarding', '1');
  } else {
    values.set('ipv4/ip_nonlocal_bind', '1');
    // A local route alone lets IPv4 sockets bind, not IPv6 ones.
    values.set('ipv6/ip_nonlocal_bind', '1');
  }
  return values;
}

/** Lines that make the links, to be run in the node's namespace; the other ends go to the processes' namespaces. */
export function linkLines(topology: Topology, pids: { readonly [P in Place]: number }): readonly string[] {
  const make = (name: string, cable: number, peer: string, pid: number): string =>
    `link add ${name} address ${mac(cable, NEAR)} type veth peer name ${peer} address ${mac(cable, FAR)} netns ${pid}`;
  return [
    ...topology.links.map((link, i) => make(link.name, i, link.name, pids.outside)),
    make(POD_INTERFACE, POD_CABLE, 'eth0', pids.pod),
    make(PEER_INTERFACE, PEER_CABLE, 'eth0', pids.peer),
  ];
}

/** Lines for the node, after linkLines. */
export function nodeLines({ links, routes, podRanges }: Topology): readonly string[] {
  const cables = new Map(links.map(({ name }, i) => [name, i]));
  const byLink = (cidr: Cidr, via: string, table = ''): string =>
    route(cidr, cables.get(via) ?? 0, FAR, via, table);
  return [
    'link set lo up',
    ...links.flatMap((link, i) => [
      ...upWithNeighbours(link.name, i, FAR),
      ...link.addresses.map(({ address, subnet }) => addressLine(link.name, address, subnet.prefix)),
      // Deprecated, or MASQUERADE for IPv6 might choose it (RFC 6724, and the newest address of equals).
      ...link.extraAddresses.map(
        address => `${addressLine(link.name, address, bitsOf(address.family))} preferred_lft 0`,
      ),
    ]),
    ...upWithNeighbours(POD_INTERFACE, POD_CABLE, FAR),
    ...upWithNeighbours(PEER_INTERFACE, PEER_CABLE, FAR),
    ...links.slice(0, 1).flatMap(link => EVERYTHING.map(cidr => byLink(cidr, link.name))),
    ...links.flatMap(link =>
      link.addresses
        .filter(({ subnet }) => subnet.prefix < bitsOf(subnet.family))
        .map(({ subnet }) => byLink(subnet, link.name)),
    ),
    ...podRanges.map(cidr => route(cidr, POD_CABLE, FAR, POD_INTERFACE)),
    ...routes.map(({ cidr, via }) => byLink(cidr, via)),
    // What the pods send to pods goes to the peers.
    ...podRanges.map(cidr => route(cidr, PEER_CABLE, FAR, PEER_INTERFACE, TABLE)),
    ...routes.map(({ cidr, via }) => byLink(cidr, via, TABLE)),
  ];
}

export const NODE_RULES: readonly string[] = [`rule add pref 100 iif ${POD_INTERFACE} lookup 100`];

/** Lines for a place of pods, after linkLines. */
export function podLines(place: 'pod' | 'peer'): readonly string[] {
  const cable = place === 'pod' ? POD_CABLE : PEER_CABLE;
  return [
    'link set lo up',
    ...upWithNeighbours('eth0', cable, NEAR),
    ...EVERYTHING.map(cidr => route(cidr, cable, NEAR, 'eth0', TABLE)),
    ...EVERYTHING.map(haveAll),
  ];
}

/**
 * Lines for the outside, after linkLines. It has routes to the pods; for every other address it asks on the wire (ARP,
 * neighbour discovery), as a router does, so that an address which the node does not have gets no answers.
 */
export function outsideLines({ links, podRanges }: Topology): readonly string[] {
  const [first] = links;
  const onLink = (cidr: Cidr, name: string): string => `route add ${formatCidr(cidr)} dev ${name}${TABLE}`;
  return [
    'link set lo up',
    ...links.flatMap((link, i) => upWithNeighbours(link.name, i, NEAR)),
    // The first question is lost when the other end is not up yet; the next would come a second later.
    ...links.flatMap(({ name }) =>
      ['arp_cache', 'ndisc_cache'].map(table => `ntable change name ${table} dev ${name} retrans 20`),
    ),
    ...(first === undefined ? [] : EVERYTHING.map(cidr => onLink(cidr, first.name))),
    ...podRanges.flatMap(cidr => (first === undefined ? [] : [route(cidr, 0, NEAR, first.name, TABLE)])),
    ...links.flatMap(link =>
      [...link.addresses.map(({ address }) => address), ...link.extraAddresses].map(address =>
        onLink({ family: address.family, base: address.value, prefix: bitsOf(address.family) }, link.name),
      ),
    ),
    ...EVERYTHING.map(haveAll),
  ];
}

/** What is sent is routed by table 100, which knows no local address. The kernel's own first rule must go for that. */
export const EVERYWHERE_RULES: readonly string[] = [
  'rule add pref 10 iif lo lookup 100',
  'rule add pref 20 lookup local',
  'rule del pref 0',
];

const EVERYTHING: readonly Cidr[] = [
  { family: 4, base: 0n, prefix: 0 },
  { family: 6, base: 0n, prefix: 0 },
];
const TABLE = ' table 100';
const POD_CABLE = 200;
const PEER_CABLE = 201;
/** The two ends of a cable: the node's, and the other. */
const NEAR = 1;
const FAR = 2;

const haveAll = (cidr: Cidr): string => `route add local ${formatCidr(cidr)} dev lo table local`;

const mac = (cable: number, end: number): string => `02:00:00:00:${hex(cable)}:${hex(end)}`;
const hex = (byte: number): string => byte.toString(16).padStart(2, '0');

/** Gateways are link-local and nobody's address: permanent neighbours stand for them, so nothing needs to be resolved. */
const gateway = (family: Family, cable: number, end: number): string =>
  family === 4 ? `169.254.${cable}.${end}` : `fe80::${hex(cable)}:${end}`;

const upWithNeighbours = (name: string, cable: number, end: number): readonly string[] => [
  `link set ${name} up`,
  ...([4, 6] as const).map(
    family => `neigh add ${gateway(family, cable, end)} lladdr ${mac(cable, end)} dev ${name} nud permanent`,
  ),
];

const route = (cidr: Cidr, cable: number, end: number, name: string, table = ''): string =>
  `route add ${formatCidr(cidr)} via ${gateway(cidr.family, cable, end)} dev ${name} onlink${table}`;

/** noprefixroute: the subnet's other addresses are reached by the gateway too. */
const addressLine = (name: string, address: Address, prefix: number): string =>
  `addr add ${formatAddress(address)}/${prefix} dev ${name} noprefixroute${address.family === 6 ? ' nodad' : ''}`;
