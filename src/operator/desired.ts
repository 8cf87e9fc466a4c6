// A cluster's plans → the objects that shall be in the API. Pure; equal plans give equal objects, byte for byte.
import { isObject, own } from '../api/fields.ts';
import { API_VERSION, PLAN_LABEL } from '../api/own-group.ts';
import type { RawObject } from '../cluster/api.ts';
import { masqNodeSpec, type MasqPlanSpec, planObjects } from '../planner/plan-objects.ts';
import type { NodeValues, Plan } from '../planner/plan.ts';
import type { ClusterPlan } from '../planner/plan-cluster.ts';
import { digestOf, ownersOf, planDigest } from './sources.ts';

export interface DesiredObject {
  readonly name: string;
  /** The plan that it is a part of, or that the node is pointed at. */
  readonly plan: string;
  /** Of what is compared with the object that is there; sources.ts takes the same of that one. */
  readonly digest: string;
  /** For server-side apply. */
  readonly body: object;
}

export interface DesiredPlan {
  readonly name: string;
  /** Id of the group of nodes that it is for. */
  readonly group: string;
  readonly contentHash: string;
  /** In the order of writing: the first part, which says what belongs together, comes last. */
  readonly parts: readonly DesiredObject[];
  readonly nodes: readonly string[];
}

export interface Desired {
  readonly plans: readonly DesiredPlan[];
  readonly nodes: readonly DesiredObject[];
}

/** What was made of plans and nodes; given back to the next call, what is equal is not encoded again. */
export interface DesiredCache {
  readonly plans: ReadonlyMap<string, { readonly plan: Plan; readonly desired: DesiredPlan }>;
  /** By the Node object, thousands of which stay the same. */
  readonly nodes: WeakMap<RawObject, { readonly values: NodeValues; readonly desired: DesiredObject }>;
}

/**
 * The objects of all groups and nodes. A plan's name says for which group of nodes it is, not what its policies say. `nodes` are the
 * Node objects, each of which owns its MasqNode.
 */
export function desiredObjects(
  { groups, values }: Pick<ClusterPlan, 'groups' | 'values'>,
  nodes: ReadonlyMap<string, RawObject>,
  earlier?: DesiredCache,
): { readonly desired: Desired; readonly cache: DesiredCache } {
  const cache = new Map<string, { plan: Plan; desired: DesiredPlan }>();
  const cachedNodes: DesiredCache['nodes'] = earlier?.nodes ?? new WeakMap();
  const masqNodes: DesiredObject[] = [];
  for (const group of groups) {
    const name = `plan-${group.id}`;
    const kept = earlier?.plans.get(name);
    const members = group.nodes.filter(node => runsApplier(nodes.get(node)));
    const desired =
      kept !== undefined && samePlan(kept.plan, group.plan)
        ? kept.desired
        : desiredPlan(name, group.id, group.plan);
    cache.set(name, { plan: group.plan, desired: { ...desired, nodes: members } });
    for (const node of members) {
      const owner = nodes.get(node);
      if (owner === undefined) continue;
      const own = values.get(node) ?? NO_VALUES;
      let made = cachedNodes.get(owner);
      if (made?.desired.plan !== name || made.values !== own) {
        made = { values: own, desired: masqNodeObject(node, name, own, owner) };
        cachedNodes.set(owner, made);
      }
      masqNodes.push(made.desired);
    }
  }
  return {
    desired: { plans: [...cache.values()].map(entry => entry.desired), nodes: masqNodes },
    cache: { plans: cache, nodes: cachedNodes },
  };
}

const NO_VALUES: NodeValues = new Map();

function desiredPlan(name: string, group: string, plan: Plan): DesiredPlan {
  const specs = planObjects(plan, name);
  return {
    name,
    group,
    contentHash: specs[0]?.contentHash ?? '',
    parts: specs.map(spec => planObject(name, spec)).toReversed(),
    nodes: [],
  };
}

/** Windows has no iptables; its nodes count by their addresses only. A node that does not say is Linux. */
export function runsApplier(node: RawObject | undefined): boolean {
  const labels = node?.metadata['labels'];
  const os = isObject(labels) ? own(labels, 'kubernetes.io/os') : undefined;
  return os === undefined || os === 'linux';
}

export const partName = (plan: string, part: number): string => (part === 0 ? plan : `${plan}-${part}`);

function planObject(plan: string, spec: MasqPlanSpec): DesiredObject {
  const name = partName(plan, spec.part);
  const labels = { [PLAN_LABEL]: plan };
  const body = { apiVersion: API_VERSION, kind: 'MasqPlan', metadata: { name, labels }, spec };
  return { name, plan, digest: planDigest(spec, labels), body };
}

function masqNodeObject(name: string, plan: string, values: NodeValues, node: RawObject): DesiredObject {
  const spec = masqNodeSpec(plan, values);
  const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name, uid: node.metadata.uid }];
  const body = {
    apiVersion: API_VERSION,
    kind: 'MasqNode',
    metadata: { name, ownerReferences },
    spec,
  };
  return { name, plan, digest: digestOf({ spec, owners: ownersOf(ownerReferences) }), body };
}

/** Whether two plans are made of the same objects, which the planner sees to where nothing changed. */
function samePlan(a: Plan, b: Plan): boolean {
  if (a.policies.length !== b.policies.length || a.sets.size !== b.sets.size) return false;
  if (a.policies.some((policy, i) => policy !== b.policies[i])) return false;
  if ([...a.sets].some(([id, set]) => b.sets.get(id) !== set)) return false;
  const rest = ({ policies: _p, sets: _s, ...others }: Plan): string =>
    JSON.stringify(others, (_key, value: unknown) => (typeof value === 'bigint' ? value.toString() : value));
  return rest(a) === rest(b);
}
