// What is in the API as far as it is known: what the watch showed, and what was written since and the watch has not
// shown yet. Without the second part a run that follows at once would write the same again.
import type { RawObject } from '../cluster/api.ts';

export interface Known {
  /** The watched objects with what was written put over them. */
  over(watched: ReadonlyMap<string, RawObject>): ReadonlyMap<string, RawObject>;
  /** This is what a write made of the object. `lock` is its resourceVersion. */
  wrote(name: string, object: RawObject): void;
  /** The object with that uid was deleted. */
  deleted(name: string, uid: string): void;
  /** Something is not as it was believed to be: only what the watch shows counts. */
  forget(name: string): void;
  /** Milliseconds until the first of what was written and not shown is believed no more; undefined: all was shown. */
  doubtMs(): number | undefined;
}

type Entry = { readonly until: number } & ({ readonly object: RawObject } | { readonly deletedUid: string });

/**
 * How long a write is believed without being shown. The watch may never show it: what was made and deleted by another
 * between two runs was shown, but leaves no trace that is looked at.
 */
const BELIEVED_MS = 10_000;

/** `now` gives milliseconds that never run backwards. */
export function createKnown(now: () => number): Known {
  const entries = new Map<string, Entry>();
  return {
    over(watched) {
      for (const [name, entry] of entries) {
        if (entry.until <= now() || isShown(entry, watched.get(name))) entries.delete(name);
      }
      if (entries.size === 0) return watched;
      const merged = new Map(watched);
      for (const [name, entry] of entries) {
        if ('object' in entry) merged.set(name, entry.object);
        else merged.delete(name);
      }
      return merged;
    },
    wrote: (name, object) => void entries.set(name, { object, until: now() + BELIEVED_MS }),
    deleted: (name, uid) => void entries.set(name, { deletedUid: uid, until: now() + BELIEVED_MS }),
    forget: name => void entries.delete(name),
    doubtMs() {
      if (entries.size === 0) return undefined;
      const first = Math.min(...[...entries.values()].map(({ until }) => until));
      return Math.max(first - now(), 0);
    },
  };
}

/** Whether the watch has come as far as the write. Resource versions of one resource are ordered (Kubernetes 1.35). */
function isShown(entry: Entry, watched: RawObject | undefined): boolean {
  if ('deletedUid' in entry) return watched === undefined || watched.metadata.uid !== entry.deletedUid;
  if (watched === undefined) return false;
  const [shown, written] = [watched.metadata['lock'], entry.object.metadata['lock']];
  if (typeof shown !== 'string' || typeof written !== 'string') return true;
  return isNumber(shown) && isNumber(written) ? BigInt(shown) >= BigInt(written) : true;
}

const isNumber = (text: string): boolean => /^\d{1,30}$/.test(text);
