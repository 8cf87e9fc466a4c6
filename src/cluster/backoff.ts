// How long to wait after failures: twice as long each time, spread so that many clients do not come back at once.

export interface BackoffLimits {
  readonly firstMs: number;
  readonly longestMs: number;
}

export const DEFAULT_BACKOFF: BackoffLimits = { firstMs: 250, longestMs: 30_000 };

/** Milliseconds after that many failures in a row (at least 1); `random` is from 0 to 1. Half to whole of the bound. */
export const backoffMs = (failures: number, random: number, limits = DEFAULT_BACKOFF): number =>
  Math.min(limits.firstMs * 2 ** Math.min(failures - 1, 30), limits.longestMs) * (0.5 + random / 2);

/** A server that wants to be left alone for longer is asked all the same, and one that says 0 is not stormed. */
const LONGEST_RETRY_AFTER_MS = 60_000;
const SHORTEST_RETRY_AFTER_MS = 500;
/** A server that answers lives: however often it failed before, it is asked again after so many times what it said. */
const MOST_TIMES = 8;

/**
 * As backoffMs; and where the server said when to come again (Retry-After), not before, and not much later: a server
 * that has just started says so for a moment. Spread, since it said the same to all its clients.
 */
export function retryMs(
  failures: number,
  random: number,
  retryAfterMs: number | undefined,
  limits = DEFAULT_BACKOFF,
): number {
  const wait = backoffMs(failures, random, limits);
  if (retryAfterMs === undefined) return wait;
  const within = Math.max(Math.min(retryAfterMs, LONGEST_RETRY_AFTER_MS), SHORTEST_RETRY_AFTER_MS);
  const said = within * (1 + random / 4);
  return Math.max(Math.min(wait, said * MOST_TIMES), said);
}
