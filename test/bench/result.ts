// What a row of the benchmark says, and how it is printed.
import { beyond, ratioOf, type Spread, spreadOf } from './measure.ts';

export interface Row {
  /** The part of the benchmark that it belongs to, as --only takes it. */
  readonly part: PartName;
  /** nft, legacy, or - where no kernel is asked. */
  readonly backend: string;
  /** What was measured of ours, in a few words. */
  readonly ours: string;
  readonly unit: 'µs' | 'ms';
  readonly value: Spread;
  /** What a user would pick instead, or what ours is held against. */
  readonly other?: { readonly name: string; readonly value: Spread };
  /** ours / other. */
  readonly ratio?: Spread;
  readonly goal?: Goal;
  /** Only with a goal. */
  readonly met?: boolean;
}

export const PART_NAMES = ['exemptions', 'policies', 'one-more', 'first-apply', 'check', 'plan'] as const;
export type PartName = (typeof PART_NAMES)[number];

export interface Goal {
  readonly of: 'ratio' | 'value';
  readonly atMost: number;
}

export interface Measured {
  readonly part: PartName;
  readonly backend: string;
  readonly unit: Row['unit'];
  readonly ours: string;
  readonly values: readonly number[];
  readonly other?: {
    readonly name: string;
    readonly values: readonly number[];
    /** Where it is not that of ours. */
    readonly floor?: readonly number[];
  };
  /** Taken from the values, round by round. */
  readonly floor?: readonly number[];
  readonly goal?: Goal;
}

/** The row of what was measured. The medians decide whether its goal is met. */
export function rowOf({ values, other, floor, goal, ...head }: Measured): Row {
  const ours = above(values, floor);
  const value = spreadOf(ours);
  if (other === undefined) return { ...head, value, ...verdict(goal, value, undefined) };
  const others = above(other.values, other.floor ?? floor);
  const ratio = ratioOf(ours, others);
  return {
    ...head,
    value,
    other: { name: other.name, value: spreadOf(others) },
    ratio,
    ...verdict(goal, value, ratio),
  };
}

const above = (values: readonly number[], floor: readonly number[] | undefined): readonly number[] =>
  floor === undefined ? values : beyond(values, floor);

function verdict(
  goal: Goal | undefined,
  value: Spread,
  ratio: Spread | undefined,
): { readonly goal?: Goal; readonly met?: boolean } {
  if (goal === undefined) return {};
  const judged = goal.of === 'ratio' ? ratio : value;
  return { goal, met: judged !== undefined && judged.median <= goal.atMost };
}

const HEAD = ['part', 'backend', 'ours', '', 'against', '', 'ratio', 'goal', ''];

/** The rows as a table with a head. */
export function tableOf(rows: readonly Row[]): string {
  const lines = [HEAD, ...rows.map(cells)];
  const widths = HEAD.map((_, column) => Math.max(...lines.map(line => (line[column] ?? '').length)));
  return lines
    .map(line =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .map(line => `${line}\n`)
    .join('');
}

function cells(row: Row): readonly string[] {
  const { other, ratio, goal } = row;
  return [
    row.part,
    row.backend,
    row.ours,
    spreadText(row.value, row.unit),
    other?.name ?? '',
    other === undefined ? '' : spreadText(other.value, row.unit),
    ratio === undefined ? '' : spreadText(ratio, ''),
    goal === undefined ? '' : `≤ ${goal.atMost}${goal.of === 'value' ? ` ${row.unit}` : ''}`,
    row.met === undefined ? '' : row.met ? 'met' : 'MISSED',
  ];
}

const spreadText = ({ median, low, high }: Spread, unit: string): string =>
  `${short(median)}${unit === '' ? '' : ` ${unit}`} (${short(low)}–${short(high)})`;

/** Three digits are more than the measuring is good for. */
const short = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
