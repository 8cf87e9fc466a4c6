// Members of objects of which nothing is known but that they came from the API: what is not there, or is not what it
// should be, is read as absent.
import { isObject, own } from '../api/fields.ts';
import type { RawObject } from '../cluster/api.ts';

export const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((inner, name) => (isObject(inner) ? own(inner, name) : undefined), value);

/** Empty when there is no text. */
export function textAt(value: unknown, ...path: readonly string[]): string {
  const found = at(value, ...path);
  return typeof found === 'string' ? found : '';
}

export function numberAt(value: unknown, ...path: readonly string[]): number | null {
  const found = at(value, ...path);
  return typeof found === 'number' ? found : null;
}

/** Seconds from an RFC 3339 time to `now` (milliseconds); null without one. Clocks differ: never below 0. */
export function secondsSince(now: number, value: unknown, ...path: readonly string[]): number | null {
  const time = Date.parse(textAt(value, ...path));
  return Number.isNaN(time) ? null : Math.max(0, Math.round((now - time) / 1000));
}

export interface Condition {
  readonly status: string;
  readonly reason: string;
  /** Reason and message in one. */
  readonly text: string;
}

/** A condition of the object's status, if it says something about it. */
export function conditionOf(object: RawObject, type: string): Condition | undefined {
  const conditions = at(object, 'status', 'conditions');
  const found: unknown = Array.isArray(conditions)
    ? conditions.find(it => textAt(it, 'type') === type)
    : undefined;
  if (found === undefined) return undefined;
  const reason = textAt(found, 'reason') || 'Unknown';
  return { status: textAt(found, 'status'), reason, text: `${reason}: ${textAt(found, 'message')}` };
}

/** As `conditionOf`, where it has that status. */
export function conditionIn(object: RawObject, type: string, status: string): Condition | undefined {
  const found = conditionOf(object, type);
  return found?.status === status ? found : undefined;
}
