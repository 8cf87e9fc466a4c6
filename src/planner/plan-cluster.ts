// From a snapshot of the cluster to the plans of all its groups of nodes. Give the last call's cache back and an
// incremental change costs what it changes, whatever the number of nodes and policies.
import type { ClusterNode, MasqPolicy, Snapshot } from '../api/model.ts';
import { assemble, DEFAULT_OPTIONS, type PlanOptions } from './assemble.ts';
import { type CompiledPolicy, compilePolicy } from './compile.ts';
import { groupNodes, type NodeGroup, type SelectionCache } from './group.ts';
import { missingValueProblems, needsOf, type NodeReading, readNode } from './node-values.ts';
import { activePolicies } from './order.ts';
import type { NodeValues, Plan } from './plan.ts';
import { effectiveFelix } from './pool-default.ts';
import type { Problem } from './problem.ts';
import { knownNames, referenceProblems, snapshotProblems } from './references.ts';
import { type CachedResolver, createResolver } from './resolve.ts';

export interface ClusterPlan {
  readonly groups: readonly PlannedGroup[];
  /** For every node by name: the values that its plan asks of it. Nodes of which nothing is asked are left out. */
  readonly values: ReadonlyMap<string, NodeValues>;
  readonly problems: readonly Problem[];
  readonly cache: PlannerCache;
}

export interface PlannedGroup extends NodeGroup {
  readonly plan: Plan;
}

export interface PlannerCache {
  readonly resolver: CachedResolver;
  readonly selection: SelectionCache;
  readonly compiled: WeakMap<MasqPolicy, CompiledPolicy>;
  readonly readings: WeakMap<ClusterNode, KeptReading>;
  readonly snapshot: Snapshot;
  readonly problems: readonly Problem[];
}

/** The plans of all groups. Objects that did not change since `earlier` must be the same objects to profit from it. */
export function planCluster(
  snapshot: Snapshot,
  options: PlanOptions = DEFAULT_OPTIONS,
  earlier?: PlannerCache,
): ClusterPlan {
  const resolver = createResolver(snapshot, earlier?.resolver);
  const compiled = earlier?.compiled ?? new WeakMap<MasqPolicy, CompiledPolicy>();
  const compile = (policy: MasqPolicy): CompiledPolicy => {
    let known = compiled.get(policy);
    if (known === undefined) {
      known = compilePolicy(policy);
      compiled.set(policy, known);
    }
    return known;
  };
  const policies = activePolicies(snapshot.policies);
  const { groups, cache: selection } = groupNodes(
    snapshot.nodes,
    policies,
    snapshot.felixConfigs,
    earlier?.selection,
  );
  const problems = objectProblems(snapshot, policies, resolver, earlier);
  const readings = earlier?.readings ?? new WeakMap<ClusterNode, KeptReading>();
  const perNode = readNodes(snapshot.nodes, groups, readings);
  return {
    groups: groups.map(group => ({
      ...group,
      plan: assemble(
        group.policies.map(compile),
        effectiveFelix(snapshot.felixConfigs, group.nodes[0] ?? ''),
        options,
        resolver,
      ),
    })),
    values: perNode.values,
    problems: [...problems, ...perNode.problems],
    cache: { resolver, selection, compiled, readings, snapshot, problems },
  };
}

/** Nodes, which change most often, have a say in these problems only by their addresses. */
function objectProblems(
  snapshot: Snapshot,
  policies: readonly MasqPolicy[],
  resolver: CachedResolver,
  earlier: PlannerCache | undefined,
): readonly Problem[] {
  const before = earlier?.snapshot;
  if (
    before !== undefined &&
    before.pools === snapshot.pools &&
    before.networkSets === snapshot.networkSets &&
    before.policies === snapshot.policies &&
    before.felixConfigs === snapshot.felixConfigs &&
    before.nodes === snapshot.nodes
  ) {
    return earlier?.problems ?? [];
  }
  const names = knownNames(snapshot);
  return [
    ...snapshotProblems(snapshot, resolver),
    ...policies.flatMap(policy => referenceProblems(policy, names, resolver)),
  ];
}

/** What was read of a node, and for which needs (their keys in order). */
interface KeptReading extends NodeReading {
  readonly keys: string;
}

function readNodes(
  nodes: readonly ClusterNode[],
  groups: readonly NodeGroup[],
  kept: WeakMap<ClusterNode, KeptReading>,
): { readonly values: ReadonlyMap<string, NodeValues>; readonly problems: readonly Problem[] } {
  const byName = new Map(nodes.map(node => [node.name, node]));
  const values = new Map<string, NodeValues>();
  const problems = groups.flatMap(group => {
    const needs = needsOf(group.policies);
    if (needs.length === 0) return [];
    const keys = JSON.stringify(needs.map(({ key }) => key));
    const readings = group.nodes.flatMap(name => {
      const node = byName.get(name);
      if (node === undefined) return [];
      let reading = kept.get(node);
      if (reading?.keys !== keys) {
        reading = { keys, ...readNode(node, needs) };
        kept.set(node, reading);
      }
      values.set(name, reading.values);
      return [{ node: name, faults: reading.faults }];
    });
    return missingValueProblems(needs, readings);
  });
  return { values, problems };
}
