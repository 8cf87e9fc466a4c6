// Finds and removes rules of ours in one backend, whatever they say: jumps, chains, left-overs.
import type { Family } from '../cidr/address.ts';
import { isOwnChain, NAT_OUTGOING_CHAIN, TOP_CHAIN } from '../render/names.ts';
import { jumpRule } from '../render/render.ts';
import { declareLine } from '../render/text.ts';
import { iptablesTool, mayRead, type Toolset } from './backend.ts';
import { KernelError } from './errors.ts';
import { removeChains, runTransaction } from './execute.ts';
import { asPrinted, deleteLine, type Listing, POSTROUTING, type PrintedRule } from './iptables.ts';
import { followChains, hasJump, listTable } from './list-chains.ts';
import type { RunContext } from './run.ts';

export interface OwnRules {
  readonly chains: readonly string[];
  /** Rules of POSTROUTING that lead into a chain of ours. */
  readonly jumps: readonly PrintedRule[];
  /** What could not be looked at, one sentence each. */
  readonly unseen: readonly string[];
}

export interface Failure {
  readonly object: string;
  readonly message: string;
}

const NONE: OwnRules = { chains: [], jumps: [], unseen: [] };

/** Finds them without loading a table. A family whose tool or table is not there has none. Throws KernelError. */
export async function findOwnRules(context: RunContext, tools: Toolset, family: Family): Promise<OwnRules> {
  if (!(await mayRead(context, tools, family, 'nat'))) return NONE;
  let table: Listing | undefined;
  try {
    table = await listTable(context, tools, family);
  } catch (error) {
    if (isAbsence(error)) return NONE;
    throw error;
  }
  if (table !== undefined) return ownRules(table, []);
  const unseen = [
    `${iptablesTool(tools, family)} cannot list table nat whole: chains that nothing leads to may be left`,
  ];
  const followed = await followChains(context, tools, family, [TOP_CHAIN, NAT_OUTGOING_CHAIN]);
  if (followed.has(POSTROUTING)) return ownRules(followed, unseen);
  // A native rule in POSTROUTING hides it; the jump that we write can still be asked for by its text.
  const jump = jumpRule();
  const jumps = (await hasJump(context, tools, family, jump)) ? [asPrinted(POSTROUTING, jump)] : [];
  return ownRules(new Map([...followed, [POSTROUTING, jumps]]), unseen);
}

const isAbsence = (error: unknown): boolean =>
  error instanceof KernelError && (error.kind === 'not-found' || error.kind === 'unsupported');

const ownRules = (listing: Listing, unseen: readonly string[]): OwnRules => ({
  chains: [...listing.keys()].filter(isOwnChain),
  jumps: (listing.get(POSTROUTING) ?? []).filter(rule => isOwnChain(rule.features.target)),
  unseen,
});

/** Names of what there is to remove. */
export const namesOf = (found: OwnRules): readonly string[] => [
  ...found.jumps.map(rule => `rule ${rule.text}`),
  ...found.chains.map(chain => `chain ${chain}`),
];

/**
 * Removes them: jumps first, in one transaction with the emptying of the chains, then the chains. What cannot be
 * removed keeps nothing else.
 */
export async function removeOwnRules(
  context: RunContext,
  tools: Toolset,
  family: Family,
  found: OwnRules,
): Promise<{ readonly removed: readonly string[]; readonly failed: readonly Failure[] }> {
  const removed: string[] = [];
  const failed: Failure[] = [];
  const deletable = found.jumps.filter(rule => deleteLine(rule) !== undefined);
  for (const rule of found.jumps.filter(jump => !deletable.includes(jump))) {
    failed.push({ object: `rule ${rule.text}`, message: 'holds characters that are not written back' });
  }
  const deletions = deletable.map(rule => deleteLine(rule) ?? '');
  if (deletions.length + found.chains.length > 0) {
    const lines = [...found.chains.map(declareLine), ...deletions];
    const outcome = await runTransaction(context, tools, family, lines);
    if (outcome.ok) removed.push(...deletable.map(rule => `rule ${rule.text}`));
    else failed.push({ object: `jumps of ${POSTROUTING}`, message: outcome.error.message });
  }
  const chains = await removeChains(context, tools, family, found.chains);
  removed.push(...chains.removed.map(name => `chain ${name}`));
  failed.push(
    ...chains.failed.map(({ name, error }) => ({ object: `chain ${name}`, message: error.message })),
  );
  return { removed, failed };
}
