// How everything here is measured: sides in turn, so that a busy machine hurts all alike, and medians with quartiles.

export interface Spread {
  readonly median: number;
  /** The quartiles: half of the rounds lie between them. */
  readonly low: number;
  readonly high: number;
}

/** Measures something once. The unit is the caller's. */
export type Side = () => Promise<number> | number;

/**
 * Runs every side once a round, each round beginning with another side. The first round warms up and is not counted.
 * Gives the values of each side in the order of the rounds.
 */
export async function interleave<K extends string>(
  sides: Readonly<Record<K, Side>>,
  rounds: number,
  signal: AbortSignal,
): Promise<Readonly<Record<K, readonly number[]>>> {
  const names = Object.keys(sides) as K[];
  const values = Object.fromEntries(names.map(name => [name, []])) as unknown as Record<K, number[]>;
  for (let round = 0; round <= rounds; round++) {
    for (let i = 0; i < names.length; i++) {
      signal.throwIfAborted();
      const name = names[(round + i) % names.length] as K;
      const value = await sides[name]();
      if (round > 0) values[name].push(value);
    }
  }
  return values;
}

/** Median and quartiles. Throws when there is nothing to take them of. */
export const spreadOf = (values: readonly number[]): Spread => ({
  median: quantile(values, 0.5),
  low: quantile(values, 0.25),
  high: quantile(values, 0.75),
});

/** The value below which that part of the values lies, 0 to 1. Throws when there are none. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * part;
  const below = sorted[Math.floor(at)];
  const above = sorted[Math.ceil(at)];
  if (below === undefined || above === undefined) throw new Error('nothing was measured');
  return below + (above - below) * (at - Math.floor(at));
}

/** What of each round's value is beyond that of the same round's floor. */
export const beyond = (values: readonly number[], floor: readonly number[]): readonly number[] =>
  values.map((value, i) => value - (floor[i] ?? Number.NaN));

/** Ratio of the medians; the quartiles are those of the ratios round by round. */
export function ratioOf(ours: readonly number[], others: readonly number[]): Spread {
  const byRound = spreadOf(ours.map((value, i) => value / (others[i] ?? Number.NaN)));
  return { ...byRound, median: spreadOf(ours).median / spreadOf(others).median };
}

/** Milliseconds that the work took, by a clock that does not run backwards. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
