// What a part of the benchmark is told.
import type { Backend } from '../../src/kernel/backend.ts';
import type { Row } from './result.ts';

export interface Options {
  readonly backend: Backend;
  /** Rounds in which every side has a turn. */
  readonly flowRounds: number;
  /** Milliseconds of a sender's turn. */
  readonly sliceMs: number;
  /** Rounds of what takes a process or more. */
  readonly rounds: number;
  /** Rounds of what takes a second or more. */
  readonly longRounds: number;
  /** Rules of the list that is held against ours, at most. */
  readonly mostRules: number;
  readonly signal: AbortSignal;
}

export type Part = (options: Options) => Promise<readonly Row[]>;

type Sizes = Omit<Options, 'backend' | 'signal'>;

export const FULL: Sizes = { flowRounds: 40, sliceMs: 12, rounds: 40, longRounds: 9, mostRules: 10_000 };
/** Enough to see that everything runs, not to judge by. */
export const QUICK: Sizes = { flowRounds: 3, sliceMs: 3, rounds: 3, longRounds: 1, mostRules: 1_000 };
