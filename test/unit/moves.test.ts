// How often our jump moves: beside programs that answer at once, every 90 s, once, or never again.
import { describe, expect, it } from 'vitest';
import { createMoveCounter, DEFAULT_MOVE_LIMIT } from '../../src/kernel/moves.ts';
import { virtualClock } from './cluster-fake.ts';

const LOOK_S = 5;

/** Looks every 5 s for `hours`; a rival stands above us again `answersAfter` seconds after each move. Times of moves, in s. */
async function movesBeside(
  answersAfter: (move: number) => number,
  hours: number,
): Promise<readonly number[]> {
  const clock = virtualClock();
  const began = clock.now();
  const counter = createMoveCounter(clock, DEFAULT_MOVE_LIMIT);
  const moves: number[] = [];
  let aboveFrom = 0;
  for (let now = 0; now < hours * 3600; now += LOOK_S) {
    await clock.advance(began + now * 1000 - clock.now());
    const inPlace = now < aboveFrom;
    if (inPlace || !counter.mayMove()) counter.seen(inPlace);
    else {
      counter.moved();
      moves.push(now);
      aboveFrom = now + answersAfter(moves.length);
    }
  }
  return moves;
}

describe('moves of our jump', () => {
  it.each([
    ['at once', 1, [0, 5, 10, 15, 20]],
    ['every 90 s', 90, [0, 90, 180, 270, 360]],
  ])(
    'beside one that answers %s: five, then one try after 10, 20, 40 minutes and so on',
    async (_, after, first) => {
      const moves = await movesBeside(() => after, 48);
      expect(moves.slice(0, 5)).toEqual(first);
      const last = first.at(-1) ?? 0;
      expect(moves.slice(5, 9)).toEqual([10, 30, 70, 150].map(minutes => last + minutes * 60));
      const pauses = moves.slice(-3).map((time, i, all) => time - (all[i - 1] ?? time));
      expect(pauses.slice(1)).toEqual([6 * 3600, 6 * 3600]);
    },
  );

  it('beside one that stopped: it has our place after the next try, and a later fight begins anew', async () => {
    const moves = await movesBeside(move => (move < 6 ? 1 : move === 6 ? 7200 : 1), 4);
    expect(moves.slice(0, 6)).toEqual([0, 5, 10, 15, 20, 620]);
    expect(moves.slice(6, 11)).toEqual([7820, 7825, 7830, 7835, 7840]);
    expect(moves[11]).toBe(8440);
  });

  it('are not forgotten while the other stands above, however long that is', async () => {
    const clock = virtualClock();
    const counter = createMoveCounter(clock, { moves: 1, windowMs: 1_000 });
    counter.moved();
    counter.seen(true);
    counter.seen(false);
    await clock.advance(999);
    counter.seen(true);
    expect(counter.mayMove()).toBe(false);
    await clock.advance(1);
    counter.moved();
    await clock.advance(1_999);
    expect(counter.mayMove()).toBe(false);
  });

  it('beside one that comes every 11 minutes: always', async () => {
    expect(await movesBeside(() => 660, 5)).toHaveLength(Math.ceil((5 * 60) / 11));
  });
});
