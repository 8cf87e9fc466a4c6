// One leader among several, by a Lease. What one may do ends before another may begin, by clocks that count time and
// are never compared between machines: whoever waits counts from when it saw the last change itself.
import { setMaxListeners } from 'node:events';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import { type Api, type ApiAnswer, type ApiRequest } from './api.ts';
import { refusedAnswer } from './https.ts';

export interface Leadership {
  /** Aborts when it is lost, or given back. */
  readonly signal: AbortSignal;
  /**
   * Whether it is valid at this moment. By a clock that runs on while the process is stopped (SIGSTOP), so it is false
   * right after a long stop, before any timer has run.
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
  readonly onLeading: (leadership: Leadership) => void;
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

interface Lease {
  readonly metadata: { readonly resourceVersion?: string };
  readonly spec?: {
    readonly holderIdentity?: string | null;
    readonly renewTime?: string | null;
    readonly acquireTime?: string | null;
    readonly leaseTransitions?: number | null;
  };
}

interface Held {
  readonly abort: AbortController;
  validUntil: number;
}

/** Leads whenever it can, until the signal aborts; then gives the lease back, so that another need not wait. */
export async function runLeading(parts: LeaseParts, signal: AbortSignal): Promise<void> {
  const { api, clock, log, identity, times = DEFAULT_TIMES } = parts;
  const collection = `/apis/coordination.k8s.io/v1/namespaces/${parts.namespace}/leases`;
  const path = `${collection}/${parts.name}`;
  let held: Held | undefined;
  let seen: { readonly text: string; readonly at: number } | undefined;

  const lose = (why: string): void => {
    if (held === undefined) return;
    log.warn({ lease: parts.name, why }, 'leadership is lost');
    held.abort.abort(new Error(`leadership is lost: ${why}`));
    held = undefined;
  };
  const ask = async (request: ApiRequest, over?: AbortSignal): Promise<ApiAnswer> => {
    const left = held === undefined ? times.renew : held.validUntil - clock.now();
    return api.request({ ...request, limitMs: Math.max(1, Math.min(left, times.renew / 2)) }, over);
  };
  const gained = (sentAt: number): void => {
    const validUntil = sentAt + times.renew;
    if (held !== undefined) {
      held.validUntil = validUntil;
      return;
    }
    const mine: Held = { abort: new AbortController(), validUntil };
    held = mine;
    // Every write that is under way listens to it.
    setMaxListeners(0, mine.abort.signal);
    log.info({ lease: parts.name, identity }, 'leads now');
    parts.onLeading({
      signal: mine.abort.signal,
      isValid: () => !mine.abort.signal.aborted && clock.now() < mine.validUntil,
    });
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
    const metadata = { name, namespace, ...resourceVersionOf(found) };
    const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec };
    const request: ApiRequest =
      found === undefined ? { method: 'POST', path: collection, body } : { method: 'PUT', path, body };
    const sentAt = clock.now();
    const answer = await ask(request, signal);
    if (answer.status === 200 || answer.status === 201) return gained(sentAt);
    if (answer.status === 409) return lose('another one wrote the lease');
    throw refusedAnswer(request, answer);
  };

  const look = async (): Promise<void> => {
    const request = { method: 'GET', path } as const;
    const answer = await ask(request, signal);
    if (answer.status === 404) return take(undefined);
    if (answer.status !== 200) throw refusedAnswer(request, answer);
    const found = answer.body as Lease;
    const holder = found.spec?.holderIdentity ?? '';
    if (holder === identity || holder === '') return take(found);
    lose(`it is held by ${holder}`);
    // Not renewTime alone: clocks may stand, and any change shows that somebody lives.
    const text = JSON.stringify([found.metadata.resourceVersion, found.spec]);
    if (seen?.text !== text) seen = { text, at: clock.now() };
    if (clock.now() - seen.at >= times.lease) await take(found);
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
    try {
      await look();
    } catch (error) {
      if (signal.aborted) break;
      log.warn({ lease: parts.name, why: messageOf(error) }, 'the lease could not be read or written');
    }
    if (held !== undefined && clock.now() >= held.validUntil) lose('it was not renewed in time');
    await clock.sleep(times.retry, signal).catch(() => {});
  }
  const mayRelease = held !== undefined;
  held?.abort.abort(new Error('the program stops'));
  held = undefined;
  if (mayRelease) {
    await release().catch((error: unknown) =>
      log.warn({ lease: parts.name, why: messageOf(error) }, 'the lease could not be given back'),
    );
  }
}

const resourceVersionOf = (found: Lease | undefined): { readonly resourceVersion?: string } =>
  found?.metadata.resourceVersion === undefined ? {} : { resourceVersion: found.metadata.resourceVersion };

/** The API's MicroTime wants six digits. */
const microTime = (date: Date): string => date.toISOString().replace('Z', '000Z');
