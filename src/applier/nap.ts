// A pause that something new may end early.
import type { Clock } from '../kernel/clock.ts';

export interface Nap {
  /** Resolves after so many milliseconds, when woken, or when the signal aborts. One at a time. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** Ends the sleep of now; one that begins later is not shortened by it. */
  wake(): void;
}

export function createNap(clock: Clock): Nap {
  let wake = (): void => {};
  return {
    async sleep(ms, signal) {
      // Not AbortSignal.any: what it makes stays known to a signal that lives as long as the process.
      const woken = new AbortController();
      const stop = (): void => woken.abort();
      wake = stop;
      signal.addEventListener('abort', stop, { once: true });
      if (!signal.aborted) await clock.sleep(ms, woken.signal).catch(() => {});
      signal.removeEventListener('abort', stop);
      wake = () => {};
    },
    wake: () => wake(),
  };
}
