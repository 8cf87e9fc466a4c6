// Packets through the world, with rules made by hand: what the world reports is what the rules say.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Observation, Probe, ProbeProtocol, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import { eventually, runLine } from './world-support.ts';

const PROTOCOLS: readonly ProbeProtocol[] = ['tcp', 'udp', 'icmp', 'sctp'];
const BACKENDS = ['nft', 'legacy'] as const;
const FAMILIES = [
  {
    family: 4,
    iptables: 'iptables',
    pod: '10.244.1.5',
    far: ['8.8.8.8', '200.1.1.1', '169.254.169.254', '10.244.200.1'],
    second: '192.0.2.77',
    node: '192.168.50.10',
    secondNode: '192.168.60.10',
    snat: '198.51.100.7',
    foreign: '198.51.100.99',
    pods: '10.244.0.0/16',
  },
  {
    family: 6,
    iptables: 'ip6tables',
    pod: 'fd00:244::1:5',
    far: ['2001:4860:4860::8888', '2001:db8:51::8', 'fd00:244:0:200::1'],
    second: '2001:db8:2::77',
    node: '2001:db8:50::10',
    secondNode: '2001:db8:60::10',
    snat: '2001:db8:51::7',
    foreign: '2001:db8:51::99',
    pods: 'fd00:244::/48',
  },
] as const;

let world: World;
beforeEach(async () => {
  world = await openWorld(
    {
      links: [
        {
          name: 'eth0',
          addresses: ['192.168.50.10/24', '2001:db8:50::10/64'],
          extraAddresses: ['198.51.100.7', '2001:db8:51::7'],
        },
        { name: 'eth1', addresses: ['192.168.60.10/24', '2001:db8:60::10/64'] },
        { name: 'vxlan.calico', addresses: ['10.244.0.1/32', 'fd00:244::1/128'] },
      ],
      routes: [
        { cidr: '192.0.2.0/24', via: 'eth1' },
        { cidr: '2001:db8:2::/48', via: 'eth1' },
        { cidr: '10.244.200.0/24', via: 'vxlan.calico' },
        { cidr: 'fd00:244:0:200::/64', via: 'vxlan.calico' },
      ],
    },
    new AbortController().signal,
  );
});
afterEach(() => world.close());

const node = (line: string): Promise<string> => runLine(world.exec, line);
const from = (
  source: string,
  destination: string,
  protocol: ProbeProtocol,
  more: Partial<Probe> = {},
): Probe => ({ from: 'pod', source, destination, protocol, destinationPort: 443, ...more });
/** What an observation must be when the packet arrived and, where there is an answer, it came back. */
const arrived = (address: string, at: string, protocol: ProbeProtocol): Partial<Observation> =>
  ({ arrived: true, at, address, answered: protocol !== 'sctp' }) as Partial<Observation>;

