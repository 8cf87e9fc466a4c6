// What has to happen to one set so that it holds what it shall hold. Pure.
import type { Family } from '../cidr/address.ts';
import { temporarySetName } from '../render/names.ts';
import type { KernelEntry, KernelSet } from '../render/tables.ts';
import {
  deltaOfKnown,
  deltaOfPrinted,
  type EntryDelta,
  sizeOfDelta,
  splitDelta,
  widened,
} from './entries.ts';
import {
  deltaLines,
  fillLines,
  isSameHeader,
  isSwappable,
  type ObservedSet,
  type SetHeader,
  wantedHeader,
} from './ipset.ts';

export interface SetChange {
  readonly set: KernelSet;
  readonly kind:
    | 'create'
    /** A few lines in place. */
    | 'delta'
    /** New content aside, then a swap: another size, or more changes than a rewrite has. */
    | 'rewrite'
    /** Something of another type has our name; the kernel swaps no such sets. */
    | 'recreate';
  /** Undefined when the old content is not known entry by entry. */
  readonly delta?: EntryDelta;
  /** Whether the delta may be applied in place: the header is right, and old and new entries fit in together. */
  readonly fits: boolean;
  /** What is there, as a phrase. */
  readonly is: string;
}

/** A rewrite of fewer entries than this is never worth it. */
const SMALL_DELTA = 256;

const isSmall = (delta: EntryDelta, set: KernelSet): boolean =>
  sizeOfDelta(delta) <= Math.max(SMALL_DELTA, set.entries.length / 2);

/** The change that a set needs; undefined when it is as wanted. */
export function changeOfSet(
  family: Family,
  set: KernelSet,
  observed: ObservedSet | undefined,
): SetChange | undefined {
  if (observed === undefined) return { set, kind: 'create', fits: false, is: 'is missing' };
  const wanted = wantedHeader(family, set.maxelem);
  const { header, content } = observed;
  if (!isSwappable(header, wanted)) {
    return { set, kind: 'recreate', fits: false, is: `is of type ${headerText(header)}` };
  }
  const sameHeader = isSameHeader(header, wanted);
  if (content.kind === 'counted') {
    if (sameHeader && content.count === set.entries.length) return undefined;
    return { set, kind: 'rewrite', fits: false, is: `has ${content.count} entries, ${headerText(header)}` };
  }
  const delta =
    content.kind === 'known'
      ? deltaOfKnown(content.entries, set.entries)
      : deltaOfPrinted(family, content.members, set.entries);
  if (delta === undefined) {
    return { set, kind: 'rewrite', fits: false, is: 'has an entry that is not an address or CIDR' };
  }
  if (sameHeader && sizeOfDelta(delta) === 0) return undefined;
  // Additions come first, so for a moment old and new entries are in the set together.
  const fits = sameHeader && set.entries.length + delta.deletes.length <= set.maxelem;
  const kind = fits && isSmall(delta, set) ? 'delta' : 'rewrite';
  return { set, kind, delta, fits, is: sameHeader ? deltaText(delta) : `is ${headerText(header)}` };
}

/** Whether the change gives some address another answer. */
export const changesContent = (change: SetChange): boolean =>
  change.delta === undefined || sizeOfDelta(change.delta) > 0;

export const headerText = (header: SetHeader): string =>
  [header.type, header.family, `maxelem ${header.maxelem}`, header.extensions].filter(Boolean).join(' ');

function deltaText(delta: EntryDelta): string {
  const parts = [
    listText(
      'lacks',
      delta.adds.filter(entry => !entry.flip),
    ),
    listText('has besides', delta.deletes),
    listText(
      'has with the other nomatch flag',
      delta.adds.filter(entry => entry.flip),
    ),
  ];
  return parts.filter(part => part !== '').join('; ');
}

const SHOWN = 3;

function listText(words: string, entries: readonly KernelEntry[]): string {
  if (entries.length === 0) return '';
  const shown = entries.slice(0, SHOWN).map(entry => `${entry.cidr}${entry.nomatch ? ' nomatch' : ''}`);
  const more = entries.length - shown.length;
  return `${words} ${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** Lines of `ipset restore`, by when they may run. */
export interface SetWork {
  /** Before the rules change. */
  readonly early: readonly string[];
  /** When staged rules look into the temporary set, and nothing into the set itself. */
  readonly middle: readonly string[];
  /** When the final rules are in place. */
  readonly late: readonly string[];
  /** Whether a temporary set is left over, to be destroyed. */
  readonly temporary: boolean;
}

const NO_WORK: SetWork = { early: [], middle: [], late: [], temporary: false };

/** Builds content aside and swaps it in. `leftover`: a temporary set of that name is there and unused. */
function swapLines(family: Family, set: KernelSet, leftover: boolean): readonly string[] {
  const temporary = temporarySetName(set.name);
  return [
    ...(leftover ? [`destroy ${temporary}`] : []),
    ...fillLines(family, set, temporary),
    `swap ${temporary} ${set.name}`,
  ];
}

const recreateLines = (family: Family, set: KernelSet): readonly string[] => [
  `destroy ${set.name}`,
  ...fillLines(family, set),
];

/** The temporary set becomes what staged rules look into, while the set itself is brought to the same content. */
export function stagedWork(family: Family, change: SetChange, leftover: boolean): SetWork {
  const { set, delta, fits } = change;
  const temporary = temporarySetName(set.name);
  return {
    early: [...(leftover ? [`destroy ${temporary}`] : []), ...fillLines(family, set, temporary)],
    middle: fits && delta !== undefined ? deltaLines(set.name, delta) : recreateLines(family, set),
    late: [],
    temporary: true,
  };
}

export interface Surroundings {
  /** A set of the temporary name is there. */
  readonly leftover: boolean;
  /** It is not, or nothing looks into it. */
  readonly free: boolean;
  /** Rules look into the set itself. */
  readonly live: boolean;
}

/** The lines for a set that is changed under its own name. */
export function directWork(family: Family, change: SetChange, around: Surroundings): SetWork {
  const { set, delta } = change;
  const { leftover, free } = around;
  if (change.kind === 'create') return { ...NO_WORK, early: fillLines(family, set) };
  const inPlace = change.kind === 'delta' || (change.fits && !free);
  // A process that died in a staged change left rules that look into the temporary set, and none into this one.
  const abandoned = !inPlace && !free && !around.live;
  if (change.kind === 'recreate' || abandoned) return { ...NO_WORK, early: recreateLines(family, set) };
  if (set.guard && delta !== undefined) return guardWork(family, set, delta, inPlace, leftover);
  if (inPlace && delta !== undefined) return { ...NO_WORK, early: deltaLines(set.name, delta) };
  return { ...NO_WORK, early: swapLines(family, set, leftover), temporary: true };
}

/** A guard holds old and new addresses while anything else changes: it grows before, and shrinks after. */
function guardWork(
  family: Family,
  set: KernelSet,
  delta: EntryDelta,
  inPlace: boolean,
  leftover: boolean,
): SetWork {
  const { widen, narrow } = splitDelta(delta);
  if (inPlace) {
    return { ...NO_WORK, early: deltaLines(set.name, widen), late: deltaLines(set.name, narrow) };
  }
  const entries = widened(set.entries, narrow);
  const maxelem = Math.max(set.maxelem, entries.length);
  const early = swapLines(family, { ...set, entries, maxelem }, leftover);
  const shrinks = maxelem === set.maxelem && isSmall(narrow, set);
  const late = shrinks ? deltaLines(set.name, narrow) : swapLines(family, set, true);
  return { early, middle: [], late, temporary: true };
}
