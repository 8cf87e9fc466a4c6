// Events about objects, where their owners look. An Event that cannot be recorded is told to the log and lost: nothing
// may wait for it, or fail because of it.
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { Api } from './api.ts';
import { refusedAnswer } from './https.ts';
import { namedObject } from './list.ts';
import { microTime } from './micro-time.ts';

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
/** As client-go folds them: the same again within this time is counted in the Event that is there already. */
const SERIES_MS = 360_000;
/** Objects whose turns, and Events whose series are remembered. */
const MAX_REMEMBERED = 4096;
const MAX_NOTE_BYTES = 1024;
/** The API's limit for reportingInstance; names of nodes may be longer. */
const MAX_INSTANCE_LENGTH = 128;
/** All objects that we speak of are cluster-scoped; their Events live here. */
const NAMESPACE = 'default';
const COLLECTION = `/apis/events.k8s.io/v1/namespaces/${NAMESPACE}/events`;

interface Series {
  /** The name of the Event, once it is there. */
  name?: string;
  /** How often it happened, and how often it is said to have happened. */
  count: number;
  told: number;
  /** By the clock. */
  lastAt: number;
}

/** Records Events one after the other, in the background. The same event again is counted, not told again. */
export function createRecorder(parts: RecorderParts): (event: RecordedEvent) => void {
  const { api, clock, log } = parts;
  const mayTell = createTurns(clock);
  const known = new Map<string, Series>();
  let last: Promise<void> = Promise.resolve();
  let waiting = 0;
  let failing = false;

  const seriesOf = (event: RecordedEvent): Series => {
    const key = JSON.stringify(event);
    const now = clock.now();
    const before = known.get(key);
    const series =
      before !== undefined && now - before.lastAt < SERIES_MS ? before : { count: 0, told: 0, lastAt: now };
    series.count += 1;
    series.lastAt = now;
    remember(known, key, series);
    return series;
  };

  /** False when the Event that is counted in is not there any more. */
  const sendCount = async (name: string, count: number): Promise<boolean> => {
    const request = {
      method: 'PATCH',
      path: `${COLLECTION}/${name}`,
      contentType: 'application/merge-patch+json',
      body: { series: { count, lastObservedTime: microTime(parts.wallClock()) } },
    } as const;
    const answer = await api.request(request);
    if (answer.status !== 200 && answer.status !== 404) throw refusedAnswer(request, answer);
    return answer.status === 200;
  };

  const send = async (event: RecordedEvent, series: Series): Promise<void> => {
    const { name, count } = series;
    // What came while others were sent was told with them.
    if (series.told === count) return;
    if (name === undefined || !(await sendCount(name, count))) {
      const request = { method: 'POST', path: COLLECTION, body: bodyOf(event, parts) } as const;
      const answer = await api.request(request);
      if (answer.status !== 201) throw refusedAnswer(request, answer);
      series.name = namedObject(request.path, answer.body).metadata.name;
      series.told = 1;
    } else series.told = count;
  };

  const after = async (before: Promise<void>, event: RecordedEvent, series: Series): Promise<void> => {
    await before;
    try {
      await send(event, series);
      failing = false;
    } catch (error) {
      // Once, until one is recorded again.
      if (!failing)
        log.warn({ event: event.reason, why: messageOf(error) }, 'an Event could not be recorded');
      failing = true;
    }
    waiting -= 1;
  };

  return event => {
    const series = seriesOf(event);
    if (waiting >= BURST || !mayTell(event.regarding)) return;
    waiting += 1;
    last = after(last, event, series);
  };
}

/** Whether it is this object's turn: a token bucket for each. */
function createTurns(clock: Clock): (regarding: RecordedEvent['regarding']) => boolean {
  const buckets = new Map<string, { tokens: number; filledAt: number }>();
  return ({ kind, name }) => {
    const key = `${kind}/${name}`;
    const now = clock.now();
    const bucket = buckets.get(key) ?? { tokens: BURST, filledAt: now };
    const refills = Math.floor((now - bucket.filledAt) / REFILL_MS);
    bucket.tokens = Math.min(BURST, bucket.tokens + refills);
    bucket.filledAt += refills * REFILL_MS;
    remember(buckets, key, bucket);
    if (bucket.tokens === 0) return false;
    bucket.tokens -= 1;
    return true;
  };
}

/** As the newest; the oldest is forgotten when there are too many. */
function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= MAX_REMEMBERED) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    break;
  }
}

function bodyOf(event: RecordedEvent, { wallClock, controller, instance }: RecorderParts): object {
  const { type, regarding, reason, action, note } = event;
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { generateName: 'natoutgoing-', namespace: NAMESPACE },
    eventTime: microTime(wallClock()),
    type,
    regarding: { ...regarding, namespace: '' },
    reason,
    action,
    note: cutBytes(note, MAX_NOTE_BYTES),
    reportingController: controller,
    reportingInstance: instance.slice(0, MAX_INSTANCE_LENGTH),
  };
}

/** At most so many bytes of UTF-8, never half a character. */
function cutBytes(text: string, max: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= max) return text;
  return `${new TextDecoder().decode(bytes.subarray(0, max - 3)).replace(/\uFFFD+$/, '')}…`;
}
