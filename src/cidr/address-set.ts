// Sets of addresses of one family, held as the kernel's hash:net holds them: prefixes that are labelled match or
// nomatch, of which the longest that contains an address decides. So an exception costs one entry, users find the
// CIDRs they wrote in `ipset list`, and one CIDR more in a policy is one entry more in the set.
import { type Address, bitsOf, type Family } from './address.ts';
import { type Cidr, compareCidrs, containsCidr, halves, sameCidr, sizeOf } from './cidr.ts';

export interface SetEntry {
  readonly cidr: Cidr;
  /** True: the addresses of this prefix are not in the set (unless a longer entry says so). */
  readonly nomatch: boolean;
}

export interface AddressSet {
  readonly family: Family;
  /** In compareCidrs order, no CIDR twice, and no entry that says what its nearest container says already. */
  readonly entries: readonly SetEntry[];
}

export const emptySet = (family: Family): AddressSet => ({ family, entries: [] });

/** The union of the CIDRs of that family; CIDRs of the other family are left out. */
export function setOf(family: Family, cidrs: Iterable<Cidr>): AddressSet {
  const entries: SetEntry[] = [];
  for (const cidr of cidrs) if (cidr.family === family) entries.push({ cidr, nomatch: false });
  entries.sort((a, b) => compareCidrs(a.cidr, b.cidr));
  return { family, entries: prune(entries) };
}

/**
 * Prefixes of which each says whether its addresses are in the set; the longest decides. Of equal prefixes the
 * first given counts. Prefixes of the other family are left out.
 */
export function labelledSet(family: Family, labelled: Iterable<SetEntry>): AddressSet {
  const entries = [...labelled].filter(entry => entry.cidr.family === family);
  entries.sort((a, b) => compareCidrs(a.cidr, b.cidr));
  const distinct = entries.filter(
    (entry, i) => i === 0 || compareCidrs((entries[i - 1] as SetEntry).cidr, entry.cidr) !== 0,
  );
  return { family, entries: prune(distinct) };
}

/** An address is in the union when it is in any of the sets. */
export function union(family: Family, sets: readonly AddressSet[]): AddressSet {
  const filled = sets.filter(set => set.entries.length > 0);
  if (filled.length === 0) return emptySet(family);
  if (filled.length === 1) return filled[0] as AddressSet;
  if (filled.every(set => set.entries.every(entry => !entry.nomatch))) {
    const entries = filled.flatMap(set => set.entries).sort((a, b) => compareCidrs(a.cidr, b.cidr));
    return { family, entries: prune(entries) };
  }
  return combine(family, filled, labels => labels.includes(true));
}

/** An address is in the difference when it is in a and not in b. */
export const subtract = (a: AddressSet, b: AddressSet): AddressSet =>
  a.entries.length === 0 || b.entries.length === 0
    ? a
    : combine(a.family, [a, b], labels => labels[0] === true && labels[1] === false);

/** An address is in the intersection when it is in both. */
export const intersect = (a: AddressSet, b: AddressSet): AddressSet =>
  combine(a.family, [a, b], labels => labels[0] === true && labels[1] === true);

/** How many addresses the set holds: entries alternate with their containers, so they add and take away. */
export function countAddresses(set: AddressSet): bigint {
  let count = 0n;
  for (const { cidr, nomatch } of set.entries) count += nomatch ? -sizeOf(cidr) : sizeOf(cidr);
  return count;
}

export const isEmpty = (set: AddressSet): boolean => countAddresses(set) === 0n;

/** Whether every address of a is in b. */
export const isSubset = (a: AddressSet, b: AddressSet): boolean => isEmpty(subtract(a, b));

/** Whether the address is in the set: the longest entry that contains it says so. */
export function hasAddress(set: AddressSet, address: Address): boolean {
  if (address.family !== set.family) return false;
  const point: Cidr = { family: address.family, base: address.value, prefix: bitsOf(address.family) };
  let low = 0;
  let high = set.entries.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((set.entries[middle] as SetEntry).cidr.base <= address.value) low = middle + 1;
    else high = middle;
  }
  // The last entry that starts at or below the address is the longest that can contain it; if it does not, then
  // only one of its containers can.
  const parents = parentsOf(set);
  for (let i = low - 1; i >= 0; i = parents[i] as number) {
    const entry = set.entries[i] as SetEntry;
    if (containsCidr(entry.cidr, point)) return !entry.nomatch;
  }
  return false;
}

const parentsBySet = new WeakMap<AddressSet, Int32Array>();

/** For each entry the index of its nearest container, or -1; remembered, since sets never change. */
function parentsOf(set: AddressSet): Int32Array {
  const known = parentsBySet.get(set);
  if (known !== undefined) return known;
  const parents = new Int32Array(set.entries.length);
  for (let i = 0; i < parents.length; i++) {
    let parent = i - 1;
    const { cidr } = set.entries[i] as SetEntry;
    while (parent >= 0 && !containsCidr((set.entries[parent] as SetEntry).cidr, cidr)) {
      parent = parents[parent] as number;
    }
    parents[i] = parent;
  }
  parentsBySet.set(set, parents);
  return parents;
}

