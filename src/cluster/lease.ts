// One leader among several, by a Lease. What one may do ends before another may begin, by clocks that count time and
// are never compared between machines: whoever waits counts from when it saw the last change itself.
import { setMaxListeners } from 'node:events';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import { type Api, type ApiAnswer, type ApiRequest } from './api.ts';
import { refusedAnswer } from './https.ts';
import { microTime } from './micro-time.ts';

export interface Leadership {
  /** Aborts when it is lost, or given back. */
  readonly signal: AbortSignal;
  /**
   * Whether it is valid at this moment. The clock (CLOCK_MONOTONIC) runs on while the process is stopped (SIGSTOP), so
   * it is false right after a long stop, before any timer has run. It stands while the whole machine is suspended: then
   * only the version locks of the writes help.
   */
  isValid(): boolean;
}

export interface LeaseParts {
  readonly api: Api;
  readonly namespace: string;
  readonly name: string;
  /** Of this process alone, also among those of the same pod name. */
  readonly identity: string;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  readonly log: KernelLog;
  /** Called for each leadership anew. The lease is given back when the promise, if it gives one, is settled. */
  readonly onLeading: (leadership: Leadership) => void | Promise<void>;
  readonly times?: LeaseTimes;
}

/** In milliseconds; each must be well below the one before it. */
export interface LeaseTimes {
  /** Who waits takes over when it has seen no change for this long. */
  readonly lease: number;
  /** Who leads stops when no renewal that was begun within this time has succeeded. */
  readonly renew: number;
  /** Between two looks. */
  readonly retry: number;
}

const DEFAULT_TIMES: LeaseTimes = { lease: 15_000, renew: 10_000, retry: 2_000 };
/** A lease that says it is longer than this was not written by one of us. */
const LONGEST_LEASE_MS = 3_600_000;

interface Lease {
  readonly metadata: { readonly resourceVersion?: string };
  readonly spec?: {
    readonly holderIdentity?: string | null;
    readonly leaseDurationSeconds?: number | null;
    readonly renewTime?: string | null;
    readonly acquireTime?: string | null;
    readonly leaseTransitions?: number | null;
  };
}

interface Held {
  readonly abort: AbortController;
  validUntil: number;
  /** Settled when nobody works under it any more. */
  work: Promise<unknown>;
}

