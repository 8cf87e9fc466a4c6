// Events about objects, where their owners look. An Event that cannot be recorded is told to the log and lost: nothing
// may wait for it, or fail because of it.
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { Api } from './api.ts';
import { refusedAnswer } from './https.ts';

export interface RecordedEvent {
  readonly type: 'Normal' | 'Warning';
  readonly regarding: {
    readonly apiVersion: string;
    readonly kind: string;
    readonly name: string;
    readonly uid: string;
  };
  /** CamelCase. */
  readonly reason: string;
  /** What was done or tried, CamelCase. */
  readonly action: string;
  /** A sentence; cut at the API's 1,024 bytes. */
  readonly note: string;
}

export interface RecorderParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  readonly log: KernelLog;
  /** natoutgoing.io/operator, say. */
  readonly controller: string;
  /** Name of the pod or node. */
  readonly instance: string;
}

/** As client-go limits them: so many of one object at once, then one in five minutes. */
const BURST = 25;
const REFILL_MS = 300_000;
/** Objects whose turns are remembered. */
const MAX_BUCKETS = 4096;
const MAX_NOTE_BYTES = 1024;
/** All objects that we speak of are cluster-scoped; their Events live here. */
const NAMESPACE = 'default';

/** Records Events one after the other, in the background. */
export function createRecorder(parts: RecorderParts): (event: RecordedEvent) => void {
  const { api, clock, log } = parts;
  const buckets = new Map<string, { tokens: number; filledAt: number }>();
  let last: Promise<void> = Promise.resolve();
  let waiting = 0;

  const mayTell = ({ kind, name }: RecordedEvent['regarding']): boolean => {
    const key = `${kind}/${name}`;
    const now = clock.now();
    const bucket = buckets.get(key) ?? { tokens: BURST, filledAt: now };
    const refills = Math.floor((now - bucket.filledAt) / REFILL_MS);
    bucket.tokens = Math.min(BURST, bucket.tokens + refills);
    bucket.filledAt += refills * REFILL_MS;
    if (buckets.size >= MAX_BUCKETS && !buckets.has(key)) buckets.clear();
    buckets.set(key, bucket);
    if (bucket.tokens === 0) return false;
    bucket.tokens -= 1;
    return true;
  };

  const send = async (event: RecordedEvent): Promise<void> => {
    const request = {
      method: 'POST',
      path: `/apis/events.k8s.io/v1/namespaces/${NAMESPACE}/events`,
      body: bodyOf(event, parts),
    } as const;
    try {
      const answer = await api.request(request);
      if (answer.status !== 201) throw refusedAnswer(request, answer);
    } catch (error) {
      log.warn({ event: event.reason, why: messageOf(error) }, 'an Event could not be recorded');
    }
  };

  const after = async (before: Promise<void>, event: RecordedEvent): Promise<void> => {
    await before;
    await send(event);
    waiting -= 1;
  };

  return event => {
    if (waiting >= BURST || !mayTell(event.regarding)) return;
    waiting += 1;
    last = after(last, event);
  };
}

function bodyOf(event: RecordedEvent, { wallClock, controller, instance }: RecorderParts): object {
  const { type, regarding, reason, action, note } = event;
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { generateName: 'natoutgoing-', namespace: NAMESPACE },
    eventTime: wallClock().toISOString().replace('Z', '000Z'),
    type,
    regarding: { ...regarding, namespace: '' },
    reason,
    action,
    note: cutBytes(note, MAX_NOTE_BYTES),
    reportingController: controller,
    reportingInstance: instance,
  };
}

/** At most so many bytes of UTF-8, never half a character. */
function cutBytes(text: string, max: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return text;
  return `${new TextDecoder().decode(bytes.subarray(0, max - 3)).replace(/\uFFFD+$/, '')}…`;
}
