// Everything that is known of each MasqPolicy, gathered for its status. Pure.
import { isObject, own } from '../api/fields.ts';
import type { Destination, MasqPolicy, PoolSelection } from '../api/model.ts';
import type { RawObject } from '../cluster/api.ts';
import type { Plan } from '../planner/plan.ts';
import type { ClusterPlan, PlannedGroup } from '../planner/plan-cluster.ts';
import type { Problem } from '../planner/problem.ts';
import { poolSelected } from '../planner/resolve.ts';
import { matchesSelector } from '../planner/select.ts';
import { findShadowed } from '../planner/shadow.ts';
import { type NodeTally, sumOf } from './node-states.ts';
import type { PolicyFacts } from './policy-status.ts';
import type { RawObjects, ReadSnapshot, Refused } from './snapshot.ts';

/** policy → rule → what hides it. */
export type Shadows = ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>;

export interface GatheredState {
  readonly read: ReadSnapshot;
  readonly planned: Pick<ClusterPlan, 'groups' | 'problems'>;
  /** Of each group, by its id. */
  readonly tallies: ReadonlyMap<string, NodeTally>;
  readonly shadows: ReadonlyMap<string, Shadows>;
  readonly stale: readonly string[];
}

/** Which rules of one plan are hidden, and by what. It may take long for large plans. */
export function shadowsOf(plan: Plan): Shadows {
  const shadows = new Map<string, Map<string, readonly string[]>>();
  for (const { policy, rule, by } of findShadowed(plan)) {
    const rules = shadows.get(policy) ?? new Map<string, readonly string[]>();
    shadows.set(policy, rules);
    rules.set(
      rule,
      by.map(hider => `${hider.policy}/${'rule' in hider ? hider.rule : 'defaultAction'}`),
    );
  }
  return shadows;
}

/** The facts of every policy in the API, refused ones too, by name. */
export function policyFacts(raw: RawObjects, state: GatheredState): ReadonlyMap<string, PolicyFacts> {
  const accepted = new Map(state.read.snapshot.policies.map(policy => [policy.name, policy]));
  const refused = new Map(
    state.read.refused
      .filter(({ list }) => list === 'policies')
      .map(({ object, faults }) => [object.metadata.name, faults]),
  );
  const brokenPools = state.read.refused.filter(({ list }) => list === 'pools');
  const brokenSets = state.read.refused.filter(({ list }) => list === 'networkSets');
  const groupsOf = byPolicy(state.planned.groups);
  const problemsOf = byName(state.planned.problems);
  return new Map(
    [...raw].map(([name, object]): [string, PolicyFacts] => {
      const policy = accepted.get(name);
      const groups = groupsOf.get(name) ?? [];
      return [
        name,
        {
          generation: generationOf(object),
          policy,
          faults: refused.get(name) ?? [],
          problems: [
            ...(policy === undefined ? [] : brokenReferences(policy, brokenPools, brokenSets)),
            ...(problemsOf.get(name) ?? []),
          ],
          nodes: sumOf(groups.flatMap(({ id }) => state.tallies.get(id) ?? [])),
          shadowed: shadowedEverywhere(name, groups, state.shadows),
          resolved: resolvedOf(policy, groups, state.read),
          stale: state.stale,
        },
      ];
    }),
  );
}

const generationOf = ({ metadata }: RawObject): number | undefined =>
  typeof metadata.generation === 'number' ? metadata.generation : undefined;

function byPolicy(groups: readonly PlannedGroup[]): ReadonlyMap<string, readonly PlannedGroup[]> {
  const found = new Map<string, PlannedGroup[]>();
  for (const group of groups) {
    for (const { name } of group.policies) {
      const mine = found.get(name);
      if (mine === undefined) found.set(name, [group]);
      else mine.push(group);
    }
  }
  return found;
}

