import { describe, expect, it } from 'vitest';
import { type ApiAnswer, ApiError } from '../../src/cluster/api.ts';
import { type ConfirmDeletes, crdDeletes } from '../../src/cluster/crd-deletes.ts';
import { type Change, createListWatch } from '../../src/cluster/list-watch.ts';
import { silentLog } from '../../src/kernel/log.ts';
import {
  event,
  fakeApi,
  type FakeParts,
  listOf,
  noAnswer,
  refusal,
  settle,
  thing,
  virtualClock,
} from './cluster-fake.ts';

type Answer = 'real' | 'vanishing' | Error;

/** Watches two objects, and gives these answers to the question whether deletes are real; the last one for ever. */
function started(answers: readonly Answer[], fake: FakeParts = {}) {
  const clock = virtualClock();
  const both = listOf(10, [thing('a', 1), thing('b', 2)]);
  const api = fakeApi({ answer: () => both, ...fake });
  const changes: Change[] = [];
  let asked = 0;
  const confirmDeletes: ConfirmDeletes = () => {
    const answer = answers[Math.min(asked++, answers.length - 1)] ?? 'real';
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const listWatch = createListWatch({
    api,
    resource: { path: '/things' },
    clock,
    wallClock: () => clock.now(),
    random: () => 0.5,
    log: silentLog,
    onChange: change => changes.push(change),
    confirmDeletes,
  });
  const stop = new AbortController();
  void listWatch.run(stop.signal);
  return {
    clock,
    api,
    listWatch,
    stop,
    asked: () => asked,
    seen: () => changes.map(({ type, object }) => `${type} ${object.metadata.name}`).slice(2),
    names: () => [...listWatch.objects().keys()],
  };
}

const gone = (name: string, version: number): unknown => event('DELETED', thing(name, version));

describe('deletes that a watch shows', () => {
  it('are taken when they are real, and asked for once in a burst', async () => {
    const t = started(['real']);
    await settle();
    t.api.lastWatch.send(gone('a', 11), event('ADDED', thing('c', 12)), gone('b', 13));
    await settle();
    expect(t.seen()).toEqual(['DELETED a', 'ADDED c', 'DELETED b']);
    expect(t.asked()).toBe(1);
    expect(t.listWatch.health()).toEqual({ listed: true });
  });

  it('are not asked for when nothing is deleted', async () => {
    const t = started([new Error('never asked')]);
    await settle();
    t.api.lastWatch.send(event('MODIFIED', thing('a', 11, { spec: 1 })));
    await settle();
    expect([t.seen(), t.asked()]).toEqual([['MODIFIED a'], 0]);
  });

  it('of a kind that vanishes leave the objects, and the kind counts as gone', async () => {
    const t = started(['vanishing'], {
      answer: (_, count) => (count === 1 ? listOf(10, [thing('a', 1), thing('b', 2)]) : refusal(404)),
    });
    await settle();
    await t.clock.advance(1_000);
    t.api.lastWatch.send(gone('a', 11), gone('b', 12));
    await t.clock.advance(120_000);
    expect([t.seen(), t.names()]).toEqual([[], ['a', 'b']]);
    expect(t.listWatch.health()).toMatchObject({ listed: true, failing: { since: 1_000, kind: 'gone' } });
    expect(t.api.requests.length).toBeLessThan(15);
  });

  it('are taken by a later list when that says they are real after all', async () => {
    const t = started(['vanishing', 'vanishing', 'real'], {
      answer: (_, count) =>
        listOf(10 + count, count === 1 ? [thing('a', 1), thing('b', 2)] : [thing('b', 2)]),
    });
    await settle();
    t.api.lastWatch.send(gone('a', 11));
    await settle();
    expect(t.names()).toEqual(['a', 'b']);
    await t.clock.advance(10_000);
    expect([t.seen(), t.names()]).toEqual([['DELETED a'], ['b']]);
    expect(t.listWatch.health()).toEqual({ listed: true });
  });

  it('wait, and all events after them, while nobody can say', async () => {
    const t = started([noAnswer(), noAnswer(), 'real']);
    await settle();
    t.api.lastWatch.send(event('MODIFIED', thing('b', 11, { spec: 1 })), gone('a', 12));
    t.api.lastWatch.send(event('ADDED', thing('c', 13)));
    await settle();
    expect(t.seen()).toEqual(['MODIFIED b']);
    expect(t.listWatch.health().failing).toMatchObject({
      kind: 'failing',
      reason: 'deletes cannot be confirmed: GET /things: connection refused',
    });
    await t.clock.advance(10_000);
    expect(t.seen()).toEqual(['MODIFIED b', 'DELETED a', 'ADDED c']);
    expect(t.listWatch.health()).toEqual({ listed: true });
    expect(t.clock.slept).toEqual([187.5, 375]);
    expect(t.api.watches.length).toBe(1);
  });

  it('end with an abort while nobody can say', async () => {
    const t = started([noAnswer()]);
    await settle();
    t.api.lastWatch.send(gone('a', 12));
    await settle();
    t.stop.abort(new Error('enough'));
    await settle();
    expect([t.clock.sleepers, t.api.lastWatch.over, t.seen()]).toEqual([0, true, []]);
  });
});

describe('deletes that a list shows', () => {
  const shrunk: NonNullable<FakeParts['answer']> = (_, count) =>
    count === 1
      ? listOf(10, [thing('a', 1), thing('b', 2)])
      : listOf(20, [thing('b', 15, { spec: 1 }), thing('c', 16)]);

  it('are held back when the kind vanishes, and what is there is taken', async () => {
    const t = started(['vanishing'], { answer: shrunk });
    await settle();
    t.api.lastWatch.fail(new ApiError('too old', { status: 410 }));
    await t.clock.advance(5_000);
    expect([t.seen(), t.names()]).toEqual([
      ['MODIFIED b', 'ADDED c'],
      ['a', 'b', 'c'],
    ]);
    expect(t.listWatch.health().failing?.kind).toBe('gone');
    expect(t.api.watches.length).toBe(1);
  });

  it('are taken when they are real', async () => {
    const t = started(['real'], { answer: shrunk });
    await settle();
    t.api.lastWatch.fail(new ApiError('too old', { status: 410 }));
    await settle();
    expect([t.seen(), t.names()]).toEqual([
      ['MODIFIED b', 'ADDED c', 'DELETED a'],
      ['b', 'c'],
    ]);
  });
});

describe('crdDeletes', () => {
  const definition = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org';
  const service = '/apis/apiregistration.k8s.io/v1/apiservices/v1.example.org';
  const found = (body: object): ApiAnswer => ({ status: 200, body });
  const asked = (answers: Readonly<Record<string, ApiAnswer>>) => {
    const api = fakeApi({ answer: ({ path }) => answers[path] ?? refusal(404) });
    const confirm = crdDeletes(api, { group: 'example.org', version: 'v1', plural: 'things' });
    return { api, answer: () => confirm(new AbortController().signal) };
  };

  it.each([
    ['its definition is there', { [definition]: found({ metadata: {} }) }, 'real'],
    ['its definition goes', { [definition]: found({ metadata: { deletionTimestamp: 'x' } }) }, 'vanishing'],
    ['it has no definition and no service', {}, 'vanishing'],
    ['its service is the API server itself', { [service]: found({ spec: { service: null } }) }, 'vanishing'],
    ['its service is none', { [service]: found({ spec: {} }) }, 'vanishing'],
    ['another server serves it', { [service]: found({ spec: { service: { name: 'calico' } } }) }, 'real'],
  ])('when %s', async (_, answers, said) => {
    expect(await asked(answers).answer()).toBe(said);
  });

  it.each([
    ['may not be read', { [definition]: refusal(403) }, /403/],
    ['cannot be read', { [definition]: refusal(503) }, /503/],
    ['is not there and the service may not be read', { [service]: refusal(403) }, /apiservices.*403/],
    ['is no object', { [definition]: { status: 200, body: 'ok' } }, /no object/],
  ])('rejects when the definition %s', async (_, answers, why) => {
    await expect(asked(answers).answer()).rejects.toThrow(why);
  });

  it('reads past all caches', async () => {
    const t = asked({});
    await t.answer();
    expect(t.api.requests.map(({ method, path }) => `${method} ${path}`)).toEqual([
      `GET ${definition}`,
      `GET ${service}`,
    ]);
  });
});
