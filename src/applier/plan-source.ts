// The plan of this node as the API has it: the node's MasqNode names it, the objects with its label are its parts.
import { isObject, own } from '../api/fields.ts';
import { asksRemoval, MASQ_NODES, MASQ_PLANS, PLAN_LABEL } from '../api/own-group.ts';
import type { Api, RawObject, Resource } from '../cluster/api.ts';
import { createListWatch, type Failing, type ListWatch } from '../cluster/list-watch.ts';
import type { Clock } from '../kernel/clock.ts';
import type { KernelLog } from '../kernel/log.ts';
import { type JoinedPlan, joinPlan } from '../planner/plan-objects.ts';

export interface PlanSourceParts {
  readonly api: Api;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly wallClock: () => number;
  readonly random: () => number;
  readonly log: KernelLog;
  /** Something changed: the plan, the node's values, or whether they can be read. */
  readonly onChange: () => void;
}

export interface PlanSource {
  /** Resolves when the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  state(): SourceState;
}

export interface SourceState {
  /** Undefined while it is not known, or not there. */
  readonly node?: MasqNodeFacts;
  /** The list came, and this node is not in it. */
  readonly noNode: boolean;
  /** Undefined until the parts were listed whole once. */
  readonly plan?: { readonly name: string; readonly generation: number; readonly joined: JoinedPlan };
  /** The parts were never listed, for this reason. */
  readonly unreadable?: { readonly name: string; readonly reason: string };
  readonly failing?: Failing;
}

export interface MasqNodeFacts {
  readonly uid: string;
  /** resourceVersion, as it was seen last. */
  readonly version: string;
  readonly generation: number;
  readonly plan: string;
  /** Somebody asks that this node holds nothing of ours. */
  readonly asksRemoval: boolean;
}

const keptOf = ({ metadata, spec }: RawObject): RawObject => ({
  metadata: { name: metadata.name, uid: metadata.uid, generation: metadata.generation },
  spec,
});

/**
 * The own MasqNode's version stands under a name of its own, since its status is written over the version that was seen
 * last: for it a change of the version is a change.
 */
const keptNode = (object: RawObject): RawObject => {
  const { metadata, spec } = keptOf(object);
  const { resourceVersion } = object.metadata;
  const asked = asksRemoval(own(object.metadata, 'annotations'));
  return { metadata: { ...metadata, version: resourceVersion, asksRemoval: asked }, spec };
};

export function createPlanSource(parts: PlanSourceParts): PlanSource {
  const { nodeName, onChange } = parts;
  const listWatch = (resource: Resource, project: typeof keptOf, then: () => void): ListWatch =>
    createListWatch({ ...parts, resource, project, onChange: then, onHealth: then });
  let followed:
    | { readonly name: string; readonly watch: ListWatch; readonly stop: AbortController }
    | undefined;
  let ending: AbortSignal | undefined;
  const running = new Set<Promise<void>>();
  const join = rememberingJoin();

  const start = (watch: ListWatch, signal: AbortSignal): void => {
    const run = watch.run(signal);
    running.add(run);
    void run.then(() => running.delete(run));
  };

  /** Watches the parts of the plan that the MasqNode names now. */
  const follow = (): void => {
    const name = factsOf(nodes.objects().get(nodeName))?.plan;
    if (name === undefined || name === followed?.name || ending?.aborted !== false) return;
    followed?.stop.abort(new Error('another plan is followed'));
    const stop = new AbortController();
    ending.addEventListener('abort', () => stop.abort(ending?.reason), { once: true, signal: stop.signal });
    const watch = listWatch({ path: MASQ_PLANS, labelSelector: `${PLAN_LABEL}=${name}` }, keptOf, onChange);
    followed = { name, watch, stop };
    start(watch, stop.signal);
  };
  const nodes = listWatch({ path: MASQ_NODES, fieldSelector: `metadata.name=${nodeName}` }, keptNode, () => {
    follow();
    onChange();
  });

  return {
    async run(signal) {
      ending = signal;
      start(nodes, signal);
      await new Promise<void>(resolve => {
        if (signal.aborted) resolve();
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
      await Promise.all(running);
    },
    state() {
      const object = nodes.objects().get(nodeName);
      const node = factsOf(object);
      const { listed, failing = followed?.watch.health().failing } = nodes.health();
      return {
        noNode: listed && node === undefined,
        ...(node === undefined ? {} : { node }),
        ...planOf(node, followed, valuesOf(object), join),
        ...(failing === undefined ? {} : { failing }),
      };
    },
  };
}

const valuesOf = (object: RawObject | undefined): unknown =>
  isObject(object?.['spec']) ? own(object['spec'], 'addresses') : undefined;

function factsOf(object: RawObject | undefined): MasqNodeFacts | undefined {
  if (object === undefined) return undefined;
  const { uid, generation, version } = object.metadata;
  const plan = isObject(object?.['spec']) ? own(object['spec'], 'plan') : undefined;
  if (typeof uid !== 'string' || typeof version !== 'string') return undefined;
  if (typeof plan !== 'string' || !isName(plan)) return undefined;
  const asked = object.metadata['asksRemoval'] === true;
  return {
    uid,
    version,
    generation: typeof generation === 'number' ? generation : 0,
    plan,
    asksRemoval: asked,
  };
}

/** It becomes part of a query. */
const isName = (text: string): boolean => /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/.test(text);

function planOf(
  node: MasqNodeFacts | undefined,
  followed: { readonly name: string; readonly watch: ListWatch } | undefined,
  values: unknown,
  join: typeof joinPlan,
): Pick<SourceState, 'plan' | 'unreadable'> {
  if (node === undefined || followed?.name !== node.plan) return {};
  const { listed, failing } = followed.watch.health();
  if (!listed)
    return failing === undefined ? {} : { unreadable: { name: node.plan, reason: failing.reason } };
  const objects = [...followed.watch.objects().values()];
  const first = objects.find(({ metadata }) => metadata.name === node.plan);
  const generation = first?.metadata.generation;
  const joined = join(
    objects.map(({ spec }) => spec),
    values,
  );
  return {
    plan: { name: node.plan, generation: typeof generation === 'number' ? generation : 0, joined },
  };
}

/** joinPlan, which reads every value of a plan, done again only when there is another plan to read. */
function rememberingJoin(): typeof joinPlan {
  let last:
    | { readonly specs: readonly unknown[]; readonly values: string; readonly joined: JoinedPlan }
    | undefined;
  return (specs, values) => {
    // The own status coming back makes a new object of the values, which are few.
    const text = JSON.stringify(values) ?? '';
    const same =
      last !== undefined &&
      last.values === text &&
      last.specs.length === specs.length &&
      last.specs.every((spec, i) => spec === specs[i]);
    if (last !== undefined && same) return last.joined;
    last = { specs, values: text, joined: joinPlan(specs, values) };
    return last.joined;
  };
}
