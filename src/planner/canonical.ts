import { isObject } from '../api/fields.ts';

/** JSON text that is the same for the same value, whatever the order of its keys. Throws RangeError on mad nesting. */
export const canonicalJson = (value: unknown): string => JSON.stringify(value, sortKeys) ?? '';

const sortKeys = (_key: string, value: unknown): unknown =>
  isObject(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;
