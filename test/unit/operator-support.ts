// A small API server in memory for the operator: objects with versions and uids, watches that lag behind, writes that
// fail. And snapshots as the raw objects that watches keep.
import type { Snapshot } from '../../src/api/model.ts';
import type { RawObject } from '../../src/cluster/api.ts';
import type { Outcome } from '../../src/cluster/apply.ts';
import type { Health } from '../../src/cluster/list-watch.ts';
import { isObject } from '../../src/api/fields.ts';
import { canonicalJson } from '../../src/planner/canonical.ts';
import { joinPlan, type JoinedPlan } from '../../src/planner/plan-objects.ts';
import type { Watched } from '../../src/operator/gather.ts';
import type { RawSnapshot } from '../../src/operator/snapshot.ts';
import { projectOf, type SourceKey } from '../../src/operator/sources.ts';
import type { Write } from '../../src/operator/writes.ts';
import { manifestsOf } from '../oracle/manifests.ts';

export type Plural = Write['plural'];
type Objects = Map<string, RawObject>;

/** As an API server stores and hands it out: plain JSON. */
export const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

const LISTS = {
  IPPool: ['pools', 'pools/v1'],
  GlobalNetworkSet: ['networkSets', 'networkSets/v1'],
  Node: ['nodes', 'nodes'],
  MasqPolicy: ['policies', 'policies'],
  FelixConfiguration: ['felixConfigs', 'felixConfigs/v1'],
} as const satisfies Readonly<Record<string, readonly [keyof Snapshot, SourceKey]>>;

/** What watches would keep of the snapshot's objects; uids tell objects apart, versions do not matter. */
export function rawOf(snapshot: Snapshot): { readonly [K in keyof RawSnapshot]: Objects } {
  const lists = Object.values(LISTS).map(([list]) => [list, new Map<string, RawObject>()] as const);
  const raw = Object.fromEntries(lists) as { [K in keyof RawSnapshot]: Objects };
  // The planner takes an empty list of expressions and "+" as an interface; the author of a policy must not write them.
  const text = JSON.stringify(manifestsOf(snapshot))
    .replaceAll(/,?"matchExpressions":\[\]/g, '')
    .replaceAll('{,', '{')
    .replaceAll('"+"', '"e+"');
  const { items } = JSON.parse(text) as { readonly items: readonly (RawObject & { kind: string })[] };
  for (const item of items) {
    const [list, key] = LISTS[item.kind as keyof typeof LISTS];
    const { name } = item.metadata;
    const metadata = { ...item.metadata, uid: `uid-${name}`, generation: 1, resourceVersion: '1' };
    raw[list].set(name, plain(projectOf(key)({ ...item, metadata })));
  }
  return raw;
}

export const LISTED: Health = { listed: true };
export const ABSENT: Health = { listed: false, failing: { since: 0, kind: 'gone', reason: 'HTTP 404' } };
export const NO_ANSWER: Health = { listed: false };

export interface Fault {
  /** What the server says; 'silent' is no answer, 'lost' is a write that was made and of which no answer came. */
  readonly how: 'conflict' | 'refused' | 'silent' | 'lost';
}

export interface ModelApi {
  readonly stored: { readonly [P in Plural]: Objects };
  /** As the watch shows it, projected; it goes on with show(). */
  readonly shown: { readonly [P in Plural]: Objects };
  show(): void;
  /** As the operator sends it. */
  send(write: Write): Promise<Outcome>;
  /** All writes that were sent. */
  readonly sent: Write[];
  /** Writes by somebody else. */
  put(plural: Plural, name: string, object: object): void;
  remove(plural: Plural, name: string): void;
  /** The plan that the stored objects of a name carry together, as an applier reads it. */
  joined(plan: string, node?: string): JoinedPlan;
}

