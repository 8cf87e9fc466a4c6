// Random clusters before and after, random connections: exactly those go that a plain reading of the rule names.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { flushChanged } from '../../src/applier/flush.ts';
import type { MasqPolicy, PortRange, Snapshot } from '../../src/api/model.ts';
import { type Address, type Family, formatAddress } from '../../src/cidr/address.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { ConntrackEntry } from '../../src/kernel/conntrack.ts';
import { decide, type Decider, type Decision } from '../../src/planner/decide.ts';
import type { Packet } from '../../src/planner/packet.ts';
import type { NodeValues, Plan } from '../../src/planner/plan.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { NODE } from '../oracle/arbitraries.ts';
import { busySnapshots } from '../oracle/busy.ts';
import { packetSeeds, packetsOf } from '../oracle/packets.ts';
import type { OraclePacket } from '../oracle/snapshot-oracle.ts';
import { address, SNAT } from '../oracle/universe.ts';
import { fakeTable } from './flush-fake.ts';

/** What masquerade chooses on the node; no rule of the random policies chooses it. */
const OWN: { readonly [F in Family]: Address } = {
  4: address('192.168.1.10'),
  6: address('fd00:1::10'),
};
const localAddresses = ([4, 6] as const).map(family => ({ interface: 'eth0', address: OWN[family] }));

const histories = fc.record({
  /** What the source became when the connection began. */
  became: fc.constantFrom('asBefore', 'asBefore', 'asBefore', 'asAfter', 'source', 'own', 'snat'),
  port: fc.constantFrom(1024, 20_000, 22_500, 30_000, 35_000),
  service: fc.boolean(),
  zone: fc.constantFrom(0, 0, 0, 7),
  /** How many clients of one kind. */
  clients: fc.integer({ min: 1, max: 3 }),
});
type History = typeof histories extends fc.Arbitrary<infer T> ? T : never;

interface Side {
  readonly plan: Plan;
  readonly values: NodeValues;
}

interface Live {
  readonly entry: ConntrackEntry;
  readonly packet: Packet;
}

const becomes = (decision: Decision, source: Address): Address => {
  if (decision.address !== undefined) return decision.address;
  return decision.action === 'Masquerade' ? OWN[source.family] : source;
};

const within = (range: PortRange | undefined, port: number | undefined): boolean =>
  range === undefined || port === undefined || (port >= range.start && port <= range.end);

const asksForFlush = (plan: Plan, by: Decider | null): boolean =>
  by !== null &&
  'policy' in by &&
  plan.policies.some(
    ({ name, connectionPolicy }) => name === by.policy && connectionPolicy === 'FlushChanged',
  );

/** The rule, word by word, of one entry. */
function shallGo({ entry, packet }: Live, before: Side, after: Side): boolean {
  const was = decide(before.plan, { values: before.values, localAddresses }, packet);
  const is = decide(after.plan, { values: after.values, localAddresses }, packet);
  if (was.uncertain.length + is.uncertain.length > 0) return false;
  if (!asksForFlush(before.plan, was.by) && !asksForFlush(after.plan, is.by)) return false;
  if (JSON.stringify(meaning(was)) === JSON.stringify(meaning(is))) return false;
  if (formatAddress(packet.destination) === formatAddress(OWN[entry.family])) return false;
  const now = formatAddress(entry.reply.destination);
  if (now !== formatAddress(becomes(was, packet.source))) return false;
  // A chosen address may be the one that masquerade would choose, but nobody has promised that.
  if (was.action === 'SNAT' && is.action === 'Masquerade') return true;
  const wouldBe = formatAddress(becomes(is, packet.source));
  return now !== wouldBe || !within(is.portRange, entry.reply.destinationPort);
}

const meaning = ({ action, address, portRange }: Decision): unknown => [
  action,
  address === undefined ? '' : formatAddress(address),
  portRange?.start,
  portRange?.end,
];

/** Some policies of the one cluster, and some of the other. */
const changed = (a: Snapshot, b: Snapshot, kept: number): Snapshot => {
  const names = new Set(b.policies.map(({ name }) => name));
  const policies: readonly MasqPolicy[] = [
    ...a.policies.filter(({ name }, i) => i % 4 < kept && !names.has(name)),
    ...b.policies,
  ];
  return kept === 0 ? b : { ...a, policies };
};

/** The interface is a matter of source and destination; for some there is no route. */
const interfaceOf = (source: Address, destination: Address): string | undefined =>
  ['eth0', 'eth1', 'eth0', 'eth1', undefined][Number((source.value + destination.value) % 5n)];

