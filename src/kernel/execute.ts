// Carries out a plan: runs its steps, then removes what is not needed any more.
import type { Family } from '../cidr/address.ts';
import type { FamilyTables } from '../render/tables.ts';
import { declareLine, natTransaction } from '../render/text.ts';
import { restoreTool, type Toolset } from './backend.ts';
import type { Step } from './changes.ts';
import { KernelError } from './errors.ts';
import { setsOf } from './iptables.ts';
import { destroySets, IPSET } from './ipset.ts';
import { type Outcome, type RunContext, tryTool, WAIT_ARGS } from './run.ts';

/** Runs one step. Throws KernelError that names the line and the rules that it is for. */
export async function runStep(
  context: RunContext,
  tools: Toolset,
  tables: FamilyTables,
  step: Step,
): Promise<void> {
  const outcome =
    step.tool === 'ipset'
      ? await tryTool(context, IPSET, ['restore'], `${step.lines.join('\n')}\n`)
      : await runTransaction(context, tools, tables.family, step.lines);
  if (!outcome.ok) throw explained(outcome.error, step, tables);
}

/** Lines of table nat that take effect together, or not at all; other chains stay as they are. */
export const runTransaction = (
  context: RunContext,
  tools: Toolset,
  family: Family,
  lines: readonly string[],
): Promise<Outcome> =>
  tryTool(context, restoreTool(tools, family), [...WAIT_ARGS, '--noflush'], natTransaction(lines));

/** Adds to an error about a line of ipset what the set is for: the labels of the rules that look into it. */
function explained(error: KernelError, step: Step, tables: FamilyTables): KernelError {
  if (step.tool !== 'ipset' || error.line === undefined) return error;
  const set = step.lines[error.line - 1]?.split(' ')[1] ?? '';
  const labels = tables.chains
    .flatMap(chain => chain.rules)
    .filter(rule => setsOf(rule).includes(set.replace(/^(masq[46]-)tmp-/, '$1')))
    .map(rule => rule.label);
  if (labels.length === 0) return error;
  const more = labels.length > 3 ? ` and ${labels.length - 3} more` : '';
  const message = `${error.message}; the set is for ${labels.slice(0, 3).join(', ')}${more}`;
  const { tool, args, code, stderr, kind, line } = error;
  return new KernelError(message, { tool, args, code, stderr, kind, line });
}

export interface Removal {
  /** Names of what is gone now. */
  readonly removed: readonly string[];
  readonly failed: readonly { readonly name: string; readonly error: KernelError }[];
  readonly transactions: number;
  readonly setRuns: number;
}

/**
 * Deletes chains that nothing of ours leads to. They are emptied in the same transaction; when that fails (a
 * stranger's rule leads to one of them) each is tried alone, so that one does not keep the others.
 */
export async function removeChains(
  context: RunContext,
  tools: Toolset,
  family: Family,
  names: readonly string[],
): Promise<Removal> {
  if (names.length === 0) return { removed: [], failed: [], transactions: 0, setRuns: 0 };
  const lines = [...names.map(declareLine), ...names.map(name => `-X ${name}`)];
  const outcome = await runTransaction(context, tools, family, lines);
  if (outcome.ok) return { removed: names, failed: [], transactions: 1, setRuns: 0 };
  const [only] = names;
  if (names.length === 1 && only !== undefined) {
    return { removed: [], failed: [{ name: only, error: outcome.error }], transactions: 1, setRuns: 0 };
  }
  const removals: Removal[] = [];
  for (const name of names) removals.push(await removeChains(context, tools, family, [name]));
  return {
    removed: removals.flatMap(({ removed }) => removed),
    failed: removals.flatMap(({ failed }) => failed),
    transactions: removals.reduce((sum, { transactions }) => sum + transactions, 1),
    setRuns: 0,
  };
}

/** Destroys sets that nothing of ours looks into any more. */
export async function removeSets(context: RunContext, names: readonly string[]): Promise<Removal> {
  if (names.length === 0) return { removed: [], failed: [], transactions: 0, setRuns: 0 };
  const failed = await destroySets(context, names);
  const kept = new Set(failed.map(({ name }) => name));
  const removed = names.filter(name => !kept.has(name));
  return { removed, failed, transactions: 0, setRuns: failed.length + 1 };
}
