// The rows of `status`: what one policy, plan or node says, and what is wrong with it. Pure.
import type { RawObject } from '../cluster/api.ts';
import { type NodeState, stateOf } from '../operator/node-states.ts';
import { at, conditionIn, conditionOf, numberAt, secondsSince, textAt } from './status-fields.ts';

export interface PolicyRow {
  readonly name: string;
  readonly priority: number | null;
  readonly mode: string;
  /** Status of condition Accepted: True, False or Unknown. */
  readonly accepted: string;
  /** PROGRAMMED/DESIRED; - when nothing was said yet. */
  readonly nodes: string;
  /** The first thing that is wrong; empty when there is none. */
  readonly trouble: string;
}

export interface PlanRow {
  readonly name: string;
  /** Parts that are there, and parts that the plan is made of. */
  readonly parts: number;
  readonly of: number;
  readonly contentHash: string;
  readonly nodes: number;
  /** Of these nodes, the ones whose kernel holds the content. */
  readonly programmed: number;
  readonly trouble: string;
}

export interface FamilyCell {
  /** Programmed, Failed, Pending or Unavailable; - when nothing was said yet. */
  readonly state: string;
  /** Place of our jump in nat POSTROUTING, from 1. */
  readonly jumpPosition: number | null;
}

export interface NodeRow {
  readonly name: string;
  readonly plan: string;
  /** Status of condition Ready; Unknown also when the applier has fallen silent. */
  readonly ready: string;
  readonly backend: string;
  readonly ipv4: FamilyCell;
  readonly ipv6: FamilyCell;
  readonly driftRepairs: number;
  readonly verifiedSecondsAgo: number | null;
  readonly contended: boolean;
  /** Rules of others are asked before ours. */
  readonly overruled: boolean;
  readonly trouble: string;
}

/** own: the policy's. nodes: what its nodes say anyway. hint: nothing is degraded by it. */
export type PolicyCause = 'own' | 'nodes' | 'hint';

interface PolicyTrouble {
  readonly cause: PolicyCause;
  readonly text: string;
}

export interface JudgedPolicy {
  readonly row: PolicyRow;
  readonly cause: PolicyCause | undefined;
}

export interface JudgedNode {
  readonly row: NodeRow;
  readonly state: NodeState['state'];
}

/** Reasons of conditions by which the operator repeats what nodes say. */
const FROM_NODES: readonly string[] = ['NodesFailed', 'Contended', 'Overruled', 'Pending'];

const NOT_SAID = { status: 'Unknown', reason: 'Unknown', text: 'it is not said whether it is in force' };

export function judgePolicy(policy: RawObject): JudgedPolicy {
  const trouble = policyTrouble(policy);
  return {
    row: {
      name: policy.metadata.name,
      priority: numberAt(policy, 'spec', 'priority'),
      mode: textAt(policy, 'spec', 'enforcementMode') || '-',
      accepted: conditionOf(policy, 'Accepted')?.status ?? 'Unknown',
      nodes: textAt(policy, 'status', 'nodes', 'summary') || '-',
      trouble: trouble?.text ?? '',
    },
    cause: trouble?.cause,
  };
}

/** The first thing that is wrong; conditions that follow from another one say less. */
function policyTrouble(policy: RawObject): PolicyTrouble | undefined {
  const observed = at(policy, 'status', 'observedGeneration');
  if (observed === undefined) return { cause: 'own', text: 'the operator has said nothing about it yet' };
  if (observed !== policy.metadata.generation)
    return { cause: 'own', text: 'the operator has not looked at its latest change yet' };
  const programmed = conditionOf(policy, 'Programmed') ?? NOT_SAID;
  const inForce = programmed.status === 'True' || programmed.reason === 'Disabled';
  const bad =
    conditionIn(policy, 'Accepted', 'False') ??
    conditionIn(policy, 'ResolvedRefs', 'False') ??
    conditionIn(policy, 'Degraded', 'True') ??
    (inForce ? undefined : programmed);
  if (bad !== undefined) return { cause: FROM_NODES.includes(bad.reason) ? 'nodes' : 'own', text: bad.text };
  const shadowed = conditionIn(policy, 'Conflicted', 'True');
  return shadowed === undefined ? undefined : { cause: 'hint', text: shadowed.text };
}