const NUMBERS = { TCP: 6, UDP: 17, SCTP: 132, other: 99 } as const;

function livesOf(
  seen: OraclePacket,
  history: History,
  before: Side,
  after: Side,
  id: number,
): readonly Live[] {
  const { source, destination, protocol, destinationPort } = seen;
  const { family } = source;
  const out = interfaceOf(source, destination);
  const number = protocol === 'ICMP' ? (family === 4 ? 1 : 58) : NUMBERS[protocol];
  const ported = protocol !== 'ICMP' && protocol !== 'other';
  const packet: Packet = {
    source,
    destination,
    protocol: number,
    ...(ported ? { destinationPort } : {}),
    ...(out === undefined ? {} : { outInterface: out }),
  };
  const decided = ({ plan, values }: Side): Address =>
    becomes(decide(plan, { values, localAddresses }, packet), source);
  const became = {
    asBefore: decided(before),
    asAfter: decided(after),
    source,
    own: OWN[family],
    snat: SNAT[family][0] as Address,
  }[history.became];
  const service = history.service ? SERVICE[family] : destination;
  return Array.from({ length: ported ? history.clients : 1 }, (_, client) => ({
    packet,
    entry: {
      family,
      protocol: number,
      zone: history.zone,
      id: id + client,
      directionalZone: false,
      original: {
        source,
        destination: service,
        // Of protocols with neither, two entries may be one to conntrack.
        ...(ported ? { sourcePort: 10_000 + id + client, destinationPort: 80 } : {}),
        ...(protocol === 'ICMP' ? { icmp: { type: 8, code: 0, id } } : {}),
      },
      reply: {
        source: destination,
        destination: became,
        ...(ported ? { sourcePort: destinationPort, destinationPort: history.port + client } : {}),
        ...(protocol === 'ICMP' ? { icmp: { type: 0, code: 0, id } } : {}),
      },
    },
  }));
}

const SERVICE: { readonly [F in Family]: Address } = { 4: address('10.96.0.10'), 6: address('fd00:96::10') };

/** The kernel knows each original tuple of a zone once. */
const distinct = (lives: readonly Live[]): readonly Live[] => {
  const known = new Map<string, Live>();
  for (const live of lives) {
    const { family, protocol, zone, original } = live.entry;
    const { source, destination, ...rest } = original;
    const key = JSON.stringify([
      family,
      protocol,
      zone,
      formatAddress(source),
      formatAddress(destination),
      rest,
    ]);
    if (!known.has(key)) known.set(key, live);
  }
  return [...known.values()];
};

describe('a flush', () => {
  it('deletes exactly the connections whose verdict changed, and counts them', {
    timeout: 120_000,
  }, async () => {
    const counts = { entries: 0, gone: 0 };
    await fc.assert(
      fc.asyncProperty(
        busySnapshots(2),
        busySnapshots(2),
        fc.integer({ min: 0, max: 4 }),
        fc.array(fc.tuple(packetSeeds, histories), { minLength: 10, maxLength: 40 }),
        async (first, second, kept, seeds) => {
          const before = planNode(first, NODE);
          const after = planNode(changed(first, second, kept), NODE);
          const packets = packetsOf(
            first,
            seeds.map(([seed]) => seed),
            { sendable: true, marks: [0] },
          );
          const lives = distinct(
            packets.flatMap((packet, i) =>
              livesOf(packet, (seeds[i] as (typeof seeds)[number])[1], before, after, i * 10),
            ),
          );
          const table = fakeTable(lives.map(({ entry }) => entry));
          const report = await flushChanged({
            before: { plan: before.plan, node: { values: before.values } },
            after: { plan: after.plan, node: { values: after.values, localAddresses } },
            exec: table.exec,
            clock: systemClock,
            outInterfaceOf: async paths =>
              paths.map(({ source, destination }) => interfaceOf(source, destination)),
          });
          const going = lives.filter(live => shallGo(live, before, after)).map(({ entry }) => entry.id);
          expect(table.left()).toEqual(lives.map(({ entry }) => entry.id).filter(id => !going.includes(id)));
          expect(report.errors).toEqual([]);
          expect(report.deleted).toBe(going.length);
          if (report.notLooked === undefined) expect(report.looked).toBe(lives.length);
          else expect(table.commands).toEqual([]);
          counts.entries += lives.length;
          counts.gone += going.length;
        },
      ),
      { numRuns: 300 },
    );
    // Both happen often, or nothing was tested.
    expect(counts.gone).toBeGreaterThan(400);
    expect(counts.entries - counts.gone).toBeGreaterThan(400);
  });
});
