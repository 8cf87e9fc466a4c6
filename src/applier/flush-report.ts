// What a flush says about itself, and how it is counted while it happens.
import type { KernelError } from '../kernel/errors.ts';

export interface FlushReport {
  /** Entries that were judged. */
  readonly looked: number;
  readonly deleted: number;
  /** By name. The policy is the one that decides after, or the one that decided before if that asked for the flush. */
  readonly perPolicy: readonly { readonly policy: string; readonly deleted: number }[];
  /** Entries that were left though their verdict changed, or may have. */
  readonly skipped: readonly { readonly reason: SkipReason; readonly entries: number }[];
  /** Why no entry was looked at. */
  readonly notLooked?: 'noFlushPolicy' | 'samePlan' | 'unknownBefore';
  /** What failed; a family that fails does not stop the other. */
  readonly errors: readonly KernelError[];
}

/**
 * `translatedByOthers`: the entry is not as the verdict before makes it, so another program has a hand in it.
 * `uncertain`: a rule asks for something that is not known, mostly an interface where routing has no answer.
 * `zones`: conntrack cannot name the entry alone. `timeLimit`: there was no time left. `unread`: a line of conntrack
 * that was not understood.
 */
export type SkipReason = 'translatedByOthers' | 'uncertain' | 'zones' | 'timeLimit' | 'unread';

/** What is counted while it happens. */
export interface Tally {
  looked: number;
  readonly deleted: Map<string, number>;
  readonly skipped: Map<SkipReason, number>;
  readonly errors: KernelError[];
}

export const emptyTally = (): Tally => ({ looked: 0, deleted: new Map(), skipped: new Map(), errors: [] });

export function count<K>(counts: Map<K, number>, key: K, more: number): void {
  if (more > 0) counts.set(key, (counts.get(key) ?? 0) + more);
}

export function reportOf(tally: Tally, notLooked?: FlushReport['notLooked']): FlushReport {
  const perPolicy = [...tally.deleted].map(([policy, deleted]) => ({ policy, deleted }));
  return {
    looked: tally.looked,
    deleted: perPolicy.reduce((sum, { deleted }) => sum + deleted, 0),
    perPolicy: perPolicy.sort((a, b) => (a.policy < b.policy ? -1 : 1)),
    skipped: [...tally.skipped].map(([reason, entries]) => ({ reason, entries })),
    errors: tally.errors,
    ...(notLooked === undefined ? {} : { notLooked }),
  };
}

