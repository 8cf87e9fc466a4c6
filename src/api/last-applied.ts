// What `kubectl apply` was given, where the API server kept less. A JSON merge patch, which a client-side apply of a
// change is, drops every null inside of a list before any rule of the CRD sees it: a rule whose `to:` stands there with
// nothing below it becomes one without `to`, which means every destination. kubectl leaves what it was given in an
// annotation, so it can still be refused as it is on every other way into the cluster.
import { isObject, type JsonObject, own } from './fields.ts';

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
/** Policies are a few levels deep; an annotation can be as deep as it likes. */
const MAX_DEPTH = 16;

/** The object with the nulls of its last client-side apply, where it has nothing itself; else the object. */
export function withAppliedNulls(object: unknown): unknown {
  if (!isObject(object)) return object;
  const applied = lastApplied(object);
  const spec = own(object, 'spec');
  if (applied === undefined || !isObject(spec)) return object;
  return { ...object, spec: withNulls(spec, own(applied, 'spec'), 0) };
}

function lastApplied(object: JsonObject): JsonObject | undefined {
  const metadata = own(object, 'metadata');
  const annotations = isObject(metadata) ? own(metadata, 'annotations') : undefined;
  const text = isObject(annotations) ? own(annotations, LAST_APPLIED) : undefined;
  if (typeof text !== 'string') return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    return isObject(parsed) ? parsed : undefined;
  } catch {
    // Whoever edited it has no claim on us.
    return undefined;
  }
}

function withNulls(live: unknown, applied: unknown, depth: number): unknown {
  if (depth > MAX_DEPTH) return live;
  if (Array.isArray(live) && Array.isArray(applied)) {
    // Lists of another length, or with other names in them, were changed since by other means.
    if (live.length !== applied.length) return live;
    return live.map((item: unknown, i) =>
      sameName(item, applied[i]) ? withNulls(item, applied[i], depth + 1) : item,
    );
  }
  if (!isObject(live) || !isObject(applied)) return live;
  const merged = Object.entries(live).map(([key, value]): [string, unknown] => [
    key,
    withNulls(value, own(applied, key), depth + 1),
  ]);
  const nulls = Object.entries(applied).filter(([key, value]) => value === null && !Object.hasOwn(live, key));
  return Object.fromEntries([...merged, ...nulls]);
}

const sameName = (a: unknown, b: unknown): boolean =>
  isObject(a) && isObject(b) ? own(a, 'name') === own(b, 'name') : true;