describe.each(BACKENDS)('iptables-%s', backend => {
  test.each(FAMILIES)('IPv$family: pod without rules, node behind MASQUERADE', async f => {
    const everywhere = async (expected: (destination: string) => string): Promise<void> => {
      for (const protocol of PROTOCOLS) {
        for (const far of [...f.far, f.second]) {
          const seen = await world.send(from(f.pod, far, protocol));
          expect(seen, `${protocol} to ${far}`).toMatchObject(arrived(expected(far), 'outside', protocol));
        }
      }
    };
    await everywhere(() => f.pod);
    await node(`${f.iptables}-${backend} -t nat -A POSTROUTING -s ${f.pods} -j MASQUERADE`);
    const tunnel = f.far.at(-1);
    const tunnelAddress = f.family === 4 ? '10.244.0.1' : 'fd00:244::1';
    await everywhere(far => (far === f.second ? f.secondNode : far === tunnel ? tunnelAddress : f.node));
    // Inbound, and what the node sends of itself, keep their addresses.
    for (const protocol of PROTOCOLS) {
      const inbound = await world.send(from(f.far[0], f.pod, protocol, { from: 'outside' }));
      expect(inbound, protocol).toMatchObject(arrived(f.far[0], 'pod', protocol));
      const own = await world.send(from(f.node, f.far[0], protocol, { from: 'node' }));
      expect(own, protocol).toMatchObject(arrived(f.node, 'outside', protocol));
      const toPod = await world.send(from(f.node, f.pod, protocol, { from: 'node' }));
      expect(toPod, protocol).toMatchObject(arrived(f.node, 'pod', protocol));
    }
  });

  test.each(FAMILIES)('IPv$family: SNAT, identity, ports, and what does not arrive', async f => {
    const nat = (rule: string): Promise<string> => node(`${f.iptables}-${backend} -t nat ${rule}`);
    const everything = f.family === 4 ? '0.0.0.0/0' : '::/0';
    await nat(`-A POSTROUTING -d ${f.far[1]} -j NETMAP --to ${everything}`);
    for (const protocol of ['tcp', 'udp', 'sctp']) {
      const ports = f.family === 4 ? `${f.snat}:20000-20999` : `[${f.snat}]:20000-20999`;
      await nat(`-A POSTROUTING -s ${f.pods} -p ${protocol} -j SNAT --to-source ${ports}`);
    }
    await nat(`-A POSTROUTING -s ${f.pods} -j SNAT --to-source ${f.snat}`);
    for (const protocol of PROTOCOLS) {
      const kept = await world.send(from(f.pod, f.far[1], protocol));
      expect(kept, protocol).toMatchObject(arrived(f.pod, 'outside', protocol));
      const chosen = await world.send(from(f.pod, f.far[0], protocol, { sourcePort: 5555 }));
      expect(chosen, protocol).toMatchObject(arrived(f.snat, 'outside', protocol));
      const port = chosen.arrived ? chosen.port : 0;
      if (protocol === 'icmp') expect(port).toBe(5555);
      else expect(Math.floor(port / 1000), protocol).toBe(20);
      const toPeer = await world.send(from(f.pod, f.pod, protocol));
      expect(toPeer, protocol).toMatchObject(arrived(f.snat, 'peer', protocol));
    }
    // An address that the node does not have: the packets arrive, their answers do not.
    await nat('-F POSTROUTING');
    await nat(`-A POSTROUTING -s ${f.pods} -j SNAT --to-source ${f.foreign}`);
    const lost = await world.send(from(f.pod, f.far[0], 'udp', { limitMs: 300 }));
    expect(lost).toMatchObject({ arrived: true, address: f.foreign, answered: false });
    await node(`${f.iptables}-${backend} -A FORWARD -s ${f.pods} -j DROP`);
    for (const protocol of PROTOCOLS) {
      const dropped = await world.send(from(f.pod, f.far[0], protocol, { limitMs: 100 }));
      expect(dropped.arrived, protocol).toBe(false);
    }
  });
});

test.each(FAMILIES)('IPv$family: a Service is followed to where it leads', async f => {
  const service = f.family === 4 ? '10.96.0.10' : 'fd00:96::10';
  const [backendPod, to] =
    f.family === 4 ? ['10.244.9.9', '10.244.9.9:8080'] : ['fd00:244::9:9', '[fd00:244::9:9]:8080'];
  for (const protocol of ['tcp', 'udp'] as const) {
    const match = `-d ${service} -p ${protocol} --dport 443`;
    await node(`${f.iptables}-nft -t nat -A PREROUTING ${match} -j DNAT --to-destination ${to}`);
    const seen = await world.send(
      from(f.pod, service, protocol, { arrivesAt: { address: backendPod, port: 8080 } }),
    );
    expect(seen).toMatchObject(arrived(f.pod, 'peer', protocol));
  }
});

test.each(FAMILIES)('IPv$family: a flow keeps its address, a new one follows the new rule', async f => {
  // conntrack follows flows from the first nat rule on.
  await node(`${f.iptables}-nft -t nat -A POSTROUTING -d ${f.second} -j MASQUERADE`);
  const probes = (['tcp', 'udp', 'icmp'] as const).map(protocol => from(f.pod, f.far[0], protocol));
  const flows = await Promise.all(probes.map(probe => world.openFlow(probe)));
  const exchange = async (expected: string): Promise<void> => {
    for (const flow of flows)
      expect(await flow.exchange()).toMatchObject({ address: expected, answered: true });
  };
  await exchange(f.pod);
  await node(`${f.iptables}-nft -t nat -A POSTROUTING -s ${f.pods} -j MASQUERADE`);
  await exchange(f.pod);
  for (const probe of probes) expect(await world.send(probe)).toMatchObject({ address: f.node });
  await node(`conntrack -D -f ipv${f.family} -p udp -s ${f.pod}`);
  expect(await flows[1]?.exchange()).toMatchObject({ address: f.node, answered: true });
  await Promise.all(flows.map(flow => flow.close()));
});

