// What `status` says of a cluster, from the objects in it. Pure. Nothing in the objects is trusted to be what it should.
import type { RawObject } from '../cluster/api.ts';
import { runsApplier } from '../operator/desired.ts';
import { numberAt, secondsSince, textAt } from './status-fields.ts';
import {
  groupBy,
  hashesOf,
  judgeNode,
  judgePolicy,
  type NodeRow,
  type PlanRow,
  planRows,
  type PolicyRow,
} from './status-rows.ts';

export interface ClusterObjects {
  readonly policies: readonly RawObject[];
  readonly plans: readonly RawObject[];
  readonly masqNodes: readonly RawObject[];
  readonly nodes: readonly RawObject[];
  /** The operator's; undefined when there is none. */
  readonly lease: RawObject | undefined;
  /** GROUP/VERSION of Calico's objects that count; undefined when none is served. */
  readonly calicoGroup: string | undefined;
}

/** What `status -o json` prints; members are only ever added. Troubles are empty where there is none. */
export interface ClusterStatus {
  /** Whether there is no problem. */
  readonly healthy: boolean;
  /** What is degraded, a sentence each; the worst first, and what several objects share once. */
  readonly problems: readonly string[];
  /** What somebody should know and degrades nothing. */
  readonly warnings: readonly string[];
  readonly operator: OperatorState;
  /** null when neither of Calico's groups is served. */
  readonly calicoGroup: string | null;
  readonly totals: Totals;
  /** In the order in which they are asked. */
  readonly policies: readonly PolicyRow[];
  readonly plans: readonly PlanRow[];
  /** Those that were asked for: with trouble, all, or one. */
  readonly nodes: readonly NodeRow[];
}

export interface OperatorState {
  /** Identity of the replica that leads. */
  readonly leader: string | null;
  readonly renewedSecondsAgo: number | null;
  /** Whether it has renewed its Lease in time. */
  readonly fresh: boolean;
}

/** Over all nodes, whichever are listed. */
export interface Totals {
  /** Nodes that shall run an applier. */
  readonly nodes: number;
  readonly ready: number;
  readonly withTrouble: number;
  /** Since the appliers started. */
  readonly driftRepairs: number;
  readonly contended: number;
  readonly overruled: number;
}

/** Where a Lease does not say how long it lasts. */
const LEASE_SECONDS = 15;
/** Names in one sentence. */
const NAMED = 3;

/** Judges them. `now` is in milliseconds of the wall clock. All nodes are in the result. */
export function clusterStatus(objects: ClusterObjects, now: number): ClusterStatus {
  const hashes = hashesOf(objects.plans);
  const expected = new Set(objects.nodes.filter(runsApplier).map(({ metadata }) => metadata.name));
  // A MasqNode goes after its Node, a moment later.
  const masqNodes = objects.masqNodes.filter(({ metadata }) => expected.has(metadata.name));
  const judged = masqNodes.map(node => judgeNode(node, hashes, now));
  const nodes = judged.map(({ row }) => row).toSorted(byName);
  const judgedPolicies = objects.policies.toSorted(asAsked).map(judgePolicy);
  const plans = planRows(objects.plans, judged).toSorted(byName);
  const operator = operatorOf(objects.lease, now);
  const known = new Set(nodes.map(({ name }) => name));
  const nodeFindings = [
    ...findings('node', nodes),
    ...[...expected].filter(name => !known.has(name)).map(name => ({ subject: 'node', name, text: NO_PLAN })),
  ];
  // What policies say of nodes is said once, by the nodes.
  const causes = nodeFindings.length > 0 ? ['own'] : ['own', 'nodes'];
  const policiesWith = (wanted: readonly string[]): readonly PolicyRow[] =>
    judgedPolicies.filter(({ cause }) => wanted.includes(cause ?? '')).map(({ row }) => row);
  const problems = [
    ...operatorProblems(operator),
    ...(objects.calicoGroup === undefined ? [NO_CALICO] : []),
    ...sentences(findings('policy', policiesWith(causes))),
    ...sentences(findings('plan', plans)),
    ...sentences(nodeFindings),
  ];
  return {
    healthy: problems.length === 0,
    problems,
    warnings: sentences(findings('policy', policiesWith(['hint']))),
    operator,
    calicoGroup: objects.calicoGroup ?? null,
    totals: {
      nodes: expected.size,
      ready: nodes.filter(({ ready }) => ready === 'True').length,
      withTrouble: nodeFindings.length,
      driftRepairs: nodes.reduce((sum, node) => sum + node.driftRepairs, 0),
      contended: nodes.filter(({ contended }) => contended).length,
      overruled: nodes.filter(({ overruled }) => overruled).length,
    },
    policies: judgedPolicies.map(({ row }) => row),
    plans,
    nodes,
  };
}

const NO_PLAN = 'the operator has given it no plan';
const NO_CALICO =
  "Calico's IPPools are not served, neither in crd.projectcalico.org/v1 nor in projectcalico.org/v3: nothing is planned";

const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
  a.name < b.name ? -1 : 1;

/** By priority, then age, then name. */
function asAsked(a: RawObject, b: RawObject): number {
  const priority = (policy: RawObject): number => numberAt(policy, 'spec', 'priority') ?? 0;
  const age = (policy: RawObject): string =>
    `${textAt(policy, 'metadata', 'creationTimestamp')} ${policy.metadata.name}`;
  return priority(a) - priority(b) || (age(a) < age(b) ? -1 : 1);
}

function operatorOf(lease: RawObject | undefined, now: number): OperatorState {
  const leader = textAt(lease, 'spec', 'holderIdentity') || null;
  const renewedSecondsAgo = secondsSince(now, lease, 'spec', 'renewTime');
  const lasts = numberAt(lease, 'spec', 'leaseDurationSeconds') ?? LEASE_SECONDS;
  // Twice as long as the lease lasts, since this clock is not the operator's.
  const fresh = leader !== null && renewedSecondsAgo !== null && renewedSecondsAgo <= 2 * lasts;
  return { leader, renewedSecondsAgo, fresh };
}

function operatorProblems({ leader, renewedSecondsAgo, fresh }: OperatorState): readonly string[] {
  if (fresh) return [];
  const why =
    leader === null
      ? 'no operator leads'
      : `operator ${leader} has not renewed its Lease for ${renewedSecondsAgo ?? '?'} s`;
  return [`${why}: changes are not followed, and what is in force stays`];
}

interface Finding {
  readonly subject: string;
  readonly name: string;
  readonly text: string;
}

const findings = (
  subject: string,
  rows: readonly { readonly name: string; readonly trouble: string }[],
): readonly Finding[] =>
  rows.flatMap(({ name, trouble }) => (trouble === '' ? [] : [{ subject, name, text: trouble }]));

const PLURALS: Readonly<Record<string, string>> = { policy: 'policies', plan: 'plans', node: 'nodes' };

/** One sentence for each trouble, whatever the number of objects that have it; what most have comes first. */
function sentences(all: readonly Finding[]): readonly string[] {
  const groups = [...groupBy(all, ({ text }) => text).values()];
  return groups
    .toSorted((a, b) => b.length - a.length)
    .map(group => {
      const { subject = '', text = '' } = group[0] ?? {};
      const names = group.slice(0, NAMED).map(({ name }) => name);
      const more = group.length > NAMED ? ` and ${group.length - NAMED} more` : '';
      return `${group.length === 1 ? subject : PLURALS[subject]} ${names.join(', ')}${more}: ${text}`;
    });
}
