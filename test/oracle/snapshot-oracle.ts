// A second reading of what policies and pools mean, straight from the objects and one packet at a
// time: loops over pools and lists, no sets, no plan, nothing of src/planner or src/render. Slow and literal on
// purpose: where it and the planner differ, one of them has the text wrong.
import type {
  ClusterNode,
  FelixConfig,
  MasqPolicy,
  PolicyRule,
  PortMatch,
  SnatSource,
  Snapshot,
} from '../../src/api/model.ts';
import { type Address, parseAddress } from '../../src/cidr/address.ts';
import {
  destinationMatches,
  equal,
  inSparedPool,
  isNodeAddress,
  poolOf,
  selectorMatches,
  sourceMatches,
} from './selections.ts';

/** A packet of which everything is known. */
export interface OraclePacket {
  readonly source: Address;
  readonly destination: Address;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP' | 'other';
  /** Means something for TCP, UDP and SCTP only. */
  readonly destinationPort: number;
  readonly outInterface: string;
  readonly mark: number;
}

export interface OracleOptions {
  readonly kubeMark: number;
  readonly tunnelInterfaces: readonly string[];
  readonly inheritFelix: boolean;
  readonly localAddresses: readonly { readonly interface: string; readonly address: Address }[];
}

export interface OracleVerdict {
  readonly action: 'Masquerade' | 'SNAT' | 'Preserve' | 'None';
  readonly by:
    | { readonly policy: string; readonly rule: string }
    | { readonly policy: string; readonly default: true }
    | { readonly poolDefault: true }
    | { readonly tunnel: string }
    | { readonly mark: number }
    | null;
  readonly address?: Address;
  readonly portRange?: { readonly start: number; readonly end: number };
  /** The rules of DryRun policies that counted the packet. */
  readonly counted: readonly { readonly policy: string; readonly rule: string }[];
}

/** What happens to the first packet of a connection on a node. The node must be in the snapshot. */
export function oracle(
  snapshot: Snapshot,
  nodeName: string,
  options: OracleOptions,
  packet: OraclePacket,
): OracleVerdict {
  const node = snapshot.nodes.find(candidate => candidate.name === nodeName);
  if (node === undefined) throw new Error(`the snapshot has no node ${nodeName}`);
  const counted: { policy: string; rule: string }[] = [];
  // "A packet that carries kube-proxy's masquerade mark is kube-proxy's: we return."
  if (hasAllBits(packet.mark, options.kubeMark))
    return { action: 'None', by: { mark: packet.mark }, counted };

  policies: for (const policy of policiesInOrder(snapshot.policies)) {
    if (policy.spec.enforcementMode === 'Disabled') continue;
    if (!selectorMatches(policy.spec.nodeSelector, node.labels)) continue;
    if (!sourceMatches(snapshot, policy.spec.source, packet.source)) continue;
    for (const rule of policy.spec.rules) {
      if (!ruleMatches(snapshot, rule, packet)) continue;
      const address = rule.snat === undefined ? undefined : addressFor(node, rule.snat, packet.source.family);
      // "A SNAT rule without an address for the packet's family does not match that packet."
      if (rule.action === 'SNAT' && address === undefined) continue;
      const by = { policy: policy.name, rule: rule.name };
      if (policy.spec.enforcementMode === 'DryRun') {
        counted.push(by);
        continue policies;
      }
      if (rule.action === 'Continue') continue policies;
      if (rule.action === 'Preserve') return { action: 'Preserve', by, counted };
      return { ...translated(packet, address, rule.portRange), by, counted };
    }
    if (policy.spec.enforcementMode === 'DryRun' || policy.spec.defaultAction === 'Continue') continue;
    const by = { policy: policy.name, default: true } as const;
    if (policy.spec.defaultAction === 'Preserve') return { action: 'Preserve', by, counted };
    return { action: 'Masquerade', by, counted };
  }

  const felix = options.inheritFelix ? felixOf(snapshot.felixConfigs, nodeName) : { name: 'none' };
  if (poolDefaultMatches(snapshot, felix, packet)) {
    const fixed = felix.natOutgoingAddress;
    const address = fixed?.family === packet.source.family ? fixed : undefined;
    return { ...translated(packet, address, felix.natPortRange), by: { poolDefault: true }, counted };
  }

  for (const tunnel of options.tunnelInterfaces) {
    if (packet.outInterface !== tunnel) continue;
    const onNode = options.localAddresses.some(local => equal(local.address, packet.source));
    const onTunnel = options.localAddresses.some(
      local => local.interface === tunnel && equal(local.address, packet.source),
    );
    if (onNode && !onTunnel) return { action: 'Masquerade', by: { tunnel }, counted };
  }
  return { action: 'None', by: null, counted };
}

