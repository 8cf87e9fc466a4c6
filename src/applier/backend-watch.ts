// Whether a backend that was chosen by hand is the one that the node's other programs use.
import { type Backend, detectBackend } from '../kernel/backend.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Exec } from '../kernel/exec.ts';
import { runContext } from '../kernel/run.ts';

export interface BackendWatchParts {
  readonly backend: 'auto' | Backend;
  readonly exec: Exec;
  readonly clock: Clock;
}

/** It changes by a person's hand, if ever. */
const LOOK_EVERY_MS = 300_000;

/** Looks until the signal aborts, and tells a sentence, or undefined when all is well. With `auto` there is nothing to tell. */
export async function watchBackend(
  { backend, exec, clock }: BackendWatchParts,
  tell: (other: string | undefined) => void,
  signal: AbortSignal,
): Promise<void> {
  if (backend === 'auto') return;
  while (!signal.aborted) {
    try {
      const { tools, why, byNeighbours } = await detectBackend(runContext({ exec, clock, signal }));
      const other = byNeighbours === true && tools.backend !== backend;
      tell(other ? `--backend ${backend} was chosen, and others use ${tools.backend}: ${why}` : undefined);
    } catch {
      // What cannot be looked at is reported by the driver, which needs the same tools.
    }
    await clock.sleep(LOOK_EVERY_MS, signal).catch(() => {});
  }
}
