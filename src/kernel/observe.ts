// Reads what the kernel holds of ours, one family at a time. What cannot be read is an error or marked as such, and
// never taken for "nothing there".
import { isOwnChain } from '../render/names.ts';
import type { FamilyTables } from '../render/tables.ts';
import type { Toolset } from './backend.ts';
import { asPrinted, type Listing, POSTROUTING, type PrintedRule } from './iptables.ts';
import { type ObservedSet, ownSetNames, readSets, wantedHeader } from './ipset.ts';
import type { Postrouting } from './jump.ts';
import { followChains, hasJump, listTable } from './list-chains.ts';
import type { RunContext } from './run.ts';

export interface Observed {
  /** Every set of ours by name; undefined for those that are not wanted and were not read. */
  readonly sets: ReadonlyMap<string, ObservedSet | undefined>;
  /** Every chain of ours that was found. */
  readonly chains: Listing;
  readonly postrouting: Postrouting;
}

/** Sets above this many entries are only counted by a light look. */
export const LIGHT_LIMIT = 4096;

export interface Look {
  /** Whether only the numbers of large sets are looked at. */
  readonly light: boolean;
  /** Whether to look for chains that nothing leads to, which costs a listing of the whole table on nft. */
  readonly everyChain: boolean;
  /** Chains to look for beside the wanted ones and those that rules lead to. */
  readonly chains: Iterable<string>;
}

/** Reads the family's part of the kernel, as far as `tables` needs it. Throws KernelError. */
export async function observe(
  context: RunContext,
  tools: Toolset,
  tables: FamilyTables,
  look: Look,
): Promise<Observed> {
  const [sets, listing] = await Promise.all([
    observeSets(context, tables, look.light),
    observeChains(context, tools, tables, look),
  ]);
  const postrouting = await observePostrouting(context, tools, tables, listing.get(POSTROUTING));
  const chains = new Map([...listing].filter(([name]) => isOwnChain(name)));
  return { sets, chains, postrouting };
}

async function observeSets(
  context: RunContext,
  tables: FamilyTables,
  light: boolean,
): Promise<Observed['sets']> {
  const names = await ownSetNames(context, tables.family);
  const present = new Set(names);
  const wanted = tables.sets.filter(set => present.has(set.name));
  const counted = wanted.filter(set => light && set.entries.length > LIGHT_LIMIT).map(set => set.name);
  const whole = wanted.map(set => set.name).filter(name => !counted.includes(name));
  const read = await readSets(context, whole, counted);
  return new Map(names.map(name => [name, read.get(name)]));
}

/** POSTROUTING is missing from the result when iptables cannot list it. */
async function observeChains(
  context: RunContext,
  tools: Toolset,
  tables: FamilyTables,
  look: Look,
): Promise<Listing> {
  const whole = look.everyChain ? await listTable(context, tools, tables.family) : undefined;
  const known = [...tables.chains.map(chain => chain.name), ...look.chains];
  return whole ?? followChains(context, tools, tables.family, known);
}

async function observePostrouting(
  context: RunContext,
  tools: Toolset,
  tables: FamilyTables,
  rules: readonly PrintedRule[] | undefined,
): Promise<Postrouting> {
  if (rules !== undefined) return { readable: true, rules };
  return { readable: false, hasJump: await hasJump(context, tools, tables.family, tables.jump) };
}

/** What `observe` would see after `tables` were put into place and nobody touched them, beside left-overs. */
export function observedOf(tables: FamilyTables, leftovers: Iterable<string>): Observed {
  const sets = tables.sets.map((set): [string, ObservedSet] => [
    set.name,
    {
      header: wantedHeader(tables.family, set.maxelem),
      content: { kind: 'known', entries: set.entries },
    },
  ]);
  return {
    sets: new Map([...[...leftovers].map((name): [string, undefined] => [name, undefined]), ...sets]),
    chains: new Map(
      tables.chains.map(chain => [chain.name, chain.rules.map(rule => asPrinted(chain.name, rule))]),
    ),
    postrouting: { readable: true, rules: [asPrinted(POSTROUTING, tables.jump)] },
  };
}
