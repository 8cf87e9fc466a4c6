// Sets and chains that could not be removed because something still refers to them: remembered, and tried again with
// growing pauses, so that they neither block a change nor are forgotten.
import type { Clock } from './clock.ts';
import type { Removal } from './execute.ts';

export interface Pending {
  /** Names of all that wait. */
  names(): ReadonlySet<string>;
  /** Those whose pause is over. */
  due(kind: PendingKind): readonly string[];
  /** Ends the pauses: what held them may be gone. */
  hurry(): void;
  /** Takes over the result of a removal. */
  record(kind: PendingKind, removal: Removal): void;
  /** Stops waiting for names that are wanted again; true when there were any. */
  release(wanted: Iterable<string>): boolean;
}

export type PendingKind = 'set' | 'chain';

interface Waiting {
  readonly kind: PendingKind;
  readonly tries: number;
  readonly nextAt: number;
}

const FIRST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_MS = 600_000;

export function createPending(clock: Clock): Pending {
  const waiting = new Map<string, Waiting>();
  return {
    names: () => new Set(waiting.keys()),
    due: kind =>
      [...waiting].filter(([, w]) => w.kind === kind && w.nextAt <= clock.now()).map(([name]) => name),
    hurry() {
      for (const [name, w] of waiting) waiting.set(name, { ...w, nextAt: clock.now() });
    },
    record(kind, { removed, failed }) {
      for (const name of removed) waiting.delete(name);
      for (const { name } of failed) {
        const tries = (waiting.get(name)?.tries ?? 0) + 1;
        const pause = Math.min(FIRST_PAUSE_MS * 2 ** (tries - 1), LONGEST_PAUSE_MS);
        waiting.set(name, { kind, tries, nextAt: clock.now() + pause });
      }
    },
    release(wanted) {
      let released = false;
      for (const name of wanted) released = waiting.delete(name) || released;
      return released;
    },
  };
}
