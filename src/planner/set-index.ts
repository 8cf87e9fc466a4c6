// All sets of a plan in one list of prefixes, each with what the sets say about it: so hundreds of sets are asked
// about an address in one search, and the pairs of sets that have something in common are found in one sweep.
import { type Address, bitsOf, type Family } from '../cidr/address.ts';
import { type Cidr, compareCidrs, containsCidr, sameCidr } from '../cidr/cidr.ts';
import type { PlanSet } from './plan.ts';

interface Prefix {
  readonly cidr: Cidr;
  /** Index of the nearest prefix that contains this one, or -1. */
  readonly parent: number;
  readonly says: { readonly id: string; readonly nomatch: boolean }[];
}

/** Sorted by compareCidrs. */
function prefixesOf(sets: Iterable<PlanSet>, family: Family): readonly Prefix[] {
  const entries = [...sets].flatMap(({ id, addresses }) =>
    addresses[family].entries.map(({ cidr, nomatch }) => ({ id, cidr, nomatch })),
  );
  // Each set is sorted already, and the sort makes use of such runs.
  entries.sort((a, b) => compareCidrs(a.cidr, b.cidr));
  const prefixes: Prefix[] = [];
  for (const { id, cidr, nomatch } of entries) {
    let last = prefixes.at(-1);
    if (last === undefined || !sameCidr(last.cidr, cidr)) {
      let parent = prefixes.length - 1;
      while (parent >= 0 && !containsCidr((prefixes[parent] as Prefix).cidr, cidr)) {
        parent = (prefixes[parent] as Prefix).parent;
      }
      last = { cidr, parent, says: [] };
      prefixes.push(last);
    }
    last.says.push({ id, nomatch });
  }
  return prefixes;
}

/** Finds the ids of the sets that hold an address, as hasAddress would one by one. Building it costs one sort. */
export function setsHolding(sets: Iterable<PlanSet>): (address: Address) => ReadonlySet<string> {
  const all = [...sets];
  const prefixes = { 4: prefixesOf(all, 4), 6: prefixesOf(all, 6) };
  return address => {
    const sorted = prefixes[address.family];
    const holding = new Set<string>();
    const excepted = new Set<string>();
    // The longest prefix of a set that contains the address comes first on the way up, and has the set's word.
    for (let i = innermost(sorted, address); i >= 0; i = (sorted[i] as Prefix).parent) {
      for (const { id, nomatch } of (sorted[i] as Prefix).says) {
        if (holding.has(id) || excepted.has(id)) continue;
        (nomatch ? excepted : holding).add(id);
      }
    }
    return holding;
  };
}

/** Index of the longest prefix that contains the address, or -1. */
function innermost(sorted: readonly Prefix[], { family, value }: Address): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] as Prefix).cidr.base <= value) low = middle + 1;
    else high = middle;
  }
  const point: Cidr = { family, base: value, prefix: bitsOf(family) };
  let index = low - 1;
  while (index >= 0 && !containsCidr((sorted[index] as Prefix).cidr, point)) {
    index = (sorted[index] as Prefix).parent;
  }
  return index;
}

/** Pairs that are noted; sets of a plan with more mostly meet, and no pair is ruled out then. */
const MAX_PAIRS = 1_000_000;

/**
 * Asks whether the sets of two ids (in either order) may have an address of the family in common. `false` is certain;
 * `true` may be wrong, since exceptions inside a prefix are not looked at.
 */
export function meetingSets(sets: Iterable<PlanSet>, family: Family): (a: string, b: string) => boolean {
  const prefixes = prefixesOf(sets, family).map(({ parent, says }) => ({
    parent,
    ids: says.flatMap(({ id, nomatch }) => (nomatch ? [] : [id])),
  }));
  const meeting = new Map<string, Set<string>>();
  let pairs = 0;
  for (const [index, { ids }] of prefixes.entries()) {
    for (const id of ids) {
      const known = meeting.get(id) ?? new Set([id]);
      meeting.set(id, known);
      for (let i = index; i >= 0; i = prefixes[i]?.parent ?? -1) {
        const others = prefixes[i]?.ids ?? [];
        pairs += others.length;
        if (pairs > MAX_PAIRS) return () => true;
        for (const other of others) known.add(other);
      }
    }
  }
  return (a, b) => meeting.get(a)?.has(b) === true || meeting.get(b)?.has(a) === true;
}
