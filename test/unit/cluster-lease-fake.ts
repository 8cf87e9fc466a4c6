// One Lease with optimistic locks, and processes that contend for it; their time, faults and stops are the test's.
import type { Api, ApiAnswer, ApiRequest } from '../../src/cluster/api.ts';
import { type Leadership, runLeading } from '../../src/cluster/lease.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { noAnswer, recordingLog, refusal, type VirtualClock } from './cluster-fake.ts';

export interface Lease {
  metadata: { resourceVersion: string; labels?: object };
  spec: {
    holderIdentity: string;
    leaseDurationSeconds: number;
    renewTime: string;
    acquireTime: string;
    leaseTransitions: number;
  };
}

export function leaseServer() {
  let lease: Lease | undefined;
  let version = 0;
  const hooks: { onWrite: (() => void) | undefined } = { onWrite: undefined };
  const put = (body: unknown): ApiAnswer => {
    lease = structuredClone(body) as Lease;
    lease.metadata.resourceVersion = String(++version);
    return { status: 200, body: structuredClone(lease) };
  };
  return {
    /** Called once, when the next write has come. */
    onNextWrite: (hook: () => void) => void (hooks.onWrite = hook),
    get lease() {
      if (lease === undefined) throw new Error('there is no lease');
      return lease;
    },
    put,
    label: () => void put({ ...lease, metadata: { ...lease?.metadata, labels: { a: 'b' } } }),
    remove: () => void (lease = undefined),
    answer({ method, body }: ApiRequest): ApiAnswer {
      if (method === 'GET')
        return lease === undefined ? refusal(404) : { status: 200, body: structuredClone(lease) };
      hooks.onWrite?.();
      hooks.onWrite = undefined;
      if (method === 'POST') return lease === undefined ? { ...put(body), status: 201 } : refusal(409);
      if (lease === undefined) return refusal(404);
      const seen = (body as Lease).metadata.resourceVersion;
      return seen === lease.metadata.resourceVersion ? put(body) : refusal(409);
    },
  };
}

export type LeaseServer = ReturnType<typeof leaseServer>;

export type Fault = 'none' | 'unreachable' | 'answer lost' | 'refused';

export interface Contender {
  readonly name: string;
  readonly stop: AbortController;
  readonly done: Promise<void>;
  readonly leaderships: readonly Leadership[];
  readonly log: ReturnType<typeof recordingLog>;
  /** Whether it may write at this moment. */
  leads(): boolean;
  /** What the API does to its requests. */
  fault: Fault;
  /** Stopped as by SIGSTOP: time goes by, nothing runs. */
  freeze(): void;
  thaw(): void;
}

export function contender(
  name: string,
  server: LeaseServer,
  clock: VirtualClock,
  more: { readonly wall?: () => Date; readonly work?: () => Promise<void> } = {},
): Contender {
  const leaderships: Leadership[] = [];
  const stop = new AbortController();
  const log = recordingLog();
  const state: { fault: Fault } = { fault: 'none' };
  let thawed: Promise<void> = Promise.resolve();
  let thaw: (() => void) | undefined;
  const own: Clock = {
    now: () => clock.now(),
    async sleep(ms, signal) {
      await clock.sleep(ms, signal);
      await thawed;
    },
  };
  const api: Api = {
    async request(request, signal) {
      signal?.throwIfAborted();
      const answer = state.fault === 'unreachable' ? undefined : server.answer(request);
      if (state.fault === 'unreachable' || state.fault === 'answer lost') {
        await own.sleep(request.limitMs ?? 30_000, signal);
        throw noAnswer('no answer within its limit');
      }
      await thawed;
      return state.fault === 'refused' || answer === undefined ? refusal(503) : answer;
    },
    watch: () => {
      throw new Error('nobody watches a lease');
    },
  };
  const done = runLeading(
    {
      api,
      namespace: 'ns',
      name: 'the-lease',
      identity: name,
      clock: own,
      wallClock: more.wall ?? (() => new Date(Date.UTC(2026, 0, 1) + clock.now())),
      log,
      onLeading(leadership) {
        leaderships.push(leadership);
        return more.work?.();
      },
    },
    stop.signal,
  );
  return {
    name,
    stop,
    done,
    leaderships,
    log,
    leads: () => leaderships.some(it => it.isValid()),
    set fault(fault: Fault) {
      state.fault = fault;
    },
    freeze() {
      if (thaw === undefined) thawed = new Promise(resolve => void (thaw = resolve));
    },
    thaw() {
      thaw?.();
      thaw = undefined;
    },
  };
}
