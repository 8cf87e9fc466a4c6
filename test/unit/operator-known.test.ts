// What is believed of the API between a write and the watch, and when a failed write is tried again.
import { describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import { createKnown } from '../../src/operator/known.ts';
import { createRetries } from '../../src/operator/retries.ts';

const object = (lock: string, uid = 'u1'): RawObject => ({ metadata: { name: 'a', uid, lock } });
const watched = (one?: RawObject): ReadonlyMap<string, RawObject> =>
  new Map(one === undefined ? [] : [['a', one] as const]);

/** With a clock that a test sets. */
const setUp = () => {
  const time = { now: 0 };
  return { time, known: createKnown(() => time.now), retries: createRetries(() => time.now) };
};

describe('what was written', () => {
  it('counts until the watch has come as far, or further', () => {
    for (const shown of ['9', '10', '11', '100']) {
      const { known } = setUp();
      known.wrote('a', object('10'));
      expect(known.over(watched()).get('a')?.metadata['lock']).toBe('10');
      const seen = known.over(watched(object(shown))).get('a')?.metadata['lock'];
      expect(seen).toBe(BigInt(shown) >= 10n ? shown : '10');
      expect(known.doubtMs() === undefined).toBe(BigInt(shown) >= 10n);
    }
  });

  it('is deleted until the watch shows another object, or none', () => {
    const { known } = setUp();
    known.deleted('a', 'u1');
    expect(known.over(watched(object('5'))).has('a')).toBe(false);
    const fresh = watched(object('12', 'u2'));
    expect(known.over(fresh)).toBe(fresh);
    known.deleted('a', 'u2');
    known.over(watched());
    // A later object of that uid is one that was never deleted.
    expect(known.over(fresh)).toBe(fresh);
  });

  it('was made again under another uid', () => {
    const { known } = setUp();
    known.deleted('a', 'u1');
    known.wrote('a', object('20', 'u2'));
    expect(known.over(watched(object('5', 'u1'))).get('a')?.metadata.uid).toBe('u2');
    expect(known.over(watched(object('20', 'u2'))).get('a')?.metadata.uid).toBe('u2');
    expect(known.doubtMs()).toBeUndefined();
  });

  it('is not believed for ever: another may have deleted it right after', () => {
    const { known, time } = setUp();
    known.wrote('a', object('10'));
    expect(known.doubtMs()).toBe(10_000);
    time.now = 9_999;
    expect(known.over(watched()).has('a')).toBe(true);
    time.now = 10_000;
    expect(known.over(watched()).has('a')).toBe(false);
    expect(known.doubtMs()).toBeUndefined();
  });

  it('is forgotten when it proved wrong', () => {
    const { known } = setUp();
    known.wrote('a', object('10'));
    known.forget('a');
    const there = watched(object('7'));
    expect(known.over(there)).toBe(there);
  });

  it('leaves the watched objects as they are', () => {
    const { known } = setUp();
    const there = watched(object('7'));
    known.wrote('a', object('10'));
    known.wrote('b', object('11'));
    expect([...known.over(there).keys()]).toEqual(['a', 'b']);
    expect([...there]).toEqual([['a', object('7')]]);
  });
});

describe('what failed', () => {
  it('may be tried after 1, 2, 4 … and at most 30 s', () => {
    const { retries, time } = setUp();
    const waits = Array.from({ length: 8 }, () => {
      const start = time.now;
      retries.failed('a', 'x', 'why');
      expect(retries.held('a', 'x')).toMatchObject({ why: 'why' });
      time.now += retries.nextMs() ?? 0;
      expect(retries.held('a', 'x')).toBeUndefined();
      return time.now - start;
    });
    expect(waits).toEqual([1, 2, 4, 8, 16, 30, 30, 30].map(seconds => seconds * 1000));
  });

  it('holds nothing else, and no other content', () => {
    const { retries } = setUp();
    retries.failed('a', 'x', 'why');
    expect(retries.held('a', 'y')).toBeUndefined();
    expect(retries.held('b', 'x')).toBeUndefined();
    retries.done('a');
    expect(retries.held('a', 'x')).toBeUndefined();
    expect(retries.nextMs()).toBeUndefined();
  });

  it('is no reason to run when nobody wants it any more, and never without a pause', () => {
    const { retries, time } = setUp();
    retries.failed('a', 'x', 'why');
    retries.failed('b', 'x', undefined);
    time.now = 60_000;
    expect(retries.nextMs()).toBeGreaterThanOrEqual(250);
    retries.keep(new Set(['b']));
    retries.keep(new Set());
    expect(retries.nextMs()).toBeUndefined();
  });
});
