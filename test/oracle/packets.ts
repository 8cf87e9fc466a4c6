// Random packets over a snapshot: sources and destinations of the small world, and the first and last addresses of
// every CIDR of the snapshot with their neighbours outside, where a wrong boundary shows.
import fc from 'fast-check';
import type { Snapshot } from '../../src/api/model.ts';
import { type Address, bitsOf, type Family } from '../../src/cidr/address.ts';
import { type Cidr, containsAddress, sizeOf } from '../../src/cidr/cidr.ts';
import { family, INTERFACES, NODES, OUTSIDE, POD_RANGE, PODS, SPECIAL } from './universe.ts';
import { port } from './arbitraries.ts';
import type { OraclePacket } from './snapshot-oracle.ts';

export interface PacketChoice {
  /** Whether only packets that a kernel test can send are made: pod sources, destinations that are unicast. */
  readonly sendable: boolean;
  /** The marks to choose from. */
  readonly marks: readonly number[];
}

export const ANY_PACKET: PacketChoice = { sendable: false, marks: [0, 0, 0, 0, 0x4000, 0xc001, 0x8000] };

/** What makes a packet once the snapshot is there: chosen by itself, so that the two shrink apart. */
export interface PacketSeed extends Omit<OraclePacket, 'source' | 'destination' | 'mark'> {
  readonly family: Family;
  readonly source: number;
  readonly destination: number;
  readonly mark: number;
}

export const packetSeeds: fc.Arbitrary<PacketSeed> = fc.record({
  family,
  source: fc.nat(),
  destination: fc.nat(),
  protocol: fc.constantFrom(...(['TCP', 'TCP', 'UDP', 'SCTP', 'ICMP', 'other'] as const)),
  destinationPort: port,
  outInterface: fc.constantFrom(...INTERFACES),
  mark: fc.nat(),
});

/** The packets of the seeds in the world of the snapshot. */
export function packetsOf(
  snapshot: Snapshot,
  seeds: readonly PacketSeed[],
  choice: PacketChoice = ANY_PACKET,
): readonly OraclePacket[] {
  const edges = { 4: edgesOf(snapshot, 4), 6: edgesOf(snapshot, 6) };
  return seeds.map(seed => {
    const near = edges[seed.family];
    const sources = choice.sendable
      ? [...PODS[seed.family], ...near.filter(edge => containsAddress(POD_RANGE[seed.family], edge))]
      : [...PODS[seed.family], ...NODES[seed.family], ...near];
    const all = [...PODS[seed.family], ...NODES[seed.family], ...OUTSIDE[seed.family], ...near];
    const destinations = choice.sendable ? all.filter(isSendable) : [...all, ...SPECIAL[seed.family]];
    return {
      ...seed,
      source: pick(sources, seed.source),
      destination: pick(destinations, seed.destination),
      mark: pick(choice.marks, seed.mark),
    };
  });
}

function pick<T>(from: readonly T[], index: number): T {
  const chosen = from[index % from.length];
  if (chosen === undefined) throw new Error('nothing to choose from');
  return chosen;
}

function edgesOf(snapshot: Snapshot, f: Family): readonly Address[] {
  const blocks = snapshot.policies.flatMap(({ spec }) => [
    ...(spec.source.ipBlocks ?? []),
    ...spec.rules.flatMap(rule => (rule.to ?? []).flatMap(to => ('ipBlock' in to ? [to.ipBlock] : []))),
  ]);
  const cidrs: readonly Cidr[] = [
    ...snapshot.pools.map(pool => pool.cidr),
    ...snapshot.networkSets.flatMap(set => set.nets),
    ...blocks.flatMap(block => [block.cidr, ...block.except]),
  ];
  return cidrs
    .filter(cidr => cidr.family === f)
    .flatMap(cidr => {
      const last = cidr.base + sizeOf(cidr) - 1n;
      return [cidr.base, last, cidr.base - 1n, last + 1n];
    })
    .filter(value => value >= 0n && value < 1n << BigInt(bitsOf(f)))
    .map(value => ({ family: f, value }));
}

/** Unicast, not of the sender itself, and reached without naming an interface. */
export function isSendable({ family: f, value }: Address): boolean {
  if (f === 4) {
    const first = Number(value >> 24n);
    return first > 0 && first !== 127 && first >> 4 !== 0xe && value !== 0xffff_ffffn;
  }
  return value >> 120n !== 0n && value >> 120n !== 0xffn && value >> 118n !== 0xfe80n >> 6n;
}
