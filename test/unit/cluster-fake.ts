// Time that only tests move, and an API that says what a test wants it to say.
import { setImmediate } from 'node:timers/promises';
import {
  type Api,
  type ApiAnswer,
  ApiError,
  type ApiRequest,
  type RawObject,
  type WatchOptions,
} from '../../src/cluster/api.ts';
import type { Clock } from '../../src/kernel/clock.ts';

export interface VirtualClock extends Clock {
  /** Moves time, waking who sleeps one after the other, and lets each do what it does. */
  advance(ms: number): Promise<void>;
  /** As a process that was stopped: time has gone by, and no timer has run yet. */
  jump(ms: number): void;
  /** How many sleep. */
  readonly sleepers: number;
  /** All sleeps so far, in milliseconds. */
  readonly slept: readonly number[];
}

/** Lets everything run that needs no time. */
export const settle = (): Promise<void> => setImmediate();

export function virtualClock(): VirtualClock {
  let now = 0;
  const slept: number[] = [];
  const waiting = new Set<{ readonly at: number; readonly wake: () => void }>();
  const due = (until: number) => [...waiting].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)[0];
  return {
    now: () => now,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        slept.push(ms);
        const stop = (): void => {
          waiting.delete(entry);
          reject(signal?.reason as Error);
        };
        const wake = (): void => {
          waiting.delete(entry);
          signal?.removeEventListener('abort', stop);
          resolve();
        };
        const entry = { at: now + ms, wake };
        if (signal?.aborted === true) return stop();
        waiting.add(entry);
        signal?.addEventListener('abort', stop, { once: true });
      }),
    async advance(ms) {
      const until = now + ms;
      await settle();
      for (let next = due(until); next !== undefined; next = due(until)) {
        now = Math.max(now, next.at);
        next.wake();
        await settle();
      }
      now = until;
    },
    jump: ms => void (now += ms),
    get sleepers() {
      return waiting.size;
    },
    slept,
  };
}

export interface FakeWatch {
  readonly path: string;
  readonly options: WatchOptions;
  /** Events that come together. */
  send(...events: unknown[]): void;
  end(): void;
  fail(error: Error): void;
  /** Whether the reader let go of it, or it ended. */
  readonly over: boolean;
}

export interface FakeApi extends Api {
  readonly requests: readonly ApiRequest[];
  readonly watches: readonly FakeWatch[];
  /** The newest. */
  readonly lastWatch: FakeWatch;
}

export interface FakeParts {
  readonly answer?: (request: ApiRequest, count: number) => ApiAnswer | Promise<ApiAnswer>;
  /** What it throws is why the watch cannot be opened; else it may send and end at once. */
  readonly opened?: (watch: FakeWatch, count: number) => void;
}

export function fakeApi({ answer, opened }: FakeParts): FakeApi {
  const requests: ApiRequest[] = [];
  const watches: FakeWatch[] = [];
  return {
    requests,
    watches,
    get lastWatch() {
      const last = watches.at(-1);
      if (last === undefined) throw new Error('there is no watch yet');
      return last;
    },
    async request(request, signal) {
      signal?.throwIfAborted();
      requests.push(request);
      const said = answer?.(request, requests.length) ?? { status: 404, body: {} };
      return abortable(Promise.resolve(said), signal);
    },
    async *watch(path, options, signal) {
      signal.throwIfAborted();
      const stream = createStream(path, options);
      watches.push(stream.watch);
      opened?.(stream.watch, watches.length);
      try {
        yield [];
        for (;;) {
          const batch = await abortable(stream.next(), signal);
          if (batch === undefined) return;
          yield batch;
        }
      } finally {
        stream.close();
      }
    },
  };
}

function createStream(path: string, options: WatchOptions) {
  const steps: (() => readonly unknown[] | undefined)[] = [];
  let wake: () => void = () => {};
  let over = false;
  const step = (what: () => readonly unknown[] | undefined): void => {
    steps.push(what);
    wake();
  };
  const watch: FakeWatch = {
    path,
    options,
    send: (...events) => step(() => events),
    end: () => step(() => undefined),
    fail: error =>
      step(() => {
        throw error;
      }),
    get over() {
      return over;
    },
  };
  return {
    watch,
    close: () => void (over = true),
    async next(): Promise<readonly unknown[] | undefined> {
      while (steps.length === 0) await new Promise<void>(resolve => void (wake = resolve));
      return steps.shift()?.();
    },
  };
}

const abortable = <T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> =>
  new Promise((resolve, reject) => {
    const stop = (): void => reject(signal?.reason as Error);
    if (signal?.aborted === true) stop();
    signal?.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject).finally(() => signal?.removeEventListener('abort', stop));
  });

/** An object as an API server gives it. */
export const thing = (name: string, version: number | string, more: object = {}): RawObject => ({
  apiVersion: 'v1',
  kind: 'Thing',
  metadata: { name, uid: `uid-${name}`, resourceVersion: String(version) },
  ...more,
});

export const listOf = (version: number | string, items: readonly unknown[], token = ''): ApiAnswer => ({
  status: 200,
  body: {
    kind: 'ThingList',
    items,
    metadata: { resourceVersion: String(version), ...(token === '' ? {} : { continue: token }) },
  },
});

export const event = (type: string, object: unknown): unknown => ({ type, object });

export const bookmark = (version: number | string): unknown =>
  event('BOOKMARK', { kind: 'Thing', metadata: { resourceVersion: String(version) } });

export const refusal = (status: number, reason = 'Refused'): ApiAnswer => ({
  status,
  body: { kind: 'Status', status: 'Failure', reason, message: `the server says ${status}`, code: status },
});

export const noAnswer = (why = 'connection refused'): ApiError => new ApiError(`GET /things: ${why}`);

/** The part of a path behind the question mark. */
export const queryOfPath = (path: string): Readonly<Record<string, string>> =>
  Object.fromEntries(new URLSearchParams(path.split('?')[1] ?? ''));

export const recordingLog = () => {
  const lines: { readonly level: 'info' | 'warn'; readonly message: string; readonly fields: object }[] = [];
  return {
    lines,
    info: (fields: object, message: string) => void lines.push({ level: 'info', message, fields }),
    warn: (fields: object, message: string) => void lines.push({ level: 'warn', message, fields }),
  };
};
