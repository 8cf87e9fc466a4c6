// Not more requests than the API server shall have from one client, whatever happens.
import type { Clock } from '../kernel/clock.ts';
import type { Api } from './api.ts';

export interface RateLimit {
  /** Requests, and watches that are opened, per second in the long run. */
  readonly perSecond: number;
  /** How many may go at once after a quiet time. */
  readonly burst: number;
}

/** As `api`, but each request and each opening of a watch waits for its turn; turns are given in order. */
export function limited(api: Api, { perSecond, burst }: RateLimit, clock: Clock): Api {
  // The moment at which the bucket will be full again: each turn moves it by one interval.
  let fullAt = Number.NEGATIVE_INFINITY;
  const interval = 1000 / perSecond;
  const turn = async (signal: AbortSignal | undefined): Promise<void> => {
    const now = clock.now();
    fullAt = Math.max(fullAt, now) + interval;
    const wait = fullAt - burst * interval - now;
    if (wait > 0) await clock.sleep(wait, signal);
  };
  return {
    async request(asked, signal) {
      await turn(signal);
      return api.request(asked, signal);
    },
    async *watch(path, options, signal) {
      await turn(signal);
      yield* api.watch(path, options, signal);
    },
  };
}
