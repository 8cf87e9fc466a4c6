// How often our jump may be moved to the top: another program that insists on the first place must not be fought for
// ever, since every move of one is an answer to a move of the other.
import type { Clock } from './clock.ts';

export interface MoveLimit {
  readonly moves: number;
  readonly windowMs: number;
}

export const DEFAULT_MOVE_LIMIT: MoveLimit = { moves: 5, windowMs: 600_000 };

export interface MoveCounter {
  mayMove(): boolean;
  moved(): void;
}

/** Counts moves in a sliding window. */
export function createMoveCounter(clock: Clock, limit: MoveLimit): MoveCounter {
  let times: readonly number[] = [];
  return {
    mayMove() {
      times = times.filter(time => clock.now() - time < limit.windowMs);
      return times.length < limit.moves;
    },
    moved() {
      times = [...times, clock.now()];
    },
  };
}