/** `faultOf` says which writes fail; `onStored` is called after every change. */
export function createModelApi(
  faultOf: (write: Write) => Fault | undefined = () => undefined,
  onStored: (api: ModelApi) => void = () => {},
): ModelApi {
  let version = 100;
  const stored = { masqplans: new Map<string, RawObject>(), masqnodes: new Map<string, RawObject>() };
  const shown = { masqplans: new Map<string, RawObject>(), masqnodes: new Map<string, RawObject>() };
  const sent: Write[] = [];

  const store = (plural: Plural, name: string, content: object): RawObject => {
    const old = stored[plural].get(name);
    const metadata = (content as { metadata?: object }).metadata ?? {};
    const body = { ...(old === undefined ? {} : { status: old['status'] }), ...plain(content) };
    version += 1;
    const uid = old?.metadata.uid ?? `uid-${version}`;
    const same =
      old === undefined ? '' : canonicalJson({ ...old, metadata: { ...old.metadata, resourceVersion: '' } });
    const made: RawObject = plain({ ...body, metadata: { ...metadata, name, uid, resourceVersion: '' } });
    if (old !== undefined && canonicalJson(made) === same) return old;
    const object = { ...made, metadata: { ...made.metadata, resourceVersion: String(version) } };
    stored[plural].set(name, object);
    onStored(api);
    return object;
  };

  const take = (write: Write): Outcome => {
    const objects = stored[write.plural];
    if (write.verb === 'delete') {
      const there = objects.get(write.name);
      if (there !== undefined && there.metadata.uid !== write.uid)
        return { result: 'conflict', message: 'uid' };
      if (objects.delete(write.name)) onStored(api);
      return { result: 'done', object: { metadata: { name: write.name } } };
    }
    const there = objects.get(write.object.name);
    // What is gone is made anew, whatever the version (kube-apiserver 1.36).
    if (write.lock !== undefined && there !== undefined && there.metadata.resourceVersion !== write.lock) {
      return { result: 'conflict', message: 'version' };
    }
    return { result: 'done', object: store(write.plural, write.object.name, write.object.body) };
  };

  const api: ModelApi = {
    stored,
    shown,
    sent,
    show() {
      for (const plural of ['masqplans', 'masqnodes'] as const) {
        const project = projectOf(plural === 'masqplans' ? 'masqPlans' : 'masqNodes');
        for (const name of shown[plural].keys()) if (!stored[plural].has(name)) shown[plural].delete(name);
        for (const [name, object] of stored[plural]) {
          const before = shown[plural].get(name);
          if (before?.metadata['lock'] !== object.metadata.resourceVersion)
            shown[plural].set(name, project(object));
        }
      }
    },
    async send(write) {
      sent.push(write);
      await Promise.resolve();
      const fault = faultOf(write);
      if (fault?.how === 'refused') return { result: 'refused', message: 'the webhook says no' };
      if (fault?.how === 'conflict') return { result: 'conflict', message: 'somebody was faster' };
      if (fault?.how === 'silent') throw new Error('connection refused');
      const outcome = take(write);
      if (fault?.how === 'lost') throw new Error('connection reset');
      return outcome;
    },
    put: (plural, name, object) => void store(plural, name, object),
    remove(plural, name) {
      if (stored[plural].delete(name)) onStored(api);
    },
    joined(plan, node) {
      const parts = [...stored.masqplans.values()].filter(({ metadata }) => {
        const labels = metadata['labels'];
        return isObject(labels) && labels['natoutgoing.io/plan'] === plan;
      });
      const spec = node === undefined ? undefined : stored.masqnodes.get(node)?.['spec'];
      return joinPlan(
        parts.map(part => part['spec']),
        isObject(spec) ? spec['addresses'] : undefined,
      );
    },
  };
  return api;
}

/** The watches of a cluster that reads crd.projectcalico.org/v1, unless `health` says otherwise. */
export function watchedOf(
  raw: { readonly [K in keyof RawSnapshot]: ReadonlyMap<string, RawObject> },
  api: Pick<ModelApi, 'shown'>,
  health: (key: SourceKey) => Health | undefined = () => undefined,
): Watched {
  const lists: { readonly [K in SourceKey]?: ReadonlyMap<string, RawObject> } = {
    policies: raw.policies,
    nodes: raw.nodes,
    masqNodes: api.shown.masqnodes,
    masqPlans: api.shown.masqplans,
    'pools/v1': raw.pools,
    'networkSets/v1': raw.networkSets,
    'felixConfigs/v1': raw.felixConfigs,
  };
  return {
    objects: key => lists[key] ?? new Map<string, RawObject>(),
    health: key => health(key) ?? (lists[key] === undefined ? ABSENT : LISTED),
  };
}
