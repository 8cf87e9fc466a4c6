// How often our jump may be moved to the top: another program that insists on the first place must not be fought for
// ever, since every move of one is an answer to a move of the other.
import type { Clock } from './clock.ts';

export interface MoveLimit {
  readonly moves: number;
  readonly windowMs: number;
}

/** A Felix that insists looks every 90 s: five of its answers come within this window. */
export const DEFAULT_MOVE_LIMIT: MoveLimit = { moves: 5, windowMs: 600_000 };

/** Between two tries of one that gave way. */
const LONGEST_PAUSE_MS = 6 * 3_600_000;

export interface MoveCounter {
  mayMove(): boolean;
  moved(): void;
  /** Our jump was found, where it belongs or below a rule before which it may not be moved. */
  seen(inPlace: boolean): void;
}

/**
 * Counts moves in a sliding window. When there were too many we give way, and try with one move again after a window,
 * then after twice that and so on: a fight that goes on would turn the fate of connections round and round. A window
 * in which nobody moved us ends it.
 */
export function createMoveCounter(clock: Clock, limit: MoveLimit): MoveCounter {
  let times: readonly number[] = [];
  let gaveWay: { readonly until: number; readonly pauseMs: number } | undefined;
  let calmSince: number | undefined;
  const giveWay = (pauseMs: number): void => void (gaveWay = { until: clock.now() + pauseMs, pauseMs });
  return {
    mayMove() {
      if (gaveWay !== undefined) return clock.now() >= gaveWay.until;
      times = times.filter(time => clock.now() - time < limit.windowMs);
      return times.length < limit.moves;
    },
    moved() {
      calmSince = undefined;
      if (gaveWay !== undefined) return giveWay(Math.min(2 * gaveWay.pauseMs, LONGEST_PAUSE_MS));
      times = [...times, clock.now()];
      if (times.length >= limit.moves) giveWay(limit.windowMs);
    },
    seen(inPlace) {
      calmSince = inPlace ? (calmSince ?? clock.now()) : undefined;
      if (calmSince === undefined || clock.now() - calmSince < limit.windowMs) return;
      gaveWay = undefined;
      times = [];
    },
  };
}
