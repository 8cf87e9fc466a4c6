// Wanted state → the input of `ipset restore` and `iptables-restore --noflush`, as on a host that has nothing of
// ours yet.
import type { Family } from '../cidr/address.ts';
import { ruleText } from './chain.ts';
import type { FamilyTables, KernelChain, KernelEntry, KernelRule, KernelSet } from './tables.ts';

/** Buckets to start with: growing step by step from the default of 1,024 costs a quarter of the time to fill. */
function hashsizeFor(entries: number): number {
  let hashsize = 1024;
  while (hashsize < entries / 2) hashsize *= 2;
  return hashsize;
}

/** The line that makes the set, under another name when one is given (to be swapped in later). */
export const createLine = (set: KernelSet, family: Family, name = set.name): string =>
  `create ${name} hash:net family ${family === 4 ? 'inet' : 'inet6'} hashsize ${hashsizeFor(set.entries.length)} maxelem ${set.maxelem}`;

/** `-exist` makes it right whether the entry is there or not, and sets its nomatch flag anew where it is. */
export const addLine = (name: string, entry: KernelEntry): string =>
  `add ${name} ${entry.cidr}${entry.nomatch ? ' nomatch' : ''} -exist`;

/** Every set with its entries. */
export const ipsetText = (tables: FamilyTables): string =>
  lines(
    tables.sets.flatMap(set => [
      createLine(set, tables.family),
      ...set.entries.map(entry => addLine(set.name, entry)),
    ]),
  );

/** Declares a chain, which makes it or empties it. */
export const declareLine = (chain: string): string => `:${chain} - [0:0]`;

export const appendLines = (chain: KernelChain): readonly string[] =>
  chain.rules.map(rule => `-A ${chain.name} ${ruleText(rule)}`);

export const insertJumpLine = (jump: KernelRule): string => `-I POSTROUTING 1 ${ruleText(jump)}`;

/** Our chains and the jump to them, one transaction. */
export const iptablesText = (tables: FamilyTables): string =>
  natTransaction([
    ...tables.chains.map(chain => declareLine(chain.name)),
    ...tables.chains.flatMap(appendLines),
    insertJumpLine(tables.jump),
  ]);

/** The lines as one transaction of table nat. */
export const natTransaction = (body: readonly string[]): string => lines(['*nat', ...body, 'COMMIT']);

const lines = (all: readonly string[]): string => all.map(line => `${line}\n`).join('');
