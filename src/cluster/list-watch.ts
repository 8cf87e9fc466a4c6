// Lists a collection and watches it from there, for ever: what was seen last stays known whatever fails, and an object
// is gone only when somebody says so.
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import { type Api, ApiError, type RawObject, type Resource } from './api.ts';
import { type BackoffLimits, DEFAULT_BACKOFF, retryMs } from './backoff.ts';
import type { ConfirmDeletes } from './crd-deletes.ts';
import { listAll, namedObject, queryOf } from './list.ts';
import { type Change, createObjectStore, type Prepared } from './object-store.ts';

export type { Change } from './object-store.ts';

export interface ListWatchParts {
  readonly api: Api;
  readonly resource: Resource;
  readonly clock: Clock;
  /** Milliseconds of the wall clock, for people. */
  readonly wallClock: () => number;
  /** From 0 to 1. */
  readonly random: () => number;
  readonly log: KernelLog;
  /** What is kept of an object. Two that are equal but for metadata.resourceVersion are no change. */
  readonly project?: (object: RawObject) => RawObject;
  readonly onChange: (change: Change) => void;
  readonly onHealth?: (health: Health) => void;
  /** Asked when objects are seen to be deleted; without it they always are. */
  readonly confirmDeletes?: ConfirmDeletes;
  readonly pageSize?: number;
  readonly backoff?: BackoffLimits;
  /** API servers send a bookmark about once a minute. */
  readonly silenceMs?: number;
}

export interface Health {
  /** It was whole at least once. */
  readonly listed: boolean;
  /** Why what is known may be old; absent when it is not. */
  readonly failing?: Failing;
}

export interface Failing {
  /** Milliseconds of the wall clock. */
  readonly since: number;
  /** gone: the kind is not served (404), or is being removed. */
  readonly kind: 'gone' | 'failing';
  readonly reason: string;
}

export interface ListWatch {
  /** Resolves when the signal aborts, and not before; to be called once. */
  run(signal: AbortSignal): Promise<void>;
  /** What is known, by name. */
  objects(): ReadonlyMap<string, RawObject>;
  health(): Health;
}

const PAGE_SIZE = 500;
const SILENCE_MS = 90_000;
/** A server ends a watch after so many seconds, so that its clients spread over new servers. */
const WATCH_SECONDS = { least: 300, more: 300 };
/** A watch that ends sooner is a failure as far as pauses go, or a server that ends all of them would be stormed. */
const SHORT_LIFE_MS = 1_000;
/** A server that says so much is there again: the list is not paid for with the pauses of its absence. */
const MOST_WHEN_TOO_OLD = 3;

/** The collection has to be listed anew. */
class Relist extends Error {
  /** What we know is too old to go on from; a new list mends it. */
  readonly tooOld: boolean;
  constructor(message: string, tooOld: boolean) {
    super(message);
    this.tooOld = tooOld;
  }
}

