// Writes the status when it says something new, and otherwise seldom: thousands of healthy nodes must cost nothing.
import { isDeepStrictEqual } from 'node:util';
import type { Outcome } from '../cluster/apply.ts';
import { backoffMs } from '../cluster/backoff.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { NodeStatus } from './status.ts';

export interface StatusWriterParts {
  readonly send: (target: StatusOfNode, signal: AbortSignal) => Promise<Outcome>;
  readonly clock: Clock;
  /** From 0 to 1. */
  readonly random: () => number;
  readonly log: KernelLog;
}

export interface StatusOfNode {
  /** Of the MasqNode: one that was made anew has been told nothing. */
  readonly uid: string;
  readonly status: NodeStatus;
}

export interface StatusWriter {
  /** The status from now on. Returns at once. */
  offer(target: StatusOfNode): void;
  /** Works until the signal aborts; never rejects. */
  run(signal: AbortSignal): Promise<void>;
}

/** Only that the kernel was looked at again: a sign of life, spread over the nodes. */
const HEARTBEAT_MS = 900_000;
const MIN_INTERVAL_MS = 1_000;

export function createStatusWriter({ send, clock, random, log }: StatusWriterParts): StatusWriter {
  let offered: StatusOfNode | undefined;
  let written: StatusOfNode | undefined;
  let writtenAt = Number.NEGATIVE_INFINITY;
  let heartbeat = HEARTBEAT_MS;
  let failures = 0;
  let ring = (): void => {};

  /** Milliseconds until something is to be written. */
  const due = (): number => {
    if (offered === undefined) return HEARTBEAT_MS;
    const sinceWrite = clock.now() - writtenAt;
    if (written !== undefined && isDeepStrictEqual(news(written), news(offered)))
      return heartbeat - sinceWrite;
    return MIN_INTERVAL_MS - sinceWrite;
  };

  const rest = async (ms: number, signal: AbortSignal, wakeful: boolean): Promise<void> => {
    const waking = new AbortController();
    const stop = (): void => waking.abort();
    signal.addEventListener('abort', stop, { once: true });
    if (wakeful) ring = stop;
    await clock.sleep(ms, waking.signal).catch(() => {});
    ring = () => {};
    signal.removeEventListener('abort', stop);
  };

  const write = async (target: StatusOfNode, signal: AbortSignal): Promise<boolean> => {
    try {
      const outcome = await send(target, signal);
      if (outcome.result === 'done') return true;
      log.warn({ why: outcome.message }, 'the status was not taken');
    } catch (error) {
      if (!signal.aborted) log.warn({ why: messageOf(error) }, 'the status could not be written');
    }
    return false;
  };

  return {
    offer(target) {
      offered = target;
      ring();
    },
    async run(signal) {
      while (!signal.aborted) {
        const wait = due();
        if (wait > 0) {
          await rest(wait, signal, true);
          continue;
        }
        const target = offered as StatusOfNode;
        const done = await write(target, signal);
        failures = done ? 0 : failures + 1;
        if (done) {
          written = target;
          writtenAt = clock.now();
          heartbeat = HEARTBEAT_MS * (0.8 + random() * 0.4);
        } else await rest(backoffMs(failures, random()), signal, false);
      }
    },
  };
}

const news = ({ uid, status }: StatusOfNode): unknown => ({
  uid,
  status: { ...status, lastVerifiedTime: '' },
});
