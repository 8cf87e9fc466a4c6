// What a part of the benchmark is told.
import type { Backend } from '../../src/kernel/backend.ts';
import type { Row } from './result.ts';

export interface Options {
  readonly backend: Backend;
  /** How often new flows are measured, each time in new namespaces. */
  readonly sessions: number;
  /** Turns of each sender in a session. */
  readonly turns: number;
  /** Milliseconds of a turn. */
  readonly turnMs: number;
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

export const FULL: Sizes = {
  sessions: 7,
  turns: 40,
  turnMs: 5,
  rounds: 40,
  longRounds: 9,
  mostRules: 10_000,
};

/** Enough to see that everything runs, not to judge by. */
export const QUICK: Sizes = { sessions: 1, turns: 3, turnMs: 2, rounds: 3, longRounds: 1, mostRules: 1_000 };
