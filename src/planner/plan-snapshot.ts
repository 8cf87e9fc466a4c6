// From a snapshot of the cluster to the plan of one node, or of every group of nodes. Total: objects that cannot be
// used as written become problems, and everything else is planned.
import type { ClusterNode, FelixConfig, MasqPolicy, PolicyRule, Snapshot } from '../api/model.ts';
import { nodeValues } from './node-values.ts';
import { activePolicies } from './order.ts';
import {
  addressTypeValue,
  annotationValue,
  type NodeValues,
  type Plan,
  type PlanPolicy,
  type PlanRule,
  type PlanSet,
  type PlanSnat,
} from './plan.ts';
import { effectiveFelix, poolDefault } from './pool-default.ts';
import type { Problem } from './problem.ts';
import { referenceProblems, snapshotProblems } from './references.ts';
import { type CachedResolver, createResolver, type Resolver, sourceItems } from './resolve.ts';
import { matchesSelector } from './select.ts';

export interface PlanOptions {
  /** The bit by which kube-proxy marks what it will masquerade (--iptables-masquerade-bit 14 is 0x4000). */
  readonly kubeMark: number;
  readonly tunnelInterfaces: readonly string[];
  /** Whether FelixConfiguration's natOutgoing options are the defaults of step 3. */
  readonly inheritFelix: boolean;
}

export const DEFAULT_OPTIONS: PlanOptions = { kubeMark: 0x4000, tunnelInterfaces: [], inheritFelix: true };

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
  const { values, problems } = nodeValues(node, policies);
  return {
    plan: planPolicies(policies, effectiveFelix(snapshot.felixConfigs, nodeName), options, resolver),
    values,
    problems: [
      ...(known === undefined ? unknownNodeProblems(nodeName, all) : []),
      ...snapshotProblems(snapshot, resolver),
      ...all.flatMap(policy => referenceProblems(policy, snapshot, resolver)),
      ...problems,
    ],
    resolver,
  };
}

/** The plan of the nodes that exactly these policies select, in the order given. */
export function planPolicies(
  policies: readonly MasqPolicy[],
  felix: FelixConfig,
  options: PlanOptions,
  resolver: Resolver,
): Plan {
  const sets = new Map<string, PlanSet>();
  const collecting: Resolver = {
    resolve(items) {
      const set = resolver.resolve(items);
      sets.set(set.id, set);
      return set;
    },
  };
  return {
    policies: policies.map(policy => planPolicy(policy, collecting)),
    poolDefault: poolDefault(collecting, options.inheritFelix ? felix : undefined),
    sets,
    kubeMark: options.kubeMark,
    tunnelInterfaces: options.tunnelInterfaces,
  };
}

const planPolicy = (policy: MasqPolicy, resolver: Resolver): PlanPolicy => ({
  name: policy.name,
  dryRun: policy.spec.enforcementMode === 'DryRun',
  source: resolver.resolve(sourceItems(policy.spec.source)).id,
  rules: policy.spec.rules.map(rule => planRule(rule, resolver)),
  defaultAction: policy.spec.defaultAction,
  connectionPolicy: policy.spec.connectionPolicy,
});

const planRule = (rule: PolicyRule, resolver: Resolver): PlanRule => ({
  name: rule.name,
  ...(rule.to === undefined ? {} : { to: resolver.resolve(rule.to).id }),
  ...(rule.ports === undefined ? {} : { ports: rule.ports }),
  ...(rule.outInterfaces === undefined ? {} : { outInterfaces: rule.outInterfaces }),
  action: rule.action,
  ...(rule.snat === undefined ? {} : { snat: planSnat(rule.snat) }),
  ...(rule.portRange === undefined ? {} : { portRange: rule.portRange }),
  portAllocation: rule.portAllocation,
});

function planSnat(snat: NonNullable<PolicyRule['snat']>): PlanSnat {
  if ('addresses' in snat) return snat;
  return {
    nodeValue:
      'nodeAnnotation' in snat
        ? annotationValue(snat.nodeAnnotation)
        : addressTypeValue(snat.nodeAddressType),
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
