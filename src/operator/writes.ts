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
  /** For each plan its changed parts, then its parts too many. */
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
  const others = otherParts(desired, actual);
  const plans = desired.plans
    .map(({ name, parts }) => [
      ...parts.flatMap(part => changed('masqplans', part, actual.masqPlans.get(part.name))),
      // A plan with a part too many is whole for nobody.
      ...(others.get(name) ?? []).map(part => removal('masqplans', part)),
    ])
    .filter(writes => writes.length > 0);
  const nodes = desired.nodes.flatMap(node => {
    const there = actual.masqNodes.get(node.name);
    // A removal that was broken off: whoever leads wants rules, and a new object asks for no removal.
    if (there?.['asksRemoval'] === true) return [removal('masqnodes', there)];
    return changed('masqnodes', node, there);
  });
  return { plans, nodes, removals: removals(desired, actual, others) };
}

type OtherParts = ReadonlyMap<string, readonly RawObject[]>;

/** What is a part of no content any more, by the plan that it says it is of. */
function otherParts(desired: Desired, actual: Actual): OtherParts {
  const wanted = new Set(desired.plans.flatMap(({ parts }) => parts.map(({ name }) => name)));
  const others = new Map<string, RawObject[]>();
  for (const object of actual.masqPlans.values()) {
    if (wanted.has(object.metadata.name)) continue;
    const plan = textOf(object['plan']);
    const known = others.get(plan);
    if (known === undefined) others.set(plan, [object]);
    else known.push(object);
  }
  return others;
}

function removals(desired: Desired, actual: Actual, others: OtherParts): readonly Write[] {
  const wantedNodes = new Set(desired.nodes.map(({ name }) => name));
  const wantedPlans = new Set(desired.plans.map(({ name }) => name));
  const masqNodes = [...actual.masqNodes.values()];
  const inUse = new Set(masqNodes.map(node => planNamed(node['spec'])));
  const nodes = masqNodes.filter(({ metadata }) => !wantedNodes.has(metadata.name));
  const parts = [...others].flatMap(([plan, objects]) =>
    wantedPlans.has(plan) || inUse.has(plan) ? [] : objects,
  );
  return [...nodes.map(node => removal('masqnodes', node)), ...parts.map(part => removal('masqplans', part))];
}

const removal = (plural: 'masqplans' | 'masqnodes', { metadata, plan }: RawObject): Write => ({
  verb: 'delete',
  plural,
  name: metadata.name,
  plan: plural === 'masqplans' ? textOf(plan) : '',
  uid: textOf(metadata.uid),
});

const planNamed = (spec: unknown): string =>
  typeof spec === 'object' && spec !== null && 'plan' in spec ? textOf(spec.plan) : '';
