// How long to wait after failures: twice as long each time, spread so that many clients do not come back at once.

export interface BackoffLimits {
  readonly firstMs: number;
  readonly longestMs: number;
}

export const DEFAULT_BACKOFF: BackoffLimits = { firstMs: 250, longestMs: 30_000 };

/** Milliseconds after that many failures in a row (at least 1); `random` is from 0 to 1. Half to whole of the bound. */
export const backoffMs = (failures: number, random: number, limits = DEFAULT_BACKOFF): number =>
  Math.min(limits.firstMs * 2 ** Math.min(failures - 1, 30), limits.longestMs) * (0.5 + random / 2);

/** A server that wants to be left alone for longer is asked all the same. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/** As backoffMs, and not before the server said (Retry-After); spread, since it said the same to all its clients. */
export const retryMs = (failures: number, random: number, retryAfterMs = 0): number =>
  Math.max(backoffMs(failures, random), Math.min(retryAfterMs, LONGEST_RETRY_AFTER_MS) * (1 + random / 4));
