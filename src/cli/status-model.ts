// What `status` says of a cluster, from the objects in it. Pure. Nothing in the objects is trusted to be what it should.
import { isObject, own } from '../api/fields.ts';
import type { RawObject } from '../cluster/api.ts';

export interface ClusterObjects {
  readonly policies: readonly RawObject[];
  readonly plans: readonly RawObject[];
  readonly masqNodes: readonly RawObject[];
  readonly nodes: readonly RawObject[];
  readonly lease: RawObject | undefined;
  readonly calicoGroup: string;
}

export interface ClusterStatus {
  readonly healthy: boolean;
  /** What a person should look at, a sentence each; the worst first. */
  readonly problems: readonly string[];
  readonly operator: { readonly leader: string | null; readonly renewedSecondsAgo: number | null };
  readonly calicoGroup: string;
  readonly policies: readonly PolicyRow[];
  readonly plans: readonly PlanRow[];
  readonly nodes: readonly NodeRow[];
  readonly totals: {
    readonly nodes: number;
    readonly ready: number;
    readonly driftRepairs: number;
    readonly contended: number;
  };
}

export interface PolicyRow {
  readonly name: string;
  readonly priority: number | null;
  readonly mode: string;
  readonly accepted: string;
  /** programmed/desired */
  readonly nodes: string;
  /** Empty when there is none. */
  readonly trouble: string;
}

export interface PlanRow {
  readonly name: string;
  readonly parts: number;
  readonly contentHash: string;
  readonly nodes: number;
  /** Of these, the ones whose kernel has it. */
  readonly programmed: number;
}

export interface NodeRow {
  readonly name: string;
  readonly plan: string;
  readonly ready: string;
  readonly backend: string;
  readonly ipv4: string;
  readonly ipv6: string;
  readonly jumpPosition: number | null;
  readonly driftRepairs: number;
  readonly verifiedSecondsAgo: number | null;
  readonly contended: boolean;
  readonly trouble: string;
}

/** Renewed every two seconds, and taken over after fifteen: this long nobody leads. */
const LEASE_STALE_S = 30;

const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((inner, name) => (isObject(inner) ? own(inner, name) : undefined), value);
const textAt = (value: unknown, ...path: readonly string[]): string => {
  const found = at(value, ...path);
  return typeof found === 'string' ? found : '';
};
const numberAt = (value: unknown, ...path: readonly string[]): number | null => {
  const found = at(value, ...path);
  return typeof found === 'number' ? found : null;
};