function byName(problems: readonly Problem[]): ReadonlyMap<string, readonly Problem[]> {
  const found = new Map<string, Problem[]>();
  for (const problem of problems) {
    if (problem.kind !== 'MasqPolicy') continue;
    const mine = found.get(problem.name);
    if (mine === undefined) found.set(problem.name, [problem]);
    else mine.push(problem);
  }
  return found;
}

/** A rule that decides somewhere is not to be called hidden. */
function shadowedEverywhere(
  policy: string,
  groups: readonly PlannedGroup[],
  shadows: GatheredState['shadows'],
): ReadonlyMap<string, readonly string[]> {
  const [first, ...others] = groups.map(
    group => shadows.get(group.id)?.get(policy) ?? new Map<string, readonly string[]>(),
  );
  return new Map([...(first ?? [])].filter(([rule]) => others.every(other => other.has(rule))));
}

/** Entries of the sets that the policy's selections stand for, each set once. All groups resolve alike. */
function resolvedOf(
  policy: MasqPolicy | undefined,
  [group]: readonly PlannedGroup[],
  { snapshot }: ReadSnapshot,
): PolicyFacts['resolved'] {
  const planned = group?.plan.policies.find(({ name }) => name === policy?.name);
  if (policy === undefined || group === undefined || planned === undefined) {
    return { ipPools: 0, ipv4CIDRs: 0, ipv6CIDRs: 0 };
  }
  const { ipPools } = policy.spec.source;
  const ids = new Set([planned.source, ...planned.rules.flatMap(({ to }) => to ?? [])]);
  const sets = [...ids].map(id => group.plan.sets.get(id)?.addresses);
  const count = (family: 4 | 6): number =>
    sets.reduce((sum, set) => sum + (set?.[family].entries.length ?? 0), 0);
  return {
    ipPools: ipPools === undefined ? 0 : snapshot.pools.filter(pool => poolSelected(ipPools, pool)).length,
    ipv4CIDRs: count(4),
    ipv6CIDRs: count(6),
  };
}

/**
 * A pool or set that cannot be read has no addresses that could be selected. Whoever means it, by name or with "all",
 * must hear of it, or "all" would silently be less.
 */
function brokenReferences(
  { name, spec }: MasqPolicy,
  pools: readonly Refused[],
  sets: readonly Refused[],
): readonly Problem[] {
  const problems: Problem[] = [];
  const tell = (field: string, kind: string, { object, faults }: Refused): void => {
    const fault = faults.map(it => `${it.field}: ${it.reason}`).join('; ');
    const message = `${kind} ${object.metadata.name} cannot be read (${fault}), so its addresses are not selected`;
    problems.push({ severity: 'error', kind: 'MasqPolicy', name, field, reason: `Invalid${kind}`, message });
  };
  const lookAt = (field: string, item: Destination): void => {
    if ('ipPools' in item) {
      for (const pool of pools) if (means(item.ipPools, pool)) tell(`${field}.ipPools`, 'IPPool', pool);
    }
    if ('networkSets' in item) {
      for (const set of sets)
        if (means(item.networkSets, set)) tell(`${field}.networkSets`, 'GlobalNetworkSet', set);
    }
    if ('scope' in item && item.scope === 'ClusterPods') {
      for (const pool of pools) tell(`${field}.scope`, 'IPPool', pool);
    }
  };
  if (spec.source.ipPools !== undefined) lookAt('spec.source', { ipPools: spec.source.ipPools });
  spec.rules.forEach((rule, r) => rule.to?.forEach((item, t) => lookAt(`spec.rules[${r}].to[${t}]`, item)));
  return problems;
}

/** Whether the selection may mean the object; of labels that cannot be read everything is possible. */
function means(selection: Pick<PoolSelection, 'names' | 'selector'>, { object }: Refused): boolean {
  if (selection.names !== undefined && !selection.names.includes(object.metadata.name)) return false;
  const labels = own(object.metadata, 'labels') ?? {};
  if (!isObject(labels) || Object.values(labels).some(value => typeof value !== 'string')) return true;
  return matchesSelector(selection.selector, labels as Readonly<Record<string, string>>);
}
