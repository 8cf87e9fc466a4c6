// The objects of one collection by name, as far as they are kept, and what of them changed. Pure.
import { isDeepStrictEqual } from 'node:util';
import type { RawObject } from './api.ts';

export interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  /** As it is kept; of a deleted one what was kept last. */
  readonly object: RawObject;
}

export interface ObjectStore {
  objects(): ReadonlyMap<string, RawObject>;
  /** What would be kept of an object that the API gave: so much of a long list is held until the list is whole. */
  prepare(raw: RawObject): Prepared;
  /** No change where what is kept is the same: then it is the same object. */
  put(prepared: Prepared): readonly Change[];
  remove(name: string): readonly Change[];
  /** The names that are kept and are not among these. */
  missingFrom(names: ReadonlySet<string>): readonly string[];
}

export interface Prepared {
  readonly name: string;
  readonly uid: unknown;
  readonly version: unknown;
  readonly object: RawObject;
}

/** `project` says what is kept of an object. */
export function createObjectStore(project: (object: RawObject) => RawObject): ObjectStore {
  const kept = new Map<string, Prepared>();
  const objects = new Map<string, RawObject>();
  const set = (entry: Prepared): void => {
    kept.set(entry.name, entry);
    objects.set(entry.name, entry.object);
  };
  const remove = (name: string): readonly Change[] => {
    const object = objects.get(name);
    kept.delete(name);
    objects.delete(name);
    return object === undefined ? [] : [{ type: 'DELETED', object }];
  };
  return {
    objects: () => objects,
    remove,
    missingFrom: names => [...objects.keys()].filter(name => !names.has(name)),
    prepare(raw) {
      const { name, uid, resourceVersion: version } = raw.metadata;
      const old = kept.get(name);
      if (old !== undefined && old.uid === uid && old.version === version) return old;
      return { name, uid, version, object: project(raw) };
    },
    put(prepared) {
      const { name, object } = prepared;
      const old = kept.get(name);
      if (old === prepared) return [];
      // Another object under a name that was free for a moment.
      const gone = old === undefined || old.uid === prepared.uid ? [] : remove(name);
      if (old === undefined || gone.length > 0) {
        set(prepared);
        return [...gone, { type: 'ADDED', object }];
      }
      if (isDeepStrictEqual(withoutVersion(old.object), withoutVersion(object))) {
        set({ ...prepared, object: old.object });
        return [];
      }
      set(prepared);
      return [{ type: 'MODIFIED', object }];
    },
  };
}

const withoutVersion = ({ metadata, ...rest }: RawObject): unknown => ({
  ...rest,
  metadata: { ...metadata, resourceVersion: undefined },
});