/** The addresses as inclusive ranges, ascending, with a gap between any two. */
export function rangesOf(set: AddressSet): readonly (readonly [first: bigint, last: bigint])[] {
  const ranges: (readonly [bigint, bigint])[] = [];
  let first: bigint | undefined;
  const turn = (isIn: boolean, at: bigint): void => {
    if (isIn) {
      const touches = ranges.at(-1)?.[1] === at - 1n ? ranges.pop() : undefined;
      first ??= touches?.[0] ?? at;
    } else if (first !== undefined) {
      if (at > first) ranges.push([first, at - 1n]);
      first = undefined;
    }
  };
  // Each entry says the opposite of its nearest container, so that one's answer holds again behind it.
  const open: SetEntry[] = [];
  const close = ({ cidr, nomatch }: SetEntry): void => turn(nomatch, cidr.base + sizeOf(cidr));
  for (const entry of set.entries) {
    while (open.length > 0 && !containsCidr((open[open.length - 1] as SetEntry).cidr, entry.cidr))
      close(open.pop() as SetEntry);
    open.push(entry);
    turn(!entry.nomatch, entry.cidr.base);
  }
  for (const entry of open.toReversed()) close(entry);
  return ranges;
}

/** The entries as hash:net can hold them: a /0 stands as its two halves, unless an entry for a half is there. */
export function storableEntries(set: AddressSet): readonly SetEntry[] {
  const first = set.entries[0];
  if (first === undefined || first.cidr.prefix !== 0) return set.entries;
  const rest = set.entries.slice(1);
  const missing = halves(first.cidr).filter(
    half => !rest.some(entry => entry.cidr.prefix === 1 && entry.cidr.base === half.base),
  );
  const entries = [...missing.map(cidr => ({ cidr, nomatch: first.nomatch })), ...rest];
  return entries.sort((a, b) => compareCidrs(a.cidr, b.cidr));
}

/**
 * Any boolean function of sets, prefix by prefix: the longest prefix of all sets that contains an address is at
 * least as long as the one that decides in each set, so each set has one answer for the whole prefix.
 */
function combine(
  family: Family,
  sets: readonly AddressSet[],
  decide: (labels: readonly boolean[]) => boolean,
): AddressSet {
  const all: { cidr: Cidr; nomatch: boolean; set: number }[] = [];
  sets.forEach((set, index) => {
    for (const { cidr, nomatch } of set.entries) all.push({ cidr, nomatch, set: index });
  });
  all.sort((a, b) => compareCidrs(a.cidr, b.cidr));
  const outside = sets.map(() => false);
  const stack: { cidr: Cidr; labels: readonly boolean[] }[] = [];
  const entries: SetEntry[] = [];
  for (let i = 0; i < all.length; ) {
    const { cidr } = all[i] as { cidr: Cidr };
    while (stack.length > 0 && !containsCidr((stack[stack.length - 1] as { cidr: Cidr }).cidr, cidr))
      stack.pop();
    const labels = [...(stack[stack.length - 1]?.labels ?? outside)];
    for (; i < all.length && compareCidrs((all[i] as { cidr: Cidr }).cidr, cidr) === 0; i++) {
      const entry = all[i] as { nomatch: boolean; set: number };
      labels[entry.set] = !entry.nomatch;
    }
    stack.push({ cidr, labels });
    entries.push({ cidr, nomatch: !decide(labels) });
  }
  return { family, entries: prune(entries) };
}

/**
 * The same set as next, with the entry objects of previous where they are equal (and previous itself where all
 * are), so that whoever compares the two by identity sees only what changed.
 */
export function shareEntries(previous: AddressSet, next: AddressSet): AddressSet {
  let i = 0;
  let shared = 0;
  const entries = next.entries.map(entry => {
    let old = previous.entries[i];
    while (old !== undefined && compareCidrs(old.cidr, entry.cidr) < 0) old = previous.entries[++i];
    if (old === undefined || old.nomatch !== entry.nomatch || !sameCidr(old.cidr, entry.cidr)) return entry;
    shared++;
    return old;
  });
  return shared === previous.entries.length && shared === entries.length ? previous : { ...next, entries };
}

/** Drops, from sorted entries, those that say what their nearest container says already. */
function prune(sorted: readonly SetEntry[]): readonly SetEntry[] {
  const kept: SetEntry[] = [];
  const stack: SetEntry[] = [];
  for (const entry of sorted) {
    while (stack.length > 0 && !containsCidr((stack[stack.length - 1] as SetEntry).cidr, entry.cidr))
      stack.pop();
    if ((stack[stack.length - 1]?.nomatch ?? true) === entry.nomatch) continue;
    stack.push(entry);
    kept.push(entry);
  }
  return kept;
}
