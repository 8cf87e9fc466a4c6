// The chart's values by their paths, such as operator.port.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { CHART } from './helm.ts';

export type Values = { readonly [key: string]: unknown };

/** Maps that people fill as they want; everything else is a map of the chart's own. */
const FREE = /\.(resources|nodeSelector|affinity|podLabels|podAnnotations|labels)$/;

export const chartValues = async (): Promise<Values> =>
  parse(await readFile(join(CHART, 'values.yaml'), 'utf8')) as Values;

/** Helm's arguments that set one value. */
export const set = (path: string, value: unknown): readonly string[] => [
  '--set-json',
  `${path}=${JSON.stringify(value)}`,
];

/** The paths of all values that are no map of the chart's own. */
export function leavesOf(value: unknown, path = ''): readonly string[] {
  if (!isMap(value) || FREE.test(path)) return [path];
  return Object.entries(value).flatMap(([key, inner]) =>
    leavesOf(inner, path === '' ? key : `${path}.${key}`),
  );
}

/** The chart's own maps, the outermost among them. */
export function mapsOf(value: unknown, path = ''): readonly string[] {
  if (!isMap(value) || FREE.test(path)) return [];
  const inner = Object.entries(value).flatMap(([key, it]) =>
    mapsOf(it, path === '' ? key : `${path}.${key}`),
  );
  return [path, ...inner];
}

const isMap = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
