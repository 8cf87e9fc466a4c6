import { describe, expect, it } from 'vitest';
import { type ApiAnswer, ApiError } from '../../src/cluster/api.ts';
import { bookmark, event, listOf, noAnswer, queryOfPath, refusal, settle, thing } from './cluster-fake.ts';
import { inOrder, PATH, started } from './cluster-started.ts';

describe('a list', () => {
  it('comes page by page, and the watch begins where it is whole', async () => {
    const t = started(
      {
        answer: inOrder(listOf(10, [thing('a', 1), thing('b', 2)], 'next'), listOf(10, [thing('c', 3)])),
      },
      { pageSize: 2, resource: { path: PATH, labelSelector: 'a=b', fieldSelector: 'metadata.name=x' } },
    );
    await settle();
    const selectors = { labelSelector: 'a=b', fieldSelector: 'metadata.name=x' };
    expect(t.api.requests.map(({ method, path }) => [method, queryOfPath(path)])).toEqual([
      ['GET', { ...selectors, limit: '2' }],
      ['GET', { ...selectors, limit: '2', continue: 'next' }],
    ]);
    expect(t.seen()).toEqual(['ADDED a', 'ADDED b', 'ADDED c']);
    expect([...t.listWatch.objects().keys()]).toEqual(['a', 'b', 'c']);
    expect(t.healths).toEqual([{ listed: true }]);
    expect(queryOfPath(t.api.lastWatch.path)).toEqual({
      ...selectors,
      watch: '1',
      resourceVersion: '10',
      allowWatchBookmarks: 'true',
      timeoutSeconds: '450',
    });
    expect(t.api.lastWatch.options).toEqual({ silenceMs: 90_000 });
  });

  it('is not there before its last page', async () => {
    let last: (answer: ApiAnswer) => void = () => {};
    const t = started({
      answer: (_, count) =>
        count === 1 ? listOf(10, [thing('a', 1)], 'next') : new Promise(resolve => (last = resolve)),
    });
    await settle();
    expect([t.seen(), t.listWatch.health()]).toEqual([[], { listed: false }]);
    last(listOf(10, []));
    await settle();
    expect([t.seen(), t.listWatch.health()]).toEqual([['ADDED a'], { listed: true }]);
  });

  it('starts over when the server forgot in the midst of the pages', async () => {
    const t = started({
      answer: inOrder(
        listOf(10, [thing('a', 1)], 'next'),
        refusal(410, 'Expired'),
        listOf(20, [thing('b', 15)]),
      ),
    });
    await settle();
    expect(t.api.requests.map(({ path }) => queryOfPath(path)['continue'])).toEqual([
      undefined,
      'next',
      undefined,
    ]);
    // What only the first try had seen is not taken.
    expect(t.seen()).toEqual(['ADDED b']);
    expect(t.healths).toEqual([{ listed: true }]);
  });

  it('that is always too old is not asked for without pauses, and said', async () => {
    const t = started({ answer: inOrder(refusal(410)) });
    await t.clock.advance(60_000);
    expect(t.api.requests.length).toBeLessThan(15);
    expect(t.listWatch.health().failing).toMatchObject({ since: 1_000_000, kind: 'failing' });
  });

  it.each([
    ['items that are null, as Go writes an empty list', listOf(5, null as never), true],
    ['no items', { status: 200, body: { metadata: { resourceVersion: '5' } } }, false],
    ['null without metadata', { status: 200, body: { items: null } }, false],
    ['no resourceVersion', { status: 200, body: { items: [], metadata: {} } }, false],
    ['an object without a name', listOf(5, [{ metadata: {} }]), false],
    ['null as an object', listOf(5, [null]), false],
    ['text', { status: 200, body: 'ok' }, false],
    ['nothing', { status: 200, body: null }, false],
  ])('with %s', async (_, answer: ApiAnswer, good) => {
    const t = started({ answer: inOrder(answer) });
    await settle();
    expect(t.listWatch.health().listed).toBe(good);
    if (!good) expect(t.listWatch.health().failing?.reason).toContain(`GET ${PATH}: the answer`);
  });
});

describe('a relist', () => {
  const first = listOf(10, [thing('a', 1), thing('b', 2), thing('c', 3)]);

  it.each([
    ['a 410 of the watch', 'fail', new ApiError('gone', { status: 410 })],
    ['an event that says 410', 'send', event('ERROR', { kind: 'Status', code: 410, message: 'too old' })],
    ['any other error event', 'send', event('ERROR', { kind: 'Status', code: 500, message: 'broken' })],
    ['an event of a type that nobody knows', 'send', event('SYNCED', thing('x', 1))],
    ['what is no event', 'send', null],
  ] as const)('follows %s', async (_, how, what) => {
    const t = started({
      answer: inOrder(first, listOf(20, [thing('a', 1), thing('b', 12), thing('d', 13)])),
    });
    await settle();
    const before = new Map(t.listWatch.objects());
    if (how === 'fail') t.api.lastWatch.fail(what);
    else t.api.lastWatch.send(what);
    await t.clock.advance(1_000);
    expect(t.api.requests.length).toBe(2);
    expect(t.seen().slice(3)).toEqual(['ADDED d', 'DELETED c']);
    expect(t.changes.at(-1)?.object).toBe(before.get('c'));
    expect(t.listWatch.objects().get('a')).toBe(before.get('a'));
    expect(queryOfPath(t.api.lastWatch.path)['resourceVersion']).toBe('20');
    expect(t.listWatch.health()).toEqual({ listed: true });
  });

  it('knows an object that was deleted and made anew by its uid', async () => {
    const anew = { ...thing('a', 15), metadata: { name: 'a', uid: 'another', resourceVersion: '15' } };
    const t = started({ answer: inOrder(first, listOf(20, [anew, thing('b', 2), thing('c', 3)])) });
    await settle();
    t.api.lastWatch.fail(new ApiError('gone', { status: 410 }));
    await settle();
    expect(t.changes.slice(3)).toEqual([
      { type: 'DELETED', object: thing('a', 1) },
      { type: 'ADDED', object: anew },
    ]);
  });
});

