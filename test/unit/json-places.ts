// Values inside of JSON by their paths, for tests that put something else in their place.

export type Place = readonly (string | number)[];

/** The paths of all values in the JSON, and for each object one that it lacks. */
export function placesOf(json: unknown, at: Place = []): readonly Place[] {
  if (typeof json !== 'object' || json === null) return [at];
  const isList = Array.isArray(json);
  const inside = Object.entries(json).flatMap(([key, value]) =>
    placesOf(value, [...at, isList ? Number(key) : key]),
  );
  return [...(at.length === 0 ? [] : [at]), ...inside, [...at, isList ? json.length : 'toString']];
}

/** A copy with that value at the place. */
export function withValue(json: unknown, [key, ...rest]: Place, value: unknown): unknown {
  if (key === undefined) return value;
  const copy = Array.isArray(json) ? [...json] : { ...(json as object) };
  Reflect.set(copy, key, withValue(Reflect.get(copy, key), rest, value));
  return copy;
}
