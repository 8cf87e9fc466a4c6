// ipset: what it prints about our sets, read; and the lines of `ipset restore` that change them.
//
// All lines of additions and deletions carry -exist: ipset joins consecutive additions to one set into one message,
// with the flag of the first of them (seen with ipset 7.17).
import type { Family } from '../cidr/address.ts';
import { isOwnSet } from '../render/names.ts';
import type { KernelEntry, KernelSet } from '../render/tables.ts';
import { addLine, createLine } from '../render/text.ts';
import type { EntryDelta } from './entries.ts';
import type { KernelError } from './errors.ts';
import { type RunContext, runTool, tryTool } from './run.ts';

export interface SetHeader {
  readonly type: string;
  /** inet, inet6, or empty for types without one. */
  readonly family: string;
  readonly maxelem: number;
  /** Extensions that our sets never have (timeout, counters, …), as printed. */
  readonly extensions: string;
}

export type SetContent =
  /** Members as `ipset save` prints them, in no order. */
  | { readonly kind: 'printed'; readonly members: readonly string[] }
  /** What we wrote ourselves, in compareCidrs order. */
  | { readonly kind: 'known'; readonly entries: readonly KernelEntry[] }
  | { readonly kind: 'counted'; readonly count: number };

export interface ObservedSet {
  readonly header: SetHeader;
  readonly content: SetContent;
}

export const IPSET = 'ipset';
export const SET_TYPE = 'hash:net';

/** The name of the address family in ipset's words. */
export const ipsetFamily = (family: Family): string => (family === 4 ? 'inet' : 'inet6');

/** The header that a wanted set has. */
export const wantedHeader = (family: Family, maxelem: number): SetHeader => ({
  type: SET_TYPE,
  family: ipsetFamily(family),
  maxelem,
  extensions: '',
});

/** Whether content can be swapped between sets of these headers: the kernel asks for one type and family. */
export const isSwappable = (a: SetHeader, b: SetHeader): boolean =>
  a.type === b.type && a.family === b.family;

export const isSameHeader = (a: SetHeader, b: SetHeader): boolean =>
  isSwappable(a, b) && a.maxelem === b.maxelem && a.extensions === b.extensions;

/** The names of our sets of one family, temporary ones too. Listing by -n alone works next to unknown set types. */
export async function ownSetNames(context: RunContext, family: Family): Promise<readonly string[]> {
  const names = await runTool(context, IPSET, ['list', '-n']);
  return names.split('\n').filter(name => isOwnSet(name, family));
}

/**
 * Reads sets by name: the content of `whole`, header and number of entries of `counted`. One process for each list;
 * all names must exist.
 */
export async function readSets(
  context: RunContext,
  whole: readonly string[],
  counted: readonly string[],
): Promise<Map<string, ObservedSet>> {
  const sets = new Map<string, ObservedSet>();
  // Both in one process is not possible: the first command decides how all of them print.
  if (whole.length > 0) {
    const input = whole.map(name => `save ${name}\n`).join('');
    parseSave(await runTool(context, IPSET, ['restore'], input), sets);
  }
  if (counted.length > 0) {
    const input = counted.map(name => `list -t ${name}\n`).join('');
    parseList(await runTool(context, IPSET, ['restore'], input), sets);
  }
  return sets;
}

/** Parses the output of `ipset save` into `sets`. */
export function parseSave(text: string, sets: Map<string, ObservedSet>): void {
  let members: string[] = [];
  let skip = 0;
  for (const line of text.split('\n')) {
    if (line.startsWith('add ')) members.push(line.slice(skip).trimEnd());
    else if (line.startsWith('create ')) {
      const [, name = '', type = '', ...options] = line.trimEnd().split(' ');
      members = [];
      skip = 'add '.length + name.length + 1;
      sets.set(name, { header: headerOf(type, options), content: { kind: 'printed', members } });
    }
  }
}

/** Parses the output of `ipset list -t` into `sets`. */
export function parseList(text: string, sets: Map<string, ObservedSet>): void {
  let name = '';
  let type = '';
  let header = headerOf('', []);
  for (const line of text.split('\n')) {
    const colon = line.indexOf(': ');
    const value = line.slice(colon + 2).trimEnd();
    if (line.startsWith('Name: ')) name = value;
    else if (line.startsWith('Type: ')) type = value;
    else if (line.startsWith('Header: ')) header = headerOf(type, value.split(' '));
    else if (line.startsWith('Number of entries: ')) {
      sets.set(name, { header, content: { kind: 'counted', count: Number(value) } });
    }
  }
}

/** Options that are the kernel's own affair, with a value each. The size of the hash grows by itself. */
const NEUTRAL_OPTIONS: ReadonlySet<string> = new Set(['hashsize', 'bucketsize', 'initval']);

function headerOf(type: string, options: readonly string[]): SetHeader {
  let family = '';
  let maxelem = 0;
  const extensions: string[] = [];
  for (let i = 0; i < options.length; i++) {
    const option = options[i] as string;
    const value = options[i + 1] ?? '';
    if (option === 'family') family = value;
    else if (option === 'maxelem') maxelem = Number(value);
    else if (!NEUTRAL_OPTIONS.has(option)) {
      extensions.push(option);
      continue;
    }
    i++;
  }
  return { type, family, maxelem, extensions: extensions.join(' ') };
}

/** Creates a set and fills it, under another name when one is given. */
export const fillLines = (family: Family, set: KernelSet, name = set.name): string[] => [
  createLine(set, family, name),
  ...set.entries.map(entry => addLine(name, entry)),
];

/** The lines of a delta, in its order. */
export const deltaLines = (name: string, delta: EntryDelta): string[] => [
  ...delta.adds.map(entry => addLine(name, entry)),
  ...delta.deletes.map(entry => `del ${name} ${entry.cidr} -exist`),
];

export interface DestroyFailure {
  readonly name: string;
  readonly error: KernelError;
}

/**
 * Destroys sets; one that cannot be destroyed does not keep the others. ipset stops at the first line that fails,
 * so it is started again behind it.
 */
export async function destroySets(
  context: RunContext,
  names: readonly string[],
): Promise<readonly DestroyFailure[]> {
  const failures: DestroyFailure[] = [];
  for (let at = 0; at < names.length; ) {
    const rest = names.slice(at);
    const outcome = await tryTool(
      context,
      IPSET,
      ['restore'],
      rest.map(name => `destroy ${name}\n`).join(''),
    );
    if (outcome.ok) break;
    const { error } = outcome;
    const failed = rest[(error.line ?? 0) - 1];
    // Without a line nothing is known of any of them.
    if (failed === undefined) return [...failures, ...rest.map(name => ({ name, error }))];
    if (error.kind !== 'missing-set') failures.push({ name: failed, error });
    at += error.line ?? 0;
  }
  return failures;
}