/** Plan → content hash that its first part names. */
export const hashesOf = (plans: readonly RawObject[]): ReadonlyMap<string, string> =>
  new Map(
    plans
      .filter(plan => at(plan, 'spec', 'part') === 0)
      .map(plan => [textAt(plan, 'spec', 'plan'), textAt(plan, 'spec', 'contentHash')]),
  );

/** `hashes` as above; `now` is in milliseconds of the wall clock. */
export function judgeNode(node: RawObject, hashes: ReadonlyMap<string, string>, now: number): JudgedNode {
  const plan = textAt(node, 'spec', 'plan');
  const state = stateOf(node, hashes.get(plan) ?? '', now);
  const ready = conditionOf(node, 'Ready')?.status ?? 'Unknown';
  const row = {
    name: node.metadata.name,
    plan,
    // Who has fallen silent said so long ago that it was.
    ready: state.state === 'failed' && ready === 'True' ? 'Unknown' : ready,
    backend: textAt(node, 'status', 'backend') || '-',
    ipv4: familyCell(node, 'ipv4'),
    ipv6: familyCell(node, 'ipv6'),
    driftRepairs: numberAt(node, 'status', 'driftRepairs') ?? 0,
    verifiedSecondsAgo: secondsSince(now, node, 'status', 'lastVerifiedTime'),
    contended: conditionIn(node, 'Contended', 'True') !== undefined,
    overruled: conditionIn(node, 'Overruled', 'True') !== undefined,
    trouble: nodeTrouble(node, state, hashes.has(plan)),
  };
  return { row, state: state.state };
}

const familyCell = (node: RawObject, family: 'ipv4' | 'ipv6'): FamilyCell => ({
  state: textAt(node, 'status', 'families', family, 'state') || '-',
  jumpPosition: numberAt(node, 'status', 'families', family, 'jumpPosition'),
});

function nodeTrouble(node: RawObject, state: NodeState, hasPlan: boolean): string {
  if (state.state === 'failed') return `${state.trouble.reason}: ${state.trouble.message}`;
  const ready = conditionOf(node, 'Ready');
  if (ready === undefined) return 'its applier has not reported yet';
  if (!hasPlan) return 'its plan is not there';
  if (ready.status !== 'True') return ready.text;
  if (state.state === 'pending') return 'its kernel does not hold the present plan yet';
  if (state.warning !== undefined) return `${state.warning.reason}: ${state.warning.message}`;
  return conditionIn(node, 'BackendMismatch', 'True')?.text ?? '';
}

/** One row for each plan of which there is a part. */
export function planRows(plans: readonly RawObject[], nodes: readonly JudgedNode[]): readonly PlanRow[] {
  const hashes = hashesOf(plans);
  const parts = groupBy(plans, plan => textAt(plan, 'spec', 'plan'));
  const members = groupBy(nodes, ({ row }) => row.plan);
  return [...parts].map(([name, objects]): PlanRow => {
    const mine = members.get(name) ?? [];
    const first = objects.find(plan => at(plan, 'spec', 'part') === 0);
    const of = numberAt(first, 'spec', 'of') ?? 0;
    // Parts beyond the last are on their way out.
    const there = objects.filter(plan => first === undefined || (numberAt(plan, 'spec', 'part') ?? of) < of);
    return {
      name,
      parts: there.length,
      of,
      contentHash: hashes.get(name) ?? '',
      nodes: mine.length,
      programmed: mine.filter(({ state }) => state === 'programmed').length,
      trouble: partsTrouble(there.length, of, mine.length > 0),
    };
  });
}

/** A plan that no node is pointed at is being written or removed. */
function partsTrouble(there: number, of: number, isUsed: boolean): string {
  if (there === of || !isUsed) return '';
  return of === 0 ? 'its first part is not there' : `only ${there} of its ${of} parts are there`;
}

/** In the order in which the keys come first. */
export function groupBy<T>(
  items: readonly T[],
  keyOf: (item: T) => string,
): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
