// The operator's loop in time that only the test moves.
import { describe, expect, it, vi } from 'vitest';
import { createLoop, type Loop } from '../../src/operator/loop.ts';
import { settle, virtualClock } from './cluster-fake.ts';

const INTERVAL = 20;

/** A loop whose runs are counted; `work` is done in each. */
const setUp = (
  work: (run: number, loop: Loop) => number | undefined | Promise<number | undefined> = () => undefined,
) => {
  const clock = virtualClock();
  const stop = new AbortController();
  const runs: number[] = [];
  const loop: Loop = createLoop({
    clock,
    minIntervalMs: INTERVAL,
    work: async () => {
      runs.push(clock.now());
      return work(runs.length, loop);
    },
  });
  return { clock, loop, runs, stop, ended: loop.run(stop.signal) };
};

describe('the loop', () => {
  it('works at once at the start, and at once on the first change after a quiet time', async () => {
    const { clock, loop, runs, stop, ended } = setUp();
    await clock.advance(5_000);
    expect(runs).toEqual([0]);
    loop.wake();
    await settle();
    expect(runs).toEqual([0, 5_000]);
    stop.abort();
    await ended;
  });

  it('folds a burst of 1,000 changes', async () => {
    const { clock, loop, runs, stop, ended } = setUp();
    await clock.advance(1_000);
    for (let i = 0; i < 1_000; i += 1) {
      loop.wake();
      if (i % 10 === 0) await clock.advance(1);
    }
    await clock.advance(1_000);
    // 100 ms of changes, one run in 20, one at the start of all and one after the last.
    expect(runs.length).toBeLessThanOrEqual(8);
    expect(runs.at(-1)).toBeGreaterThanOrEqual(1_099);
    for (let i = 1; i < runs.length; i += 1) {
      expect((runs[i] ?? 0) - (runs[i - 1] ?? 0)).toBeGreaterThanOrEqual(INTERVAL);
    }
    stop.abort();
    await ended;
  });

  it('runs again for a change that came during the work, after the interval', async () => {
    const { clock, runs, stop, ended } = setUp((run, loop) => {
      if (run === 1) loop.wake();
      return undefined;
    });
    await clock.advance(INTERVAL - 1);
    expect(runs).toEqual([0]);
    await clock.advance(1);
    expect(runs).toEqual([0, INTERVAL]);
    await clock.advance(10_000);
    expect(runs).toHaveLength(2);
    stop.abort();
    await ended;
  });

  it('says whether something changed since the run began', async () => {
    const seen: boolean[] = [];
    const { clock, stop, ended } = setUp((run, loop) => {
      seen.push(loop.isWoken());
      if (run === 1) loop.wake();
      seen.push(loop.isWoken());
      return undefined;
    });
    await clock.advance(100);
    expect(seen).toEqual([false, true, false, false]);
    stop.abort();
    await ended;
  });

  it('runs again when the work says so, never sooner than the interval, and in any case within ten minutes', async () => {
    const wishes = [0, 5, 300, undefined, 1e9];
    const { clock, runs, stop, ended } = setUp(run => wishes[run - 1]);
    await clock.advance(3 * 600_000);
    const pauses = runs.slice(1).map((at, i) => at - (runs[i] ?? 0));
    expect(pauses.slice(0, 3)).toEqual([INTERVAL, INTERVAL, 300]);
    expect(pauses[3]).toBeLessThanOrEqual(600_000 + INTERVAL);
    expect(pauses[4]).toBeLessThanOrEqual(600_000 + INTERVAL);
    stop.abort();
    await ended;
  });

  it.each(['in a pause', 'in the interval'])('ends when aborted %s', async when => {
    const { clock, runs, stop, ended } = setUp();
    await clock.advance(when === 'in a pause' ? 1_000 : 5);
    stop.abort(new Error('enough'));
    await ended;
    expect(runs).toHaveLength(1);
    expect(clock.sleepers).toBe(0);
  });

  it('ends with what the work throws', async () => {
    const { ended } = setUp(() => {
      throw new Error('a fault of ours');
    });
    await expect(ended).rejects.toThrow('a fault of ours');
  });

  it('leaves nothing behind at a signal that lives as long as the process', async () => {
    const { clock, loop, runs, stop, ended } = setUp();
    const added = vi.spyOn(stop.signal, 'addEventListener');
    const removed = vi.spyOn(stop.signal, 'removeEventListener');
    for (let i = 0; i < 50; i += 1) {
      loop.wake();
      await clock.advance(100);
    }
    expect(runs).toHaveLength(51);
    expect(added.mock.calls.length).toBeGreaterThan(50);
    expect(added.mock.calls.length - removed.mock.calls.length).toBeLessThanOrEqual(2);
    stop.abort();
    await ended;
  });
});