describe('a watch', () => {
  const empty = inOrder(listOf(10, []));

  it('takes events, and goes on from the last version after it ended', async () => {
    const t = started({ answer: empty });
    await settle();
    t.api.lastWatch.send(event('ADDED', thing('a', 11)), event('MODIFIED', thing('a', 12, { spec: 1 })));
    t.api.lastWatch.send(event('ADDED', thing('b', 13)), event('DELETED', thing('b', 14)), bookmark(20));
    await t.clock.advance(5_000);
    expect(t.seen()).toEqual(['ADDED a', 'MODIFIED a', 'ADDED b', 'DELETED b']);
    t.api.lastWatch.end();
    await settle();
    expect(t.api.watches.map(({ path }) => queryOfPath(path)['resourceVersion'])).toEqual(['10', '20']);
    expect(t.api.requests.length).toBe(1);
    expect(t.healths).toEqual([{ listed: true }]);
  });

  it('is opened again from the last version, without a list, when it fell silent', async () => {
    const t = started({ answer: empty });
    await settle();
    t.api.lastWatch.send(bookmark(17));
    await t.clock.advance(90_000);
    t.api.lastWatch.fail(noAnswer('nothing was heard for 90 s'));
    await settle();
    expect(t.listWatch.health().failing).toEqual({
      since: 1_090_000,
      kind: 'failing',
      reason: 'GET /things: nothing was heard for 90 s',
    });
    await t.clock.advance(1_000);
    expect(queryOfPath(t.api.lastWatch.path)['resourceVersion']).toBe('17');
    expect(t.api.requests.length).toBe(1);
    expect(t.listWatch.health()).toEqual({ listed: true });
    expect(t.log.lines.map(({ message }) => message)).toEqual([
      'cannot be read; what is known stays',
      'can be read again',
    ]);
  });

  it('that ends at once again and again is not opened without pauses, and is no fault', async () => {
    const t = started({ answer: empty, opened: watch => watch.end() });
    await t.clock.advance(60_000);
    expect(t.api.watches.length).toBeLessThan(12);
    expect(t.healths).toEqual([{ listed: true }]);
    const sleeps = t.clock.slept;
    expect(sleeps.slice(0, 9)).toEqual(
      [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000].map(ms => ms * 0.75).slice(0, sleeps.length),
    );
  });

  it('that brings something and ends at once is not opened without pauses either', async () => {
    const t = started({
      answer: empty,
      opened(watch, count) {
        watch.send(event('MODIFIED', thing('a', 10 + count, { spec: count })), bookmark(100 + count));
        watch.end();
      },
    });
    await t.clock.advance(60_000);
    expect(t.api.watches.length).toBeLessThan(12);
  });

  it('begins its pauses anew after one that lasted', async () => {
    const t = started({ answer: empty, opened: (watch, count) => (count < 6 ? watch.end() : undefined) });
    await t.clock.advance(30_000);
    t.api.lastWatch.fail(noAnswer());
    await settle();
    expect(t.clock.slept.at(-1)).toBe(187.5);
  });

  it('that is refused again and again is asked for less and less, up to every 30 s', async () => {
    const t = started({
      answer: empty,
      opened() {
        throw new ApiError('GET /things: 403', { status: 403 });
      },
    });
    await t.clock.advance(300_000);
    expect(t.api.watches.length).toBeLessThan(25);
    expect(Math.max(...t.clock.slept)).toBe(22_500);
    expect(t.listWatch.health().failing).toMatchObject({ since: 1_000_000, reason: 'GET /things: 403' });
    expect(t.api.requests.length).toBe(1);
  });

  it('with 404 is a kind that is not served: it is listed again until it is', async () => {
    const t = started({
      answer: inOrder(listOf(10, [thing('a', 1)]), refusal(404), refusal(404), listOf(20, [thing('a', 1)])),
      opened(_, count) {
        if (count === 1) throw new ApiError('GET /things: 404', { status: 404 });
      },
    });
    await settle();
    expect(t.listWatch.health().failing).toMatchObject({ kind: 'gone' });
    await t.clock.advance(10_000);
    expect(t.api.requests.length).toBe(4);
    expect(t.listWatch.health()).toEqual({ listed: true });
    expect(t.seen()).toEqual(['ADDED a']);
  });
});
