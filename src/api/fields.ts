// Readers of JSON shapes, from which the readers of kinds are put together. A null is never read as an absent field,
// except where the CRD has a default: there an API server puts the default in the place of a null.
import { member, quote, type Reader, type Report, refuse } from './report.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Whether the JSON has the member; names of Object.prototype are there only when the JSON has them. */
export const has = (object: JsonObject, key: string): boolean =>
  Object.hasOwn(object, key) && object[key] !== undefined;

export const own = (object: JsonObject, key: string): unknown =>
  Object.hasOwn(object, key) ? object[key] : undefined;

/** A string that `accepts` is true of; `what` completes "… is not". */
export function string(accepts: (text: string) => boolean, what: string): Reader<string> {
  return (value, field, report) => {
    if (typeof value !== 'string') return refuse(report, field, `${quote(value)} is not a string`);
    return accepts(value) ? value : refuse(report, field, `${quote(value)} is not ${what}`);
  };
}

/** A whole number from min to max. */
export function integer(min: number, max: number): Reader<number> {
  return (value, field, report) =>
    typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max
      ? value
      : refuse(report, field, `${quote(value)} is not a whole number of ${min} to ${max}`);
}

export const boolean: Reader<boolean> = (value, field, report) =>
  typeof value === 'boolean' ? value : refuse(report, field, `${quote(value)} is not true or false`);

/** One of the given strings. */
export function oneOf<T extends string>(...values: readonly T[]): Reader<T> {
  return (value, field, report) =>
    values.find(known => known === value) ??
    refuse(report, field, `${quote(value)} is not one of ${values.join(', ')}`);
}

/**
 * A list of 1 to max items. An empty list is a fault: its author may have meant "nothing", and absence means
 * "everything". All items are read, so that the faults of all are told.
 */
export function list<T>(item: Reader<T>, max: number): Reader<readonly T[]> {
  return (value, field, report) => {
    if (!Array.isArray(value)) return refuse(report, field, `${quote(value)} is not a list`);
    if (value.length === 0) return refuse(report, field, `is empty; 1 to ${max} items are expected`);
    if (value.length > max)
      return refuse(report, field, `has ${value.length} items; 1 to ${max} are expected`);
    return items(value, item, field, report);
  };
}

/** The items of a list of any length, as far as they can be read; undefined when one cannot. */
function items<T>(
  values: readonly unknown[],
  item: Reader<T>,
  field: string,
  report: Report,
): readonly T[] | undefined {
  const read: T[] = [];
  values.forEach((value, index) => {
    const found = present(item, value, `${field}[${index}]`, report);
    if (found !== undefined) read.push(found);
  });
  return read.length === values.length ? read : undefined;
}

/** A list of which no two items are equal; the second of two is the fault. */
export function set(item: Reader<string>, max: number): Reader<readonly string[]> {
  const read = list(item, max);
  return (value, field, report) => {
    const found = read(value, field, report);
    const twice = found?.findIndex((text, index) => found.indexOf(text) !== index) ?? -1;
    if (found === undefined || twice < 0) return found;
    const text = found[twice] as string;
    return refuse(report, `${field}[${twice}]`, `${quote(text)} stands at [${found.indexOf(text)}] already`);
  };
}

/** How one field of an object is read, and what its absence means. */
export interface Member<T, Certain extends boolean> {
  readonly read: Reader<T>;
  readonly absent: 'fault' | 'absent' | { readonly fallback: T | undefined };
  /** Whether the field is there in what was read; for the compiler only. */
  readonly certain?: Certain;
}

export const required = <T>(read: Reader<T>): Member<T, true> => ({ read, absent: 'fault' });
export const optional = <T>(read: Reader<T>): Member<T, false> => ({ read, absent: 'absent' });
/** For fields that have a default; a null is given it too. */
export const defaulted = <T>(read: Reader<T>, fallback: T): Member<T, true> => ({
  read,
  absent: { fallback },
});
/** For fields of others, where Kubernetes and Calico read a null as absent. */
export const nullable = <T>(read: Reader<T>): Member<T, false> => ({ read, absent: { fallback: undefined } });

