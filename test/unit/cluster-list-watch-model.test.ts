// Whatever a server does to its clients, what is known becomes what is there, and each step of it is told once.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type ApiAnswer, type ApiRequest, ApiError, type RawObject } from '../../src/cluster/api.ts';
import { type Change, createListWatch } from '../../src/cluster/list-watch.ts';
import { silentLog } from '../../src/kernel/log.ts';
import {
  bookmark,
  event,
  fakeApi,
  type FakeWatch,
  listOf,
  noAnswer,
  queryOfPath,
  refusal,
  virtualClock,
} from './cluster-fake.ts';

interface Happening {
  readonly version: number;
  readonly event: unknown;
}

/** A collection with its history, paged lists as of one version, and watches from any version that it remembers. */
function modelServer() {
  let version = 1;
  let forgotten = 0;
  let uids = 0;
  let objects = new Map<string, RawObject>();
  const history: Happening[] = [];
  const watches = new Map<FakeWatch, number>();
  const snapshots = new Map<string, { readonly version: number; readonly items: readonly RawObject[] }>();
  let fault: 'none' | 'no answer' | 'refusal' = 'none';

  const happened = (type: string, object: RawObject): void => {
    history.push({ version, event: event(type, object) });
    deliver();
  };
  const deliver = (): void => {
    for (const [watch, from] of watches) {
      if (watch.over) watches.delete(watch);
      const news = history.filter(it => it.version > from);
      if (news.length === 0) continue;
      watch.send(...news.map(it => it.event));
      watches.set(watch, version);
    }
  };
  const made = (name: string, uid: unknown, value: number): RawObject => ({
    metadata: { name, uid, resourceVersion: String(version) },
    spec: value,
  });
  const answer = ({ path }: ApiRequest): ApiAnswer => {
    if (fault === 'no answer') throw noAnswer();
    if (fault === 'refusal') return refusal(503);
    const { limit, continue: token } = queryOfPath(path);
    const [key = '', at = '0'] = (token ?? '').split('/');
    const snapshot = token === undefined ? { version, items: [...objects.values()] } : snapshots.get(key);
    if (snapshot === undefined || (token !== undefined && snapshot.version < forgotten)) return refusal(410);
    const next = Number(at) + Number(limit);
    snapshots.set(String(snapshot.version), snapshot);
    const more = next < snapshot.items.length ? `${snapshot.version}/${next}` : '';
    return listOf(snapshot.version, snapshot.items.slice(Number(at), next), more);
  };
  return {
    names: () => objects,
    put(name: string, value: number) {
      version += 1;
      const old = objects.get(name);
      const object = made(name, old?.metadata.uid ?? `uid-${++uids}`, value);
      objects = new Map(objects).set(name, object);
      happened(old === undefined ? 'ADDED' : 'MODIFIED', object);
    },
    remove(name: string) {
      const old = objects.get(name);
      if (old === undefined) return;
      version += 1;
      objects = new Map([...objects].filter(([it]) => it !== name));
      happened('DELETED', { ...old, metadata: { ...old.metadata, resourceVersion: String(version) } });
    },
    forget: () => void (forgotten = version),
    bookmark: () => [...watches.keys()].forEach(watch => watch.send(bookmark(version))),
    breakWatches(how: 'end' | 'break' | 'tooOld') {
      for (const watch of watches.keys()) {
        if (how === 'end') watch.end();
        else if (how === 'break') watch.fail(noAnswer('connection reset'));
        else watch.send(event('ERROR', { code: 410, message: 'too old' }));
      }
      watches.clear();
    },
    setFault: (now: typeof fault) => void (fault = now),
    parts: {
      answer,
      opened(watch: FakeWatch) {
        if (fault === 'no answer') throw noAnswer();
        if (fault === 'refusal') throw new ApiError('503', { status: 503 });
        const from = Number(queryOfPath(watch.path)['resourceVersion']);
        if (from < forgotten) return watch.send(event('ERROR', { code: 410, message: 'too old' }));
        watches.set(watch, from);
        deliver();
      },
    },
  };
}

type Model = ReturnType<typeof modelServer>;

const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
const name = fc.constantFrom(...NAMES);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('put' as const), name, value: fc.integer({ min: 0, max: 2 }) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('remove' as const), name }) },
  fc.record({ do: fc.constantFrom('forget' as const, 'bookmark' as const) }),
  fc.record({
    do: fc.constant('breakWatches' as const),
    how: fc.constantFrom('end' as const, 'break' as const, 'tooOld' as const),
  }),
  fc.record({
    do: fc.constant('setFault' as const),
    fault: fc.constantFrom('none' as const, 'no answer' as const, 'refusal' as const),
  }),
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 1, 200, 5_000) }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

function doStep(model: Model, it: Step): void {
  if (it.do === 'put') model.put(it.name, it.value);
  else if (it.do === 'remove') model.remove(it.name);
  else if (it.do === 'breakWatches') model.breakWatches(it.how);
  else if (it.do === 'setFault') model.setFault(it.fault);
  else if (it.do !== 'wait') model[it.do]();
}

/** What the changes alone make: each must fit to what the ones before it made. */
function replay(changes: readonly Change[]): ReadonlyMap<string, RawObject> {
  const known = new Map<string, RawObject>();
  for (const { type, object } of changes) {
    const old = known.get(object.metadata.name);
    expect(old === undefined).toBe(type === 'ADDED');
    if (type === 'DELETED') {
      expect(object).toBe(old);
      known.delete(object.metadata.name);
    } else {
      if (type === 'MODIFIED') expect(object.metadata.uid).toBe(old?.metadata.uid);
      known.set(object.metadata.name, object);
    }
  }
  return known;
}

describe('list-and-watch', () => {
  it('ends with what is there, whatever happened', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 40 }),
        fc.integer({ min: 1, max: 4 }),
        async (steps, pageSize) => {
          const model = modelServer();
          const clock = virtualClock();
          const changes: Change[] = [];
          const stop = new AbortController();
          const listWatch = createListWatch({
            api: fakeApi(model.parts),
            resource: { path: '/things' },
            clock,
            wallClock: () => clock.now(),
            random: () => 0.5,
            log: silentLog,
            onChange: change => changes.push(change),
            pageSize,
          });
          const running = listWatch.run(stop.signal);
          for (const it of steps) {
            doStep(model, it);
            if (it.do === 'wait') await clock.advance(it.ms);
            expect(replay(changes)).toEqual(listWatch.objects());
          }
          model.setFault('none');
          await clock.advance(100_000);
          expect(specs(listWatch.objects())).toEqual(specs(model.names()));
          expect(listWatch.health()).toEqual({ listed: true });
          expect(replay(changes)).toEqual(listWatch.objects());
          stop.abort();
          await running;
          expect(clock.sleepers).toBe(0);
        },
      ),
      { numRuns: 300 },
    );
  });
});

const specs = (objects: ReadonlyMap<string, RawObject>): unknown =>
  [...objects.values()]
    .map(({ metadata, spec }) => [metadata.name, metadata.uid, spec] as const)
    .sort(([a], [b]) => a.localeCompare(b));
