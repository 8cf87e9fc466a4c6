// The difference between what a set holds and what it shall hold, and the order in which it may be applied while
// packets are looked up. Pure.
//
// The order: additions (changes of the nomatch flag are additions) longest prefix first, then deletions shortest
// prefix first. Let o be the longest old and n the longest new entry that contains an address. Until n is added no
// longer new entry contains the address, so o answers; after that the longer of o and n answers. If that is o, then
// o goes away, and as the last of the old entries around the address, so n answers from then on. Each address thus
// goes from its old to its new answer in one step, and one whose answer stays is never misjudged.
import { type Family, parseAddress } from '../cidr/address.ts';
import { compareCidrs, formatCidr, parseCidr } from '../cidr/cidr.ts';
import type { KernelEntry } from '../render/tables.ts';

export interface AddedEntry extends KernelEntry {
  /** The CIDR is in the set with the other nomatch flag. */
  readonly flip: boolean;
}

export interface EntryDelta {
  /** In the order in which they are to be added. */
  readonly adds: readonly AddedEntry[];
  /** In the order in which they are to be deleted, after the additions. */
  readonly deletes: readonly KernelEntry[];
}

export const EMPTY_DELTA: EntryDelta = { adds: [], deletes: [] };

export const sizeOfDelta = (delta: EntryDelta): number => delta.adds.length + delta.deletes.length;

const prefixOf = (cidr: string): number => Number(cidr.slice(cidr.indexOf('/') + 1));

function ordered(adds: AddedEntry[], deletes: KernelEntry[]): EntryDelta {
  if (adds.length + deletes.length === 0) return EMPTY_DELTA;
  adds.sort((a, b) => prefixOf(b.cidr) - prefixOf(a.cidr));
  deletes.sort((a, b) => prefixOf(a.cidr) - prefixOf(b.cidr));
  return { adds, deletes };
}

/**
 * The delta between two wanted contents, both in compareCidrs order. Entries that are one object are equal, so one
 * entry more in 100,000 costs a walk and no parsing.
 */
export function deltaOfKnown(old: readonly KernelEntry[], wanted: readonly KernelEntry[]): EntryDelta {
  if (old === wanted) return EMPTY_DELTA;
  const adds: AddedEntry[] = [];
  const deletes: KernelEntry[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < wanted.length) {
    const a = old[i];
    const b = wanted[j];
    const order = a === b ? 0 : a === undefined ? 1 : b === undefined ? -1 : compareTexts(a.cidr, b.cidr);
    if (order === 0 && a?.nomatch !== b?.nomatch) adds.push({ ...(b as KernelEntry), flip: true });
    if (order < 0) deletes.push(a as KernelEntry);
    if (order > 0) adds.push({ ...(b as KernelEntry), flip: false });
    if (order <= 0) i++;
    if (order >= 0) j++;
  }
  return ordered(adds, deletes);
}

function compareTexts(a: string, b: string): number {
  if (a === b) return 0;
  const left = parseCidr(a);
  const right = parseCidr(b);
  if (!left.ok || !right.ok) throw new Error(`set entries ${a} and ${b} are not canonical CIDRs`);
  return compareCidrs(left.value, right.value);
}

/**
 * The delta between a set as `ipset save` prints it and its wanted content; undefined when a printed member is
 * nothing that we can parse, so that only new content as a whole is sure.
 */
export function deltaOfPrinted(
  family: Family,
  printed: readonly string[],
  wanted: readonly KernelEntry[],
): EntryDelta | undefined {
  const missing = new Map(wanted.map(entry => [entry.cidr, entry]));
  const adds: AddedEntry[] = [];
  const deletes: KernelEntry[] = [];
  for (const member of printed) {
    const nomatch = member.endsWith(NOMATCH);
    const text = nomatch ? member.slice(0, -NOMATCH.length) : member;
    let cidr: string | undefined = text.includes('/') ? text : `${text}/${family === 4 ? 32 : 128}`;
    let entry = missing.get(cidr);
    if (entry === undefined) {
      cidr = canonical(family, cidr);
      if (cidr === undefined) return undefined;
      entry = missing.get(cidr);
    }
    if (entry === undefined) deletes.push({ cidr, nomatch });
    else if (entry.nomatch !== nomatch) adds.push({ ...entry, flip: true });
    missing.delete(cidr);
  }
  for (const entry of missing.values()) adds.push({ ...entry, flip: false });
  return ordered(adds, deletes);
}

const NOMATCH = ' nomatch';

/** ipset prints IPv6 by inet_ntop, which writes ::102:304 as ::1.2.3.4. */
function canonical(family: Family, cidr: string): string | undefined {
  const hexadecimal = cidr.replace(/:(\d+\.\d+\.\d+\.\d+)\//, (_, dotted: string) => {
    const address = parseAddress(dotted);
    if (!address.ok) return `:${dotted}/`;
    const { value } = address.value;
    return `:${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}/`;
  });
  const parsed = parseCidr(hexadecimal);
  return parsed.ok && parsed.value.family === family ? formatCidr(parsed.value) : undefined;
}

/**
 * The part of a delta that only puts addresses into the set, and the part that only takes some away; in between, the
 * set holds all that it held before and all that it shall hold. That is what a guard needs.
 */
export function splitDelta(delta: EntryDelta): { readonly widen: EntryDelta; readonly narrow: EntryDelta } {
  return {
    widen: {
      adds: delta.adds.filter(entry => !entry.nomatch),
      deletes: delta.deletes.filter(entry => entry.nomatch),
    },
    narrow: {
      adds: delta.adds.filter(entry => entry.nomatch),
      deletes: delta.deletes.filter(entry => !entry.nomatch),
    },
  };
}

/** The content between the two parts, from the wanted content and the narrowing part. */
export function widened(wanted: readonly KernelEntry[], narrow: EntryDelta): readonly KernelEntry[] {
  if (sizeOfDelta(narrow) === 0) return wanted;
  const late = new Map(narrow.adds.map(entry => [entry.cidr, entry]));
  const content: KernelEntry[] = [];
  for (const entry of wanted) {
    const change = late.get(entry.cidr);
    if (change === undefined) content.push(entry);
    else if (change.flip) content.push({ cidr: entry.cidr, nomatch: false });
  }
  return [...content, ...narrow.deletes];
}
