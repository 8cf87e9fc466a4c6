// When a write that failed may be tried again. Runs come whenever anything changes, many times a second in a large
// cluster: without this each of them would send again what was refused a moment ago.

export interface Retries {
  /** Why this may not be sent yet; undefined: it may. Another content of the same object always may. */
  held(key: string, content: string): { readonly why: string | undefined } | undefined;
  /** Whether it failed when it was sent last. */
  hasFailed(key: string): boolean;
  /** It was sent and not taken; `why` is a sentence, or undefined where another one wrote in between. */
  failed(key: string, content: string, why: string | undefined): void;
  /** It was sent and taken. */
  done(key: string): void;
  /** Forgets all but these: nobody wants to send them any more. */
  keep(keys: ReadonlySet<string>): void;
  /** Milliseconds until something may be tried again; undefined: nothing waits. */
  nextMs(): number | undefined;
}

interface Failure {
  readonly content: string;
  readonly why: string | undefined;
  readonly tries: number;
  readonly until: number;
}

const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;
/** What may be tried again already had no turn in this run, for whatever reason: no reason to run without a pause. */
const SOONEST_MS = 250;

/** `now` gives milliseconds that never run backwards. */
export function createRetries(now: () => number): Retries {
  const failures = new Map<string, Failure>();
  return {
    held(key, content) {
      const failure = failures.get(key);
      return failure?.content === content && failure.until > now() ? failure : undefined;
    },
    hasFailed: key => failures.has(key),
    failed(key, content, why) {
      const before = failures.get(key);
      const tries = before?.content === content ? before.tries + 1 : 1;
      const wait = Math.min(FIRST_MS * 2 ** (tries - 1), LONGEST_MS);
      failures.set(key, { content, why, tries, until: now() + wait });
    },
    done: key => void failures.delete(key),
    keep(keys) {
      for (const key of failures.keys()) if (!keys.has(key)) failures.delete(key);
    },
    nextMs() {
      if (failures.size === 0) return undefined;
      const first = Math.min(...[...failures.values()].map(({ until }) => until));
      return Math.max(first - now(), SOONEST_MS);
    },
  };
}