type Members = Readonly<Record<string, Member<unknown, boolean>>>;
type ValueOf<M> = M extends Member<infer T, boolean> ? T : never;
type CertainKeys<S extends Members> = {
  [K in keyof S]: S[K] extends Member<unknown, true> ? K : never;
}[keyof S];
export type ObjectOf<S extends Members> = { readonly [K in CertainKeys<S>]: ValueOf<S[K]> } & {
  readonly [K in Exclude<keyof S, CertainKeys<S>>]?: ValueOf<S[K]>;
};

/**
 * Looks at an object as a whole, also when some of its members are bad, so that all faults are told at once: `read`
 * has the members that could be read, `raw` all that are there.
 */
export type Check<S extends Members> = (
  read: Partial<ObjectOf<S>>,
  raw: JsonObject,
  field: string,
  report: Report,
) => void;

/**
 * An object with these members. Others are faults when `unknown` is 'refuse': a misspelt field must not be passed
 * over. They are 'ignore'd in kinds that are not ours.
 */
export function object<S extends Members>(
  members: S,
  unknown: 'refuse' | 'ignore',
  check?: Check<S>,
): Reader<ObjectOf<S>> {
  const names = Object.keys(members);
  return (value, field, report) => {
    if (!isObject(value)) return refuse(report, field, `${quote(value)} is not an object`);
    const before = report.faults.length;
    if (unknown === 'refuse') refuseOthers(value, names, field, report);
    const entries: [string, unknown][] = [];
    for (const name of names) {
      const how = members[name] as Member<unknown, boolean>;
      const found = readMember(how, own(value, name), member(field, name), report);
      if (found !== undefined) entries.push([name, found]);
    }
    const read = Object.fromEntries(entries) as ObjectOf<S>;
    check?.(read, value, field, report);
    return report.faults.length === before ? read : undefined;
  };
}

function refuseOthers(value: JsonObject, names: readonly string[], field: string, report: Report): void {
  for (const key of Object.keys(value)) {
    if (names.includes(key)) continue;
    refuse(report, member(field, key), `is not a known field; known here are ${names.join(', ')}`);
  }
}

function readMember<T>(
  how: Member<T, boolean>,
  value: unknown,
  field: string,
  report: Report,
): T | undefined {
  if (typeof how.absent === 'object' && (value === undefined || value === null)) return how.absent.fallback;
  if (value !== undefined) return present(how.read, value, field, report);
  return how.absent === 'fault' ? refuse(report, field, 'is required') : undefined;
}

function present<T>(read: Reader<T>, value: unknown, field: string, report: Report): T | undefined {
  return value === null
    ? refuse(report, field, 'is null; leave it out or give it a value')
    : read(value, field, report);
}

/** Says when not exactly one of the members is there; a null, which is a fault already, may have meant either. */
export function exactlyOne(names: readonly string[]): Check<Members> {
  const joined = `${names.slice(0, -1).join(', ')} and ${names[names.length - 1]}`;
  return (_read, raw, field, report) => {
    const there = names.filter(name => has(raw, name));
    if (there.length === 1 || there.some(name => raw[name] === null)) return;
    const found = there.length === 0 ? 'there is none' : `there are ${there.join(' and ')}`;
    refuse(report, field, `exactly one of ${joined} is required; ${found}`);
  };
}

/** A map from any key to strings, as labels and annotations are. */
export const stringMap: Reader<Readonly<Record<string, string>>> = (value, field, report) => {
  if (!isObject(value)) return refuse(report, field, `${quote(value)} is not an object`);
  const entries: [string, string][] = [];
  for (const [key, text] of Object.entries(value)) {
    if (typeof text === 'string') entries.push([key, text]);
    else refuse(report, member(field, key), `${quote(text)} is not a string`);
  }
  return Object.fromEntries(entries);
};

/** What a reader read, made into something else. */
export function mapped<A, B>(read: Reader<A>, make: (value: A) => B): Reader<B> {
  return (value, field, report) => {
    const found = read(value, field, report);
    return found === undefined ? undefined : make(found);
  };
}
