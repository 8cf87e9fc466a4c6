// Random pools and policies in a real kernel: what the receiver of each packet saw is what `decide` says.
import { inspect } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Snapshot } from '../../src/api/model.ts';
import { type Address, FAMILIES, formatAddress, sameAddress } from '../../src/cidr/address.ts';
import { containsAddress } from '../../src/cidr/cidr.ts';
import type { Observation, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver, type Driver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { decide, type Decision } from '../../src/planner/decide.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import { NODE } from '../oracle/arbitraries.ts';
import { busySnapshots } from '../oracle/busy.ts';
import { manifestsOf } from '../oracle/manifests.ts';
import { packetSeeds, packetsOf } from '../oracle/packets.ts';
import { cidr, NODES, POD_RANGE, SNAT } from '../oracle/universe.ts';

/** Of the node in the world, by the interface that a packet leaves by; the first of a family is what masquerade takes. */
const LINKS = [
  {
    name: 'eth0',
    addresses: ['192.168.50.10/24', '2001:db8:50::10/64'],
    extraAddresses: FAMILIES.flatMap(f => [...SNAT[f], ...NODES[f]])
      .filter(address => !containsAddress(POD_RANGE[address.family], address))
      .map(formatAddress),
  },
  { name: 'eth1', addresses: ['192.168.60.10/24', '2001:db8:60::10/64'] },
];
const BY_ETH1 = ['192.0.2.0/24', '198.18.0.0/15', '100.64.0.0/10', '2001:db8::/64', 'fc00::/16'];
const POD_RANGES = ['10.244.0.0/16', 'fd00:10:244::/48'];
const SCENES = 90;
const PACKETS = 6;

const PROBES = { TCP: 'tcp', UDP: 'udp', ICMP: 'icmp', SCTP: 'sctp' } as const;

/** A mark that a packet carries is put on it by its source port, as kube-proxy's rules put it on by theirs. */
const MARKED_PORTS = { first: 61_000, last: 61_999 };

describe.each(['nft', 'legacy'] as const)('random policies, %s', backend => {
  let world: World;
  let driver: Driver;
  beforeAll(async () => {
    const signal = new AbortController().signal;
    const routes = BY_ETH1.map(text => ({ cidr: text, via: 'eth1' }));
    world = await openWorld({ links: LINKS, routes, podRanges: POD_RANGES }, signal);
    driver = createDriver({ exec: world.exec, clock: systemClock, backend, log: silentLog });
    for (const iptables of ['iptables', 'ip6tables']) {
      for (const protocol of ['tcp', 'udp']) {
        const range = `${MARKED_PORTS.first}:${MARKED_PORTS.last}`;
        const rule = `-t mangle -A PREROUTING -p ${protocol} --sport ${range} -j MARK --set-xmark 0x4000/0x4000`;
        const result = await world.exec.run({
          tool: `${iptables}-${backend}`,
          args: rule.split(' '),
          timeoutMs: 9000,
        });
        expect(result).toMatchObject({ code: 0 });
      }
    }
  });
  afterAll(() => world.close());

  it(`judge ${SCENES * PACKETS} packets as decide does`, { timeout: 300_000 }, async () => {
    const seen = new Map<string, number>();
    let port = MARKED_PORTS.first;
    const nextMarked = (): number => (port = port < MARKED_PORTS.last ? port + 1 : MARKED_PORTS.first);
    await fc.assert(
      fc.asyncProperty(
        busySnapshots(3),
        fc.array(packetSeeds, { minLength: PACKETS, maxLength: PACKETS }),
        async (snapshot, seeds) => {
          const { plan, values } = planNode(snapshot, NODE);
          const report = await driver.apply(FAMILIES.map(family => renderFamily(plan, values, family)));
          for (const family of Object.values(report.families)) expect(family).toMatchObject({ ok: true });
          for (const random of packetsOf(snapshot, seeds, { sendable: true, marks: [0, 0, 0, 0x4000] })) {
            const packet = asSent(random);
            if (packet === undefined) continue;
            const decision = decide(plan, { values }, packet);
            const observed = await world.send({
              from: 'pod',
              source: formatAddress(packet.source),
              destination: formatAddress(packet.destination),
              protocol: PROBES[packet.protocol as keyof typeof PROBES],
              ...(packet.protocol === 'ICMP' ? {} : { destinationPort: packet.destinationPort as number }),
              ...(packet.mark === 0 ? {} : { sourcePort: nextMarked() }),
            });
            expect({ packet: textOf(packet), ...sightOf(observed, decision) }).toEqual({
              packet: textOf(packet),
              address: expectedAddress(packet, decision),
              portAsAsked: true,
            });
            seen.set(decision.action, (seen.get(decision.action) ?? 0) + 1);
          }
        },
      ),
      {
        numRuns: SCENES,
        // Shrinking waits for packets that do not come; what is smallest by then is told.
        interruptAfterTimeLimit: 200_000,
        markInterruptAsFailure: true,
        reporter: details => {
          if (!details.failed) return;
          const [snapshot] = details.counterexample ?? [];
          throw new Error(
            `seed ${details.seed}, path ${details.counterexamplePath}: ${inspect(details.errorInstance, { depth: 4 })}\n` +
              `manifests for explain --node ${NODE}:\n${JSON.stringify(manifestsOf(snapshot as Snapshot))}`,
          );
        },
      },
    );
    console.log(`${backend}: ${[...seen].map(([action, count]) => `${action} ${count}`).join(', ')}`);
    expect([...seen.values()].reduce((a, b) => a + b)).toBeGreaterThanOrEqual(300);
    for (const action of ['Masquerade', 'SNAT', 'Preserve', 'None'])
      expect(seen.get(action)).toBeGreaterThan(0);
  });
});

const own = LINKS.flatMap(link => [
  ...link.addresses.map(text => text.replace(/\/.*/, '')),
  ...(link.extraAddresses ?? []),
]);

/** The packet as the world can send it, with the interface by which it leaves; undefined when it cannot be forwarded. */
function asSent(random: Packet): Packet | undefined {
  const { source, destination, protocol } = random;
  if (sameAddress(source, destination) || own.includes(formatAddress(destination))) return undefined;
  if (protocol === 'other') return undefined;
  const marked = random.mark !== 0 && (protocol === 'TCP' || protocol === 'UDP');
  return { ...random, mark: marked ? 0x4000 : 0, outInterface: interfaceTo(destination) };
}

function interfaceTo(destination: Address): string {
  if (POD_RANGES.some(text => containsAddress(cidr(text), destination))) return 'calipeer';
  return BY_ETH1.some(text => containsAddress(cidr(text), destination)) ? 'eth1' : 'eth0';
}

function expectedAddress(packet: Packet, decision: Decision): string {
  if (decision.action === 'SNAT' && decision.address !== undefined) return formatAddress(decision.address);
  if (decision.action !== 'Masquerade') return formatAddress(packet.source);
  const link = LINKS.find(({ name }) => name === packet.outInterface) ?? LINKS[0];
  const text = link?.addresses[packet.source.family === 4 ? 0 : 1] ?? '';
  return text.replace(/\/.*/, '');
}

const sightOf = (observed: Observation, decision: Decision): { address: string; portAsAsked: boolean } => ({
  address: observed.arrived ? observed.address : `nothing: ${observed.reason}`,
  portAsAsked:
    !observed.arrived ||
    decision.portRange === undefined ||
    (observed.port >= decision.portRange.start && observed.port <= decision.portRange.end),
});

const textOf = (packet: Packet): string =>
  `${packet.protocol} ${formatAddress(packet.source)} > ${formatAddress(packet.destination)} port ${packet.destinationPort} by ${packet.outInterface} mark ${packet.mark}`;
