// What is there against what shall be there → the writes that are needed, in stages. Pure. A node is pointed at a plan
// only after the plan is there, and a plan goes only when no node points at it.
import type { RawObject } from '../cluster/api.ts';
import type { Desired, DesiredObject } from './desired.ts';

export interface Actual {
  readonly masqPlans: ReadonlyMap<string, RawObject>;
  readonly masqNodes: ReadonlyMap<string, RawObject>;
}

export type Write =
  | {
      readonly verb: 'apply';
      readonly plural: 'masqplans' | 'masqnodes';
      readonly object: DesiredObject;
      /** The version that is overwritten; undefined where there is none. */
      readonly lock: string | undefined;
    }
  | {
      readonly verb: 'delete';
      readonly plural: 'masqplans' | 'masqnodes';
      readonly name: string;
      /** The plan of which it is a part; empty for a node. */
      readonly plan: string;
      readonly uid: string;
    };

/** Stages are done one after the other; writes of one stage may go side by side, but those of one plan in order. */
export interface Stages {
  /** For each plan its changed parts. */
  readonly plans: readonly (readonly Write[])[];
  readonly nodes: readonly Write[];
  readonly removals: readonly Write[];
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** The writes that make `actual` into `desired`; none when it is. */
export function writesFor(desired: Desired, actual: Actual): Stages {
  const changed = (
    plural: 'masqplans' | 'masqnodes',
    object: DesiredObject,
    there: RawObject | undefined,
  ): Write[] =>
    there?.['digest'] === object.digest
      ? []
      : [
          {
            verb: 'apply',
            plural,
            object,
            lock: there === undefined ? undefined : textOf(there.metadata['lock']),
          },
        ];
  const plans = desired.plans
    .map(plan => plan.parts.flatMap(part => changed('masqplans', part, actual.masqPlans.get(part.name))))
    .filter(writes => writes.length > 0);
  const nodes = desired.nodes.flatMap(node => changed('masqnodes', node, actual.masqNodes.get(node.name)));
  return { plans, nodes, removals: removals(desired, actual) };
}

function removals(desired: Desired, actual: Actual): readonly Write[] {
  const wantedNodes = new Set(desired.nodes.map(({ name }) => name));
  const wantedParts = new Set(desired.plans.flatMap(({ parts }) => parts.map(({ name }) => name)));
  const wantedPlans = new Set(desired.plans.map(({ name }) => name));
  const inUse = new Set([...actual.masqNodes.values()].map(node => planNamed(node['spec'])));
  const nodes = [...actual.masqNodes.values()].filter(({ metadata }) => !wantedNodes.has(metadata.name));
  const plans = [...actual.masqPlans.values()].filter(object => {
    if (wantedParts.has(object.metadata.name)) return false;
    const plan = textOf(object['plan']);
    // A part too many of a plan that is wanted belongs to no content any more.
    return wantedPlans.has(plan) || !inUse.has(plan);
  });
  const remove =
    (plural: 'masqplans' | 'masqnodes') =>
    ({ metadata, plan }: RawObject): Write => ({
      verb: 'delete',
      plural,
      name: metadata.name,
      plan: plural === 'masqplans' ? textOf(plan) : '',
      uid: textOf(metadata.uid),
    });
  return [...nodes.map(remove('masqnodes')), ...plans.map(remove('masqplans'))];
}

const planNamed = (spec: unknown): string =>
  typeof spec === 'object' && spec !== null && 'plan' in spec ? textOf(spec.plan) : '';
