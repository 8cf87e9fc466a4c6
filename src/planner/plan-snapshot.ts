// From a snapshot of the cluster to the plan of one node. Total: objects that cannot be used as written become
// problems, and everything else is planned.
import type { ClusterNode, MasqPolicy, Snapshot } from '../api/model.ts';
import { compilePolicy } from './compile.ts';
import { missingValueProblems, needsOf, readNode } from './node-values.ts';
import { activePolicies } from './order.ts';
import type { NodeValues, Plan } from './plan.ts';
import { assemble, type PlanOptions, DEFAULT_OPTIONS } from './assemble.ts';
import { effectiveFelix } from './pool-default.ts';
import type { Problem } from './problem.ts';
import { knownNames, referenceProblems, snapshotProblems } from './references.ts';
import { type CachedResolver, createResolver } from './resolve.ts';
import { matchesSelector } from './select.ts';

export interface NodePlan {
  readonly plan: Plan;
  readonly values: NodeValues;
  readonly problems: readonly Problem[];
  /** To be given to the next call, which then computes only what changed. */
  readonly resolver: CachedResolver;
}

/** A node of which nothing is known but its name: it has no labels, so only policies without nodeSelector select it. */
const unknownNode = (name: string): ClusterNode => ({ name, labels: {}, annotations: {}, addresses: [] });

/** The plan of one node. The node need not be in the snapshot; that is a problem only where its labels matter. */
export function planNode(
  snapshot: Snapshot,
  nodeName: string,
  options: PlanOptions = DEFAULT_OPTIONS,
  earlier?: CachedResolver,
): NodePlan {
  const resolver = createResolver(snapshot, earlier);
  const known = snapshot.nodes.find(node => node.name === nodeName);
  const node = known ?? unknownNode(nodeName);
  const all = activePolicies(snapshot.policies);
  const policies = all.filter(policy => matchesSelector(policy.spec.nodeSelector, node.labels));
  const needs = needsOf(policies);
  const { values, faults } = readNode(node, needs);
  const names = knownNames(snapshot);
  return {
    plan: assemble(
      policies.map(compilePolicy),
      effectiveFelix(snapshot.felixConfigs, nodeName),
      options,
      resolver,
    ),
    values,
    problems: [
      ...(known === undefined ? unknownNodeProblems(nodeName, all) : []),
      ...snapshotProblems(snapshot, resolver),
      ...all.flatMap(policy => referenceProblems(policy, names, resolver)),
      ...missingValueProblems(needs, [{ node: nodeName, faults }]),
    ],
    resolver,
  };
}

const unknownNodeProblems = (nodeName: string, policies: readonly MasqPolicy[]): readonly Problem[] =>
  policies.some(policy => policy.spec.nodeSelector !== undefined)
    ? [
        {
          severity: 'warning',
          kind: 'Node',
          name: nodeName,
          field: '',
          reason: 'NodeNotFound',
          message: 'is not among the objects; policies with a nodeSelector are taken not to select it',
        },
      ]
    : [];