export function createListWatch(parts: ListWatchParts): ListWatch {
  const { api, resource, clock, wallClock, random, log } = parts;
  const { pageSize = PAGE_SIZE, silenceMs = SILENCE_MS, backoff = DEFAULT_BACKOFF } = parts;
  const store = createObjectStore(parts.project ?? (object => object));
  let health: Health = { listed: false };
  let version: string | undefined;
  let failures = 0;
  let forgiven = false;
  let started = false;

  const setHealth = (next: Health): void => {
    const same = next.listed === health.listed && next.failing?.reason === health.failing?.reason;
    if (same && next.failing?.kind === health.failing?.kind) return;
    health = next;
    parts.onHealth?.(next);
  };
  const well = (listed = health.listed): void => {
    if (health.failing !== undefined) log.info({ path: resource.path }, 'can be read again');
    setHealth({ listed });
  };
  const fail = (kind: Failing['kind'], reason: string): void => {
    const said = { path: resource.path, why: reason };
    // A group that a cluster does not serve is nothing to worry about.
    if (health.failing === undefined && kind === 'gone' && !health.listed) log.info(said, 'is not served');
    else if (health.failing === undefined) log.warn(said, 'cannot be read; what is known stays');
    const since = health.failing?.since ?? wallClock();
    setHealth({ listed: health.listed, failing: { since, kind, reason } });
  };
  const emit = (changes: readonly Change[]): void => changes.forEach(change => parts.onChange(change));
  const pause = (after: number, signal: AbortSignal, retryAfterMs?: number): Promise<void> =>
    clock.sleep(retryMs(after, random(), retryAfterMs, backoff), signal);

  /** Whether deletes are real; asks until there is an answer. */
  const areReal = async (signal: AbortSignal): Promise<boolean> => {
    if (parts.confirmDeletes === undefined) return true;
    for (let tries = 1; ; tries++) {
      try {
        const answer = await parts.confirmDeletes(signal);
        if (answer === 'real') return true;
        fail('gone', `GET ${resource.path}: the kind is being removed`);
        return false;
      } catch (error) {
        signal.throwIfAborted();
        fail('failing', `deletes cannot be confirmed: ${messageOf(error)}`);
        await pause(tries, signal, error instanceof ApiError ? error.retryAfterMs : undefined);
      }
    }
  };

  const list = async (signal: AbortSignal): Promise<void> => {
    const names = new Set<string>();
    const fresh: Prepared[] = [];
    const hold = (object: RawObject): void => {
      names.add(object.metadata.name);
      fresh.push(store.prepare(object));
    };
    const { resourceVersion } = await listAll(api, resource, pageSize, hold, signal);
    const missing = store.missingFrom(names);
    const real = missing.length === 0 || (await areReal(signal));
    for (const object of fresh) emit(store.put(object));
    if (!real) throw new Relist('the kind is being removed', false);
    for (const name of missing) emit(store.remove(name));
    version = resourceVersion;
    well(true);
  };

  /** The events that came together, in their order; deletes among them are confirmed once. */
  const take = async (batch: readonly unknown[], signal: AbortSignal): Promise<void> => {
    let confirmed = false;
    for (const event of batch) {
      const { type, object } = readEvent(event, resource.path);
      if (type === 'DELETED') {
        confirmed ||= await areReal(signal);
        if (!confirmed) throw new Relist('the kind is being removed', false);
        emit(store.remove(object.metadata.name));
      } else if (type !== 'BOOKMARK') emit(store.put(store.prepare(object)));
      const seen = object.metadata.resourceVersion;
      if (typeof seen === 'string' && seen !== '') version = seen;
    }
  };

  const watch = async (from: string, signal: AbortSignal): Promise<void> => {
    const seconds = Math.round(WATCH_SECONDS.least + random() * WATCH_SECONDS.more);
    const query = queryOf(resource, {
      watch: '1',
      resourceVersion: from,
      allowWatchBookmarks: 'true',
      timeoutSeconds: String(seconds),
    });
    let openedAt: number | undefined;
    const lasted = (): boolean => openedAt !== undefined && clock.now() - openedAt >= SHORT_LIFE_MS;
    try {
      for await (const batch of api.watch(`${resource.path}${query}`, { silenceMs }, signal)) {
        openedAt ??= clock.now();
        await take(batch, signal);
        well();
      }
    } finally {
      if (lasted()) {
        failures = 0;
        forgiven = false;
      }
    }
    if (lasted()) return;
    failures += 1;
    await pause(failures, signal);
  };

  /** Says what failed, forgets what cannot be gone on from, and waits. */
  const recover = async (error: unknown, signal: AbortSignal): Promise<void> => {
    const refused = error instanceof ApiError ? error : undefined;
    const tooOld = error instanceof Relist ? error.tooOld : refused?.status === 410;
    if (error instanceof Relist || tooOld || refused?.status === 404) version = undefined;
    // Once, however many tries failed before: whoever was away for long has a version that is too old. A server that
    // finds every version too old must not be asked for whole lists without a pause.
    if (tooOld && !forgiven) {
      forgiven = true;
      failures = Math.min(failures, MOST_WHEN_TOO_OLD);
      return;
    }
    failures += 1;
    if (!(error instanceof Relist)) fail(refused?.status === 404 ? 'gone' : 'failing', messageOf(error));
    await pause(failures, signal, refused?.retryAfterMs);
  };

  return {
    objects: () => store.objects(),
    health: () => health,
    async run(signal) {
      if (started) throw new Error('a list-and-watch runs once');
      started = true;
      while (!signal.aborted) {
        try {
          if (version === undefined) await list(signal);
          else await watch(version, signal);
        } catch (error) {
          if (signal.aborted) return;
          // It rejects on an abort; and where a callback of ours throws, which must not make a storm.
          await recover(error, signal)
            .catch(() => pause(failures, signal))
            .catch(() => {});
        }
      }
    },
  };
}

type EventType = 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
const EVENT_TYPES: readonly unknown[] = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK'];

/** The event, if it is one; an ERROR says that the watch cannot go on, and 410 that its version is too old. */
function readEvent(event: unknown, path: string): { readonly type: EventType; readonly object: RawObject } {
  const { type, object } = (event ?? {}) as { readonly type?: unknown; readonly object?: unknown };
  if (type === 'ERROR') {
    const { code, message } = (object ?? {}) as { readonly code?: unknown; readonly message?: unknown };
    throw new Relist(`the watch of ${path} ended: ${String(message)}`, code === 410);
  }
  if (!EVENT_TYPES.includes(type)) throw new Relist(`the watch of ${path} said what is no event`, false);
  if (type === 'BOOKMARK') {
    const metadata = (object as { metadata?: object } | undefined)?.metadata;
    return { type: 'BOOKMARK', object: { metadata: { name: '', ...metadata } } };
  }
  return { type: type as EventType, object: namedObject(path, object) };
}