interface Condition {
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

function conditionOf(object: RawObject, type: string): Condition | undefined {
  const conditions = at(object, 'status', 'conditions');
  const found = Array.isArray(conditions) ? conditions.find(it => textAt(it, 'type') === type) : undefined;
  if (found === undefined) return undefined;
  return {
    status: textAt(found, 'status'),
    reason: textAt(found, 'reason'),
    message: textAt(found, 'message'),
  };
}

/** Judges them. `now` is in milliseconds of the wall clock. */
export function clusterStatus(objects: ClusterObjects, now: number): ClusterStatus {
  const hashes = hashesOf(objects.plans);
  const nodes = objects.masqNodes.map(node => nodeRow(node, hashes, now)).sort(byName);
  const policies = objects.policies.map(policyRow).sort(byName);
  const plans = planRows(objects.plans, nodes, objects.masqNodes);
  const operator = operatorOf(objects.lease, now);
  const named = new Set(nodes.map(({ name }) => name));
  const without = objects.nodes.map(({ metadata }) => metadata.name).filter(name => !named.has(name));
  const problems = [
    ...operatorProblems(operator),
    ...policies.flatMap(({ name, trouble }) => (trouble === '' ? [] : [`policy ${name}: ${trouble}`])),
    ...nodes.flatMap(({ name, trouble }) => (trouble === '' ? [] : [`node ${name}: ${trouble}`])),
    ...(without.length === 0
      ? []
      : [
          `${without.length} nodes have no plan: ${without.slice(0, 5).join(', ')}${without.length > 5 ? ' …' : ''}`,
        ]),
  ];
  return {
    healthy: problems.length === 0,
    problems,
    operator,
    calicoGroup: objects.calicoGroup,
    policies,
    plans,
    nodes,
    totals: {
      nodes: objects.nodes.length,
      ready: nodes.filter(({ ready }) => ready === 'True').length,
      driftRepairs: nodes.reduce((sum, node) => sum + node.driftRepairs, 0),
      contended: nodes.filter(({ contended }) => contended).length,
    },
  };
}

const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
  a.name < b.name ? -1 : 1;

function operatorOf(lease: RawObject | undefined, now: number): ClusterStatus['operator'] {
  const holder = textAt(lease, 'spec', 'holderIdentity');
  const renewed = Date.parse(textAt(lease, 'spec', 'renewTime'));
  return {
    leader: holder === '' ? null : holder,
    renewedSecondsAgo: Number.isNaN(renewed) ? null : Math.max(0, Math.round((now - renewed) / 1000)),
  };
}

function operatorProblems({ leader, renewedSecondsAgo }: ClusterStatus['operator']): readonly string[] {
  if (leader === null) return ['no operator leads: changes are not followed; what is in force stays'];
  if (renewedSecondsAgo === null || renewedSecondsAgo > LEASE_STALE_S) {
    return [
      `the operator ${leader} has not renewed its lease for ${renewedSecondsAgo ?? '?'} s: changes are not followed`,
    ];
  }
  return [];
}

function policyRow(policy: RawObject): PolicyRow {
  const accepted = conditionOf(policy, 'Accepted');
  const summary = textAt(policy, 'status', 'nodes', 'summary');
  return {
    name: policy.metadata.name,
    priority: numberAt(policy, 'spec', 'priority'),
    mode: textAt(policy, 'spec', 'enforcementMode'),
    accepted: accepted?.status ?? 'Unknown',
    nodes: summary === '' ? '-' : summary,
    trouble: policyTrouble(policy),
  };
}

/** The first thing that is wrong; conditions that follow from another one say less. */
function policyTrouble(policy: RawObject): string {
  const observed = at(policy, 'status', 'observedGeneration');
  if (observed === undefined) return 'the operator has said nothing about it yet';
  if (observed !== policy.metadata.generation) return 'the operator has not looked at its latest change yet';
  const bad = (
    [
      ['Accepted', 'False'],
      ['ResolvedRefs', 'False'],
      ['Degraded', 'True'],
      ['Conflicted', 'True'],
    ] as const
  ).flatMap(([type, status]) => {
    const condition = conditionOf(policy, type);
    return condition?.status === status ? [`${condition.reason}: ${condition.message}`] : [];
  });
  if (bad[0] !== undefined) return bad[0];
  const programmed = conditionOf(policy, 'Programmed');
  const off = programmed?.reason === 'Disabled';
  return programmed?.status === 'True' || off
    ? ''
    : `${programmed?.reason ?? 'Pending'}: ${programmed?.message ?? ''}`;
}

/** Plan → content hash that its first part names. */
const hashesOf = (plans: readonly RawObject[]): ReadonlyMap<string, string> =>
  new Map(
    plans
      .filter(plan => at(plan, 'spec', 'part') === 0)
      .map(plan => [textAt(plan, 'spec', 'plan'), textAt(plan, 'spec', 'contentHash')]),
  );

function nodeRow(node: RawObject, hashes: ReadonlyMap<string, string>, now: number): NodeRow {
  const ready = conditionOf(node, 'Ready');
  const plan = textAt(node, 'spec', 'plan');
  const verified = Date.parse(textAt(node, 'status', 'lastVerifiedTime'));
  return {
    name: node.metadata.name,
    plan,
    ready: ready?.status ?? 'Unknown',
    backend: textAt(node, 'status', 'backend') || '-',
    ipv4: textAt(node, 'status', 'families', 'ipv4', 'state') || '-',
    ipv6: textAt(node, 'status', 'families', 'ipv6', 'state') || '-',
    jumpPosition: numberAt(node, 'status', 'families', 'ipv4', 'jumpPosition'),
    driftRepairs: numberAt(node, 'status', 'driftRepairs') ?? 0,
    verifiedSecondsAgo: Number.isNaN(verified) ? null : Math.max(0, Math.round((now - verified) / 1000)),
    contended: conditionOf(node, 'Contended')?.status === 'True',
    trouble: nodeTrouble(node, ready, hashes.get(plan)),
  };
}

function nodeTrouble(node: RawObject, ready: Condition | undefined, hash: string | undefined): string {
  if (ready === undefined) return 'its applier has not reported yet';
  if (ready.status !== 'True') return `${ready.reason}: ${ready.message}`;
  if (hash === undefined) return 'its plan is not there';
  if (textAt(node, 'status', 'contentHash') !== hash) return 'its kernel does not hold the present plan yet';
  for (const type of ['Contended', 'BackendMismatch']) {
    const condition = conditionOf(node, type);
    if (condition?.status === 'True') return `${condition.reason}: ${condition.message}`;
  }
  return '';
}

function planRows(
  plans: readonly RawObject[],
  rows: readonly NodeRow[],
  masqNodes: readonly RawObject[],
): readonly PlanRow[] {
  const hashes = hashesOf(plans);
  const inKernel = new Map(
    masqNodes.map(node => [node.metadata.name, textAt(node, 'status', 'contentHash')]),
  );
  return [...hashes]
    .map(([name, contentHash]): PlanRow => {
      const mine = rows.filter(({ plan }) => plan === name);
      return {
        name,
        parts: plans.filter(plan => textAt(plan, 'spec', 'plan') === name).length,
        contentHash,
        nodes: mine.length,
        programmed: mine.filter(row => row.ready === 'True' && inKernel.get(row.name) === contentHash).length,
      };
    })
    .sort(byName);
}
