// Runs one piece of work whenever something changed: at once for the first change, then not again within a minimum
// interval, with whatever came in between folded into one run. Level-triggered: the work looks at everything anew.
import type { Clock } from '../kernel/clock.ts';

export interface LoopParts {
  readonly clock: Clock;
  /** Milliseconds from the end of a run to the next one. */
  readonly minIntervalMs: number;
  /** One run. Gives the milliseconds after which it wants to run again though nothing changed; undefined: not. */
  readonly work: (signal: AbortSignal) => Promise<number | undefined>;
}

export interface Loop {
  /** Something changed. Returns at once. */
  wake(): void;
  /** Whether something changed since the present run began. */
  isWoken(): boolean;
  /** Works until the signal aborts. What the work throws ends it, too. */
  run(signal: AbortSignal): Promise<void>;
}

const LONGEST_MS = 600_000;

export function createLoop({ clock, minIntervalMs, work }: LoopParts): Loop {
  let woken = true;
  let ring = (): void => {};

  const rest = async (ms: number, signal: AbortSignal): Promise<void> => {
    if (woken || signal.aborted) return;
    // By hand: AbortSignal.any would leave something behind at a signal that lives as long as the process.
    const waking = new AbortController();
    const stop = (): void => waking.abort();
    signal.addEventListener('abort', stop, { once: true });
    ring = stop;
    await clock.sleep(ms, waking.signal).catch(() => {});
    ring = () => {};
    signal.removeEventListener('abort', stop);
  };

  return {
    wake() {
      woken = true;
      ring();
    },
    isWoken: () => woken,
    async run(signal) {
      while (!signal.aborted) {
        woken = false;
        const again = await work(signal);
        await clock.sleep(minIntervalMs, signal).catch(() => {});
        await rest(Math.min(Math.max((again ?? LONGEST_MS) - minIntervalMs, 0), LONGEST_MS), signal);
      }
    },
  };
}
