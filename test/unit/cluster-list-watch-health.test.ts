import { describe, expect, it } from 'vitest';
import { ApiError, type RawObject } from '../../src/cluster/api.ts';
import { event, listOf, noAnswer, refusal, settle, thing } from './cluster-fake.ts';
import { inOrder, PATH, started } from './cluster-started.ts';

describe('what is kept', () => {
  const specOnly = ({ metadata, spec }: RawObject): RawObject => ({ metadata, spec });

  it('is the projection, and what it leaves out is no change', async () => {
    const t = started(
      { answer: inOrder(listOf(10, [thing('a', 1, { spec: { x: 1 }, status: 1 })])) },
      { project: specOnly },
    );
    await settle();
    const before = t.listWatch.objects().get('a');
    expect(before).toEqual({ metadata: thing('a', 1).metadata, spec: { x: 1 } });
    t.api.lastWatch.send(event('MODIFIED', thing('a', 11, { spec: { x: 1 }, status: 2 })));
    await settle();
    expect(t.seen()).toEqual(['ADDED a']);
    expect(t.listWatch.objects().get('a')).toBe(before);
    t.api.lastWatch.send(event('MODIFIED', thing('a', 12, { spec: { x: 2 } })));
    await settle();
    expect(t.seen()).toEqual(['ADDED a', 'MODIFIED a']);
  });
});

describe('an object that a new list shows as it was', () => {
  it('is not looked at again', async () => {
    const projected: string[] = [];
    const t = started(
      {
        answer: inOrder(
          listOf(10, [thing('a', 1), thing('b', 2)]),
          listOf(20, [thing('a', 1), thing('b', 12)]),
        ),
      },
      {
        project(object) {
          projected.push(object.metadata.name);
          return object;
        },
      },
    );
    await settle();
    t.api.lastWatch.fail(new ApiError('gone', { status: 410 }));
    await settle();
    expect(projected).toEqual(['a', 'b', 'b']);
  });
});

describe('health', () => {
  it.each([
    [401, 'failing'],
    [403, 'failing'],
    [404, 'gone'],
    [429, 'failing'],
    [500, 'failing'],
    [503, 'failing'],
  ])('after a list that answers %i: what is known stays, and since when is said', async (status, kind) => {
    const good = listOf(10, [thing('a', 1)]);
    const t = started({ answer: inOrder(good, refusal(status), refusal(status), refusal(status), good) });
    await settle();
    await t.clock.advance(5_000);
    t.api.lastWatch.send(event('ERROR', { code: 500 }));
    await t.clock.advance(700);
    const { failing } = t.listWatch.health();
    expect(failing).toEqual({
      since: 1_005_187.5,
      kind,
      reason: `GET ${PATH}: ${status}: the server says ${status}`,
    });
    expect([...t.listWatch.objects().keys()]).toEqual(['a']);
    await t.clock.advance(10_000);
    expect(t.listWatch.health()).toEqual({ listed: true });
    expect(t.seen()).toEqual(['ADDED a']);
  });

  it('says since when, whatever fails meanwhile', async () => {
    const t = started({ answer: inOrder(noAnswer(), refusal(503), refusal(404), refusal(403)) });
    await t.clock.advance(10_000);
    expect(t.healths.map(({ failing }) => [failing?.since, failing?.kind])).toEqual([
      [1_000_000, 'failing'],
      [1_000_000, 'failing'],
      [1_000_000, 'gone'],
      [1_000_000, 'failing'],
    ]);
  });

  it('says the first failure, and waits longer each time up to 30 s', async () => {
    const t = started({ answer: inOrder(noAnswer()) });
    await t.clock.advance(600_000);
    expect(t.listWatch.health()).toEqual({
      listed: false,
      failing: { since: 1_000_000, kind: 'failing', reason: 'GET /things: connection refused' },
    });
    expect(t.healths.length).toBe(1);
    expect(t.log.lines.length).toBe(1);
    expect(t.api.requests.length).toBeLessThan(40);
    expect(Math.max(...t.clock.slept)).toBe(22_500);
  });

  it.each([
    [7_000, 7_875],
    [1_000_000, 67_500],
  ])('after Retry-After of %i ms waits that long, within reason', async (retryAfterMs, waited) => {
    const t = started({ answer: inOrder({ ...refusal(429), retryAfterMs }) });
    await settle();
    expect(t.clock.slept).toEqual([waited]);
  });

  it('is not made a storm by a callback that throws', async () => {
    const t = started(
      { answer: inOrder(noAnswer()) },
      {
        onHealth() {
          throw new Error('broken callback');
        },
      },
    );
    await t.clock.advance(60_000);
    expect(t.api.requests.length).toBeLessThan(15);
  });
});

describe('run', () => {
  it('may be called once', async () => {
    const t = started({ answer: inOrder(listOf(1, [])) });
    await expect(t.listWatch.run(new AbortController().signal)).rejects.toThrow('runs once');
  });

  it.each(['while it lists', 'while it watches', 'while it waits', 'at its beginning'])(
    'ends on an abort %s, and leaves nothing',
    async when => {
      const t = started({
        answer: () =>
          when === 'while it watches'
            ? listOf(1, [])
            : when === 'while it waits'
              ? refusal(500)
              : new Promise(() => {}),
      });
      if (when !== 'at its beginning') await settle();
      t.stop.abort(new Error('enough'));
      await t.running;
      await settle();
      expect(t.clock.sleepers).toBe(0);
      expect(t.api.watches.every(({ over }) => over)).toBe(true);
    },
  );
});
