// A cluster in memory with an operator over it, in time that only a test moves.
import type { RawObject } from '../../src/cluster/api.ts';
import type { Outcome } from '../../src/cluster/apply.ts';
import type { RecordedEvent } from '../../src/cluster/events.ts';
import type { Health } from '../../src/cluster/list-watch.ts';
import type { PolicyStatus } from '../../src/operator/policy-status.ts';
import { createReconciler } from '../../src/operator/reconcile.ts';
import { projectOf, type SourceKey } from '../../src/operator/sources.ts';
import type { Write } from '../../src/operator/writes.ts';
import { DEFAULT_OPTIONS } from '../../src/planner/assemble.ts';
import { recordingLog, virtualClock } from './cluster-fake.ts';
import { createModelApi, type Fault, plain, watchedOf } from './operator-support.ts';

export const POD_RULE = { name: 'a', action: 'Preserve', to: [{ ipBlock: { cidr: '192.0.2.0/24' } }] };

/** A cluster of some nodes, two pools and a policy. */
export function createWorld(nodes = 3) {
  const raw = {
    pools: new Map<string, RawObject>(),
    networkSets: new Map<string, RawObject>(),
    nodes: new Map<string, RawObject>(),
    policies: new Map<string, RawObject>(),
    felixConfigs: new Map<string, RawObject>(),
  };
  const clock = virtualClock();
  const log = recordingLog();
  const health = new Map<SourceKey, Health>();
  const events: RecordedEvent[] = [];
  const statuses: { readonly name: string; readonly status: PolicyStatus }[] = [];
  const failing: { write?: (write: Write) => Fault | undefined; status?: Outcome['result'] | 'silent' } = {};
  const state = { woken: false, version: 1, onStatus: (_name: string): void => {} };
  const api = createModelApi(write => failing.write?.(write));
  const store = (key: SourceKey, list: Map<string, RawObject>, name: string, object: object): void => {
    state.version += 1;
    const metadata = {
      name,
      uid: `uid-${name}`,
      resourceVersion: String(state.version),
      ...(object as { metadata?: object }).metadata,
    };
    list.set(name, projectOf(key)({ ...object, metadata }));
  };
  const world = {
    raw,
    clock,
    log,
    api,
    health,
    events,
    statuses,
    failing,
    state,
    pool: (name: string, spec: object) => store('pools/v1', raw.pools, name, { spec }),
    node: (name: string, labels: object = {}) => store('nodes', raw.nodes, name, { metadata: { labels } }),
    policy(name: string, spec: object, generation = 1) {
      const status = raw.policies.get(name)?.['status'];
      store('policies', raw.policies, name, { metadata: { generation }, spec, status });
    },
    /** What the policy is told at present: status and reason of a condition. */
    told(name: string, type: string): string {
      const status = raw.policies.get(name)?.['status'] as PolicyStatus | undefined;
      const found = status?.conditions.find(condition => condition.type === type);
      return `${found?.status} ${found?.reason}`;
    },
    /** All nodes report that they hold what their plan says. */
    report() {
      for (const [name, object] of api.stored.masqnodes) {
        const { plan } = object['spec'] as { plan: string };
        const joined = api.joined(plan, name);
        const time = new Date(clock.now()).toISOString();
        const ready = { type: 'Ready', status: 'True', reason: 'Programmed', message: 'done' };
        const status = {
          contentHash: joined.ok ? joined.contentHash : '',
          lastVerifiedTime: time,
          conditions: [ready],
        };
        api.put('masqnodes', name, { ...object, status });
      }
      api.show();
    },
  };
  const reconciler = createReconciler({
    watched: watchedOf(raw, api, key => health.get(key)),
    send: write => api.send(write),
    async sendStatus({ name, lock }, status) {
      statuses.push({ name, status });
      await Promise.resolve();
      state.onStatus(name);
      if (failing.status === 'silent') throw new Error('connection refused');
      if (failing.status !== undefined && failing.status !== 'done')
        return { result: failing.status, message: 'no' };
      const old = raw.policies.get(name);
      if (old === undefined) return { result: 'notFound', message: 'gone' };
      if (old.metadata['lock'] !== lock) return { result: 'conflict', message: 'version' };
      store(
        'policies',
        raw.policies,
        name,
        plain({ metadata: { generation: old.metadata.generation }, spec: old['spec'], status }),
      );
      return {
        result: 'done',
        object: {
          ...(raw.policies.get(name) as RawObject),
          metadata: {
            name,
            resourceVersion: String(state.version),
            generation: old.metadata.generation,
            uid: `uid-${name}`,
          },
        },
      };
    },
    record: event => void events.push(event),
    planOptions: DEFAULT_OPTIONS,
    clock,
    wallClock: () => new Date(clock.now()),
    log,
    isWoken: () => state.woken,
    onWrite: () => {},
  });
  const run = (signal = new AbortController().signal) => reconciler.run(signal);
  /** Runs as the loop would, over so much time; how many runs that were. */
  const live = async (ms: number): Promise<number> => {
    const end = clock.now() + ms;
    for (let runs = 1; ; runs += 1) {
      const { againMs } = await run();
      api.show();
      const next = clock.now() + Math.max(againMs ?? Number.POSITIVE_INFINITY, 20);
      await clock.advance(Math.min(next, end) - clock.now());
      if (next >= end) return runs;
    }
  };
  world.pool('blue', { cidr: '10.244.0.0/16', natOutgoing: true });
  world.pool('red', { cidr: '10.245.0.0/16' });
  world.policy('p', { source: { ipPools: {} }, rules: [POD_RULE] });
  for (let i = 0; i < nodes; i += 1) world.node(`n${i}`);
  return { ...world, run, live };
}