function translated(
  packet: OraclePacket,
  address: Address | undefined,
  portRange: { readonly start: number; readonly end: number } | undefined,
): Pick<OracleVerdict, 'action' | 'address' | 'portRange'> {
  const hasPorts = packet.protocol === 'TCP' || packet.protocol === 'UDP' || packet.protocol === 'SCTP';
  return {
    action: address === undefined ? 'Masquerade' : 'SNAT',
    ...(address === undefined ? {} : { address }),
    ...(hasPorts && portRange !== undefined ? { portRange } : {}),
  };
}

/**
 * "priority, then creation time where there is one, then name". Read as: the older first, those without a time after
 * those with one (they are not created yet), names by code units.
 */
function policiesInOrder(policies: readonly MasqPolicy[]): readonly MasqPolicy[] {
  const time = (policy: MasqPolicy): number =>
    policy.creationTimestamp === undefined ? Number.MAX_VALUE : new Date(policy.creationTimestamp).getTime();
  return [...policies].sort((a, b) => {
    if (a.spec.priority !== b.spec.priority) return a.spec.priority - b.spec.priority;
    if (time(a) !== time(b)) return time(a) < time(b) ? -1 : 1;
    return a.name < b.name ? -1 : 1;
  });
}

function ruleMatches(snapshot: Snapshot, rule: PolicyRule, packet: OraclePacket): boolean {
  if (rule.to !== undefined && !rule.to.some(to => destinationMatches(snapshot, to, packet.destination))) {
    return false;
  }
  if (rule.ports !== undefined && !rule.ports.some(port => portMatches(port, packet))) return false;
  return (
    rule.outInterfaces === undefined ||
    rule.outInterfaces.some(pattern => interfaceMatches(pattern, packet.outInterface))
  );
}

function portMatches(match: PortMatch, packet: OraclePacket): boolean {
  if (match.protocol !== packet.protocol) return false;
  if (match.port === undefined) return true;
  return packet.destinationPort >= match.port && packet.destinationPort <= (match.endPort ?? match.port);
}

function interfaceMatches(pattern: string, name: string): boolean {
  if (!pattern.endsWith('+')) return pattern === name;
  const start = pattern.substring(0, pattern.length - 1);
  return name.substring(0, start.length) === start;
}

/** "Source in a pool with natOutgoing, destination in no pool", and the options as Felix has them. */
function poolDefaultMatches(snapshot: Snapshot, felix: FelixConfig, packet: OraclePacket): boolean {
  if (poolOf(snapshot.pools, packet.source)?.natOutgoing !== true) return false;
  if (inSparedPool(snapshot.pools, packet.destination)) return false;
  if (
    felix.natOutgoingExclusions === 'IPPoolsAndHostIPs' &&
    isNodeAddress(snapshot.nodes, packet.destination)
  ) {
    return false;
  }
  return (
    felix.natOutgoingInterface === undefined ||
    interfaceMatches(felix.natOutgoingInterface, packet.outInterface)
  );
}

/** What `node.NAME` sets counts, then what `default` sets. */
function felixOf(configs: readonly FelixConfig[], nodeName: string): FelixConfig {
  const own = configs.find(config => config.name === `node.${nodeName}`);
  const common = configs.find(config => config.name === 'default');
  const natOutgoingAddress = own?.natOutgoingAddress ?? common?.natOutgoingAddress;
  const natPortRange = own?.natPortRange ?? common?.natPortRange;
  const natOutgoingExclusions = own?.natOutgoingExclusions ?? common?.natOutgoingExclusions;
  const natOutgoingInterface = own?.natOutgoingInterface ?? common?.natOutgoingInterface;
  return {
    name: 'effective',
    ...(natOutgoingAddress === undefined ? {} : { natOutgoingAddress }),
    ...(natPortRange === undefined ? {} : { natPortRange }),
    ...(natOutgoingExclusions === undefined ? {} : { natOutgoingExclusions }),
    ...(natOutgoingInterface === undefined ? {} : { natOutgoingInterface }),
  };
}

/**
 * An annotation holds one address, or several with commas between them; the text does not say how, and this is the
 * planner's format. A value that does not parse whole, or has two addresses of one family, is no value.
 */
function addressFor(node: ClusterNode, snat: SnatSource, family: 4 | 6): Address | undefined {
  if ('addresses' in snat) return snat.addresses[family];
  if ('nodeAddressType' in snat) {
    return node.addresses.find(
      entry => entry.type === snat.nodeAddressType && entry.address.family === family,
    )?.address;
  }
  const text = Object.entries(node.annotations).find(([key]) => key === snat.nodeAnnotation)?.[1];
  if (text === undefined) return undefined;
  const parsed = text.split(',').map(part => parseAddress(part.trim()));
  if (parsed.some(part => !part.ok)) return undefined;
  const addresses = parsed.flatMap(part => (part.ok ? [part.value] : []));
  if (addresses.filter(a => a.family === 4).length > 1 || addresses.filter(a => a.family === 6).length > 1) {
    return undefined;
  }
  return addresses.find(a => a.family === family);
}

function hasAllBits(mark: number, wanted: number): boolean {
  const bits = BigInt(wanted);
  return (BigInt(mark) & bits) === bits;
}