/** Leads whenever it can, until the signal aborts; then gives the lease back, so that another need not wait. */
export async function runLeading(parts: LeaseParts, signal: AbortSignal): Promise<void> {
  const { api, clock, log, identity, times = DEFAULT_TIMES } = parts;
  const collection = `/apis/coordination.k8s.io/v1/namespaces/${parts.namespace}/leases`;
  const path = `${collection}/${parts.name}`;
  let held: Held | undefined;
  let seen: { readonly text: string; readonly at: number } | undefined;
  let mayBeMine = false;
  let trouble: string | undefined;

  /** For how long nothing else was seen than this. */
  const seenFor = (text: string): number => {
    if (seen?.text !== text) seen = { text, at: clock.now() };
    return clock.now() - seen.at;
  };

  const lose = (why: string): void => {
    if (held === undefined) return;
    log.warn({ lease: parts.name, why }, 'leadership is lost');
    held.abort.abort(new Error(`leadership is lost: ${why}`));
    held = undefined;
  };
  const loseInTime = async (mine: Held): Promise<void> => {
    while (clock.now() < mine.validUntil) {
      await clock.sleep(Math.ceil(mine.validUntil - clock.now()), mine.abort.signal);
    }
    if (held === mine) lose('it was not renewed in time');
  };
  const ask = async (request: ApiRequest, over?: AbortSignal): Promise<ApiAnswer> => {
    const left = held === undefined ? times.renew : held.validUntil - clock.now();
    return api.request({ ...request, limitMs: Math.max(1, Math.min(left, times.renew / 2)) }, over);
  };
  const gained = (sentAt: number): void => {
    const validUntil = sentAt + times.renew;
    seenFor('held here');
    // An answer that came too late is worth nothing.
    if (clock.now() >= validUntil) return;
    if (held !== undefined && clock.now() < held.validUntil) {
      held.validUntil = validUntil;
      return;
    }
    lose('it was not renewed in time');
    const mine: Held = { abort: new AbortController(), validUntil, work: Promise.resolve() };
    held = mine;
    // Every write that is under way listens to it.
    setMaxListeners(0, mine.abort.signal);
    loseInTime(mine).catch(() => {});
    log.info({ lease: parts.name, identity }, 'leads now');
    const isValid = (): boolean => !mine.abort.signal.aborted && clock.now() < mine.validUntil;
    mine.work = Promise.resolve(parts.onLeading({ signal: mine.abort.signal, isValid }));
    mine.work.catch(() => {});
  };

  /** Writes the lease as mine over the version that was seen. */
  const take = async (found: Lease | undefined): Promise<void> => {
    const now = microTime(parts.wallClock());
    const renewed = found?.spec?.holderIdentity === identity;
    const spec = {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(times.lease / 1000),
      acquireTime: renewed ? (found.spec?.acquireTime ?? now) : now,
      renewTime: now,
      leaseTransitions: (found?.spec?.leaseTransitions ?? 0) + (renewed || found === undefined ? 0 : 1),
    };
    const { name, namespace } = parts;
    const body = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      // What others wrote onto it stays.
      metadata: found?.metadata ?? { name, namespace },
      spec: { ...found?.spec, ...spec },
    };
    const request: ApiRequest =
      found === undefined ? { method: 'POST', path: collection, body } : { method: 'PUT', path, body };
    const sentAt = clock.now();
    mayBeMine = true;
    const answer = await ask(request, signal);
    if (answer.status === 200 || answer.status === 201) return gained(sentAt);
    // Another one wrote it. Whether that is another leader, or somebody who put a label on it, the next look shows;
    // another leader would have waited until what is held here had ended.
    if (answer.status !== 409) throw refusedAnswer(request, answer);
    seenFor('written by another one');
  };

  const look = async (): Promise<void> => {
    const request = { method: 'GET', path } as const;
    const answer = await ask(request, signal);
    if (answer.status === 404) {
      // Who holds it may not know yet that somebody deleted it; a cluster's first one need not wait.
      const waits = held === undefined && seen !== undefined && seenFor('deleted') < times.lease;
      return waits ? undefined : take(undefined);
    }
    if (answer.status !== 200) throw refusedAnswer(request, answer);
    const found = answer.body as Lease;
    const holder = found.spec?.holderIdentity ?? '';
    if (holder === identity || holder === '') return take(found);
    lose(`it is held by ${holder}`);
    // Not renewTime alone: clocks may stand, and any change shows that somebody lives.
    const text = JSON.stringify([found.metadata.resourceVersion, found.spec]);
    if (seenFor(text) >= waitOf(found, times)) await take(found);
  };

  const release = async (): Promise<void> => {
    const answer = await ask({ method: 'GET', path });
    const found = answer.body as Lease;
    if (answer.status !== 200 || found.spec?.holderIdentity !== identity) return;
    const spec = {
      ...found.spec,
      holderIdentity: '',
      renewTime: microTime(parts.wallClock()),
      leaseDurationSeconds: 1,
    };
    await ask({ method: 'PUT', path, body: { ...found, spec } });
  };

  while (!signal.aborted) {
    // After a stop of the process this runs before the timer may have run.
    if (held !== undefined && clock.now() >= held.validUntil) lose('it was not renewed in time');
    try {
      await look();
      if (trouble !== undefined) log.info({ lease: parts.name }, 'the lease can be read and written again');
      trouble = undefined;
    } catch (error) {
      if (signal.aborted) break;
      const why = messageOf(error);
      if (trouble !== why) log.warn({ lease: parts.name, why }, 'the lease could not be read or written');
      trouble = why;
    }
    await clock.sleep(times.retry, signal).catch(() => {});
  }
  const last = held;
  held = undefined;
  last?.abort.abort(new Error('the program stops'));
  // Who comes next may begin at once, so nobody may be at work here any more; else it waits as for a leader that died.
  const idle = last === undefined || (await endsWithin(last.work, times.renew, clock));
  if (!mayBeMine || !idle) return;
  await release().catch((error: unknown) =>
    log.warn({ lease: parts.name, why: messageOf(error) }, 'the lease could not be given back'),
  );
}

async function endsWithin(work: Promise<unknown>, ms: number, clock: Clock): Promise<boolean> {
  const over = new AbortController();
  const late = clock.sleep(ms, over.signal).then(
    () => false,
    () => true,
  );
  const ended = work.then(
    () => true,
    () => true,
  );
  const inTime = await Promise.race([ended, late]);
  over.abort(new Error('not waited for any more'));
  return inTime;
}

/** How long to wait for a holder's next sign of life: its own word counts where it is longer than ours. */
function waitOf(found: Lease, times: LeaseTimes): number {
  const said = (found.spec?.leaseDurationSeconds ?? 0) * 1000;
  return said > times.lease && said <= LONGEST_LEASE_MS ? said : times.lease;
}
