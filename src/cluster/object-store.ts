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
  /** Takes an object as the API gave it. No change where what is kept of it is the same: then it is the same object. */
  put(raw: RawObject): readonly Change[];
  remove(name: string): readonly Change[];
  /** The names that are kept and are not among these. */
  missingFrom(names: ReadonlySet<string>): readonly string[];
}

interface Kept {
  readonly object: RawObject;
  readonly uid: unknown;
  readonly version: unknown;
}

export function createObjectStore(project: (object: RawObject) => RawObject): ObjectStore {
  const kept = new Map<string, Kept>();
  const objects = new Map<string, RawObject>();
  const set = (name: string, entry: Kept): void => {
    kept.set(name, entry);
    objects.set(name, entry.object);
  };
  const remove = (name: string): readonly Change[] => {
    const object = objects.get(name);
    kept.delete(name);
    objects.delete(name);
    return object === undefined ? [] : [{ type: 'DELETED', object }];
  };
  return {
    objects: () => objects,
    remove: name => remove(name),
    missingFrom: names => [...objects.keys()].filter(name => !names.has(name)),
    put(raw) {
      const { name, uid, resourceVersion: version } = raw.metadata;
      const old = kept.get(name);
      if (old !== undefined && old.uid === uid && old.version === version) return [];
      const object = project(raw);
      // Another object under a name that was free for a moment.
      if (old !== undefined && old.uid !== uid) {
        const gone = remove(name);
        set(name, { object, uid, version });
        return [...gone, { type: 'ADDED', object }];
      }
      if (old === undefined) {
        set(name, { object, uid, version });
        return [{ type: 'ADDED', object }];
      }
      if (isDeepStrictEqual(withoutVersion(old.object), withoutVersion(object))) {
        set(name, { object: old.object, uid, version });
        return [];
      }
      set(name, { object, uid, version });
      return [{ type: 'MODIFIED', object }];
    },
  };
}

const withoutVersion = ({ metadata, ...rest }: RawObject): unknown => ({
  ...rest,
  metadata: { ...metadata, resourceVersion: undefined },
});
