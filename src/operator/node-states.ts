// What each node's applier says about the plan that its node shall follow. Pure.
import { isObject, own } from '../api/fields.ts';
import type { RawObject } from '../cluster/api.ts';
import type { DesiredPlan } from './desired.ts';

/**
 * programmed: the kernel holds the wanted content. pending: not yet, and nothing is known to be wrong. failed: it
 * cannot, for a reason. Warnings are about a node that does what it shall and has other trouble.
 */
export type NodeState =
  | { readonly state: 'programmed'; readonly warning?: NodeTrouble }
  | { readonly state: 'pending' }
  | { readonly state: 'failed'; readonly trouble: NodeTrouble };

export interface NodeTrouble {
  readonly reason: string;
  readonly message: string;
}

/** Three heartbeats of a healthy applier are at most 54 minutes. */
const SILENT_MS = 60 * 60_000;

/** The nodes of one plan, or of several; lists hold the first few, in the order of names. */
export interface NodeTally {
  readonly desired: number;
  readonly programmed: number;
  readonly failed: number;
  readonly failedNodes: readonly NamedTrouble[];
  readonly warned: number;
  readonly warnings: readonly NamedTrouble[];
}

export interface NamedTrouble extends NodeTrouble {
  readonly name: string;
}

/** How many nodes with a trouble are named; a status has room for as many. */
const NAMED = 16;

/** What the nodes of a plan say. `now` is in milliseconds of the wall clock, against lastVerifiedTime. */
export function tallyOf(
  plan: DesiredPlan,
  masqNodes: ReadonlyMap<string, RawObject>,
  now: number,
): NodeTally {
  let programmed = 0;
  const failed: NamedTrouble[] = [];
  const warned: NamedTrouble[] = [];
  for (const name of plan.nodes) {
    const node = stateOf(masqNodes.get(name), plan.contentHash, now);
    if (node.state === 'failed') failed.push({ name, ...node.trouble });
    if (node.state === 'programmed') programmed += 1;
    if (node.state === 'programmed' && node.warning !== undefined) warned.push({ name, ...node.warning });
  }
  return {
    desired: plan.nodes.length,
    programmed,
    failed: failed.length,
    failedNodes: firstOf(failed),
    warned: warned.length,
    warnings: firstOf(warned),
  };
}

/** Of several plans together. */
export const sumOf = (tallies: readonly NodeTally[]): NodeTally => ({
  desired: sum(tallies.map(it => it.desired)),
  programmed: sum(tallies.map(it => it.programmed)),
  failed: sum(tallies.map(it => it.failed)),
  failedNodes: firstOf(tallies.flatMap(it => it.failedNodes)),
  warned: sum(tallies.map(it => it.warned)),
  warnings: firstOf(tallies.flatMap(it => it.warnings)),
});

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

const firstOf = (troubles: readonly NamedTrouble[]): readonly NamedTrouble[] =>
  troubles.toSorted((a, b) => (a.name < b.name ? -1 : 1)).slice(0, NAMED);

/** What one node's MasqNode says about a plan with that content. */
export function stateOf(object: RawObject | undefined, contentHash: string, now: number): NodeState {
  const status = object?.['status'];
  if (!isObject(status)) return { state: 'pending' };
  const ready = conditionOf(status, 'Ready');
  const verified = Date.parse(String(own(status, 'lastVerifiedTime')));
  if (now - verified > SILENT_MS) {
    const since = new Date(verified).toISOString();
    return {
      state: 'failed',
      trouble: { reason: 'Silent', message: `its applier has not reported since ${since}` },
    };
  }
  if (ready?.status === 'False') return { state: 'failed', trouble: troubleOf(ready) };
  // The hash is of the plan, the generation of the node's own values in it: both must be in force.
  const isCurrent =
    own(status, 'contentHash') === contentHash &&
    own(status, 'observedGeneration') === object?.metadata.generation;
  if (ready?.status !== 'True' || !isCurrent) return { state: 'pending' };
  const warning = ['Contended', 'Overruled']
    .map(type => conditionOf(status, type))
    .find(condition => condition?.status === 'True');
  return warning === undefined
    ? { state: 'programmed' }
    : { state: 'programmed', warning: troubleOf(warning) };
}

const troubleOf = ({ reason, message }: Condition): NodeTrouble => ({ reason, message });

interface Condition extends NodeTrouble {
  readonly status: string;
}

function conditionOf(status: Readonly<Record<string, unknown>>, type: string): Condition | undefined {
  const conditions = own(status, 'conditions');
  if (!Array.isArray(conditions)) return undefined;
  const found = conditions.filter(isObject).find(condition => own(condition, 'type') === type);
  if (found === undefined) return undefined;
  const text = (field: string): string => {
    const value = own(found, field);
    return typeof value === 'string' ? value : '';
  };
  return { status: text('status'), reason: text('reason') || 'Unknown', message: text('message') };
}
