// JSON of unknown shape, as nft prints it.
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: Json;
}

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !isList(value);

export const isList = (value: Json | undefined): value is readonly Json[] => Array.isArray(value);

/** The one key of an object such as {"meta": {"key": "mark"}}, by which nft names an expression, and its value. */
export function expressionOf(value: Json | undefined): readonly [kind: string, value: Json] {
  const entries = isObject(value) ? Object.entries(value) : [];
  return entries.length === 1 ? (entries[0] as [string, Json]) : ['', null];
}

/** A member of an object; undefined for what is no object or lacks it. */
export const member = (value: Json | undefined, key: string): Json | undefined =>
  isObject(value) ? value[key] : undefined;

/** A member that is text or a number, as text; empty for what is neither. */
export function textOf(value: Json | undefined, key: string): string {
  const found = member(value, key);
  return typeof found === 'string' || typeof found === 'number' ? String(found) : '';
}
