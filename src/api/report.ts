// Where readers say what is wrong, and how they name fields and values.
import type { Fault, Validated } from './model.ts';

/** Collects what is found in one object; made and emptied by `validated`, filled by readers. */
export interface Report {
  readonly faults: Fault[];
  readonly warnings: Fault[];
}

/**
 * Reads one value at one field. Says every fault of it and returns undefined, or returns what it read. Never throws,
 * whatever JSON it is given.
 */
export type Reader<T> = (value: unknown, field: string, report: Report) => T | undefined;

/** Longest quoted value or key in a message: messages go into conditions, logs and terminals. */
const MAX_QUOTED = 80;

/** Characters that would break a line or turn a terminal around, beyond those that JSON escapes itself. */
const UNPRINTABLE = /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

const escapeUnit = (text: string): string => `\\u${text.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** A value as it stands in a message: scalars as JSON, cut when long; lists and objects by their kind only. */
export function quote(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value !== 'string') return String(value);
  const cut = value.length > MAX_QUOTED;
  // Cut first: the value may be megabytes long.
  const json = JSON.stringify(cut ? value.slice(0, MAX_QUOTED - 20) : value);
  const text = json.replaceAll(UNPRINTABLE, escapeUnit);
  return cut ? `${text}… (${value.length} characters)` : text;
}

/** The path of a member: a.b, or a["b c"] where the key is no plain name. */
export function member(field: string, key: string): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(key)) return `${field}[${quote(key)}]`;
  return field === '' ? key : `${field}.${key}`;
}

/** Says what is wrong with the value and returns undefined, so that a reader can end with it. */
export function refuse(report: Report, field: string, reason: string): undefined {
  report.faults.push({ field, reason });
}

/** Runs a reader over one object and gives its verdict with all faults and warnings. */
export function validated<T>(read: Reader<T>, object: unknown): Validated<T> {
  const report: Report = { faults: [], warnings: [] };
  const value = read(object, '', report);
  return report.faults.length === 0 && value !== undefined
    ? { ok: true, value, warnings: report.warnings }
    : { ok: false, faults: report.faults, warnings: report.warnings };
}