test.each(FAMILIES)("IPv$family: what the host sends into a tunnel gets the tunnel's address", async f => {
  const local = '-m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL';
  await node(`${f.iptables}-nft -t nat -A POSTROUTING -o vxlan.calico ${local} -j MASQUERADE`);
  const [tunnelAddress, remote] =
    f.family === 4 ? ['10.244.0.1', '10.244.200.1'] : ['fd00:244::1', 'fd00:244:0:200::1'];
  for (const protocol of PROTOCOLS) {
    for (const [source, expected] of [
      [f.node, tunnelAddress],
      [tunnelAddress, tunnelAddress],
    ] as const) {
      const seen = await world.send(from(source, remote, protocol, { from: 'node' }));
      expect(seen, protocol).toMatchObject(arrived(expected, 'outside', protocol));
    }
    const pod = await world.send(from(f.pod, remote, protocol));
    expect(pod, protocol).toMatchObject(arrived(f.pod, 'outside', protocol));
  }
});

test('a connection that does not come about is said to', async () => {
  await node('iptables-nft -A FORWARD -p tcp -j REJECT --reject-with icmp-admin-prohibited');
  const probe = from('10.244.1.5', '8.8.8.8', 'tcp', { limitMs: 1500 });
  expect(await world.send(probe)).toMatchObject({
    arrived: false,
    reason: expect.stringMatching(/^connect /),
  });
  await expect(world.openFlow(probe)).rejects.toThrow(
    'no connection from 10.244.1.5 to 8.8.8.8: connect EHOSTUNREACH',
  );
});

test('probing tells how often each address was seen', async () => {
  const probes = FAMILIES.flatMap(f => [from(f.pod, f.far[0], 'udp'), from(f.pod, f.second, 'tcp')]);
  const pods = FAMILIES.flatMap(f => [f.pod, f.pod]);
  const later = FAMILIES.flatMap(f => [f.snat, f.pod]);
  const prober = await world.startProbing(probes, { perSecond: 300 });
  const times = (addresses: readonly string[]): readonly number[] =>
    prober.counts().map(({ seen }, i) => seen.get(addresses[i] ?? '') ?? 0);
  await eventually(async () => times(pods).every(n => n >= 10), 'ten flows of each probe');
  for (const f of FAMILIES) {
    await node(`${f.iptables}-nft -t nat -A POSTROUTING -d ${f.far[0]} -j SNAT --to-source ${f.snat}`);
  }
  const before = times(later);
  await eventually(async () => times(later).every((n, i) => n >= (before[i] ?? 0) + 10), 'ten flows after');
  const counts = await prober.stop();
  expect(counts.map(({ probe }) => probe)).toEqual(probes);
  for (const [i, { sent, seen }] of counts.entries()) {
    expect([...seen.values()].reduce((sum, n) => sum + n, 0)).toBe(sent);
    expect(new Set(seen.keys())).toEqual(new Set([pods[i], later[i]]));
  }
  await expect(
    world.startProbing([from('10.244.1.5', '8.8.8.8', 'udp', { sourcePort: 1 })], { perSecond: 1 }),
  ).rejects.toThrow('a new flow cannot have a given sourcePort');
});

test('hundreds of probes a second, none lost, each protocol', async () => {
  await node('iptables-nft -t nat -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE');
  for (const protocol of PROTOCOLS) {
    const count = 600;
    const lines: string[] = [];
    for (const [name, atOnce] of [
      ['one by one', 1],
      ['20 at once', 20],
    ] as const) {
      const started = performance.now();
      for (let i = 0; i < count; i += atOnce) {
        const probes = Array.from({ length: atOnce }, (_, j) =>
          from(`10.244.2.${((i + j) % 250) + 1}`, `8.8.${(i + j) % 250}.8`, protocol),
        );
        const seen = await Promise.all(probes.map(world.send));
        expect(seen.filter(one => !one.arrived || one.address !== '192.168.50.10')).toEqual([]);
      }
      const perSecond = Math.round((count * 1000) / (performance.now() - started));
      lines.push(`${name} ${perSecond}/s`);
      expect(perSecond).toBeGreaterThan(100);
    }
    console.log(`${protocol}: ${lines.join(', ')}`);
  }
});
