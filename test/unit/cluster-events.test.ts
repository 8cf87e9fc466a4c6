import { describe, expect, it } from 'vitest';
import type { ApiAnswer, ApiRequest } from '../../src/cluster/api.ts';
import { createRecorder, type RecordedEvent } from '../../src/cluster/events.ts';
import { fakeApi, noAnswer, recordingLog, refusal, settle, thing, virtualClock } from './cluster-fake.ts';

const EVENTS = '/apis/events.k8s.io/v1/namespaces/default/events';
const regarding = { apiVersion: 'example.org/v1', kind: 'Thing', name: 'a', uid: 'u' };
const drift: RecordedEvent = {
  type: 'Warning',
  regarding,
  reason: 'DriftRepaired',
  action: 'Verify',
  note: 'one',
};

type Answer = (request: ApiRequest, count: number) => ApiAnswer | Promise<ApiAnswer>;
const recorded: Answer = ({ method }, count) =>
  method === 'POST' ? { status: 201, body: thing(`event-${count}`, 1) } : { status: 200, body: {} };

function recorder(answer: Answer = recorded, instance = 'node-1') {
  const clock = virtualClock();
  const api = fakeApi({ answer });
  const log = recordingLog();
  const wallClock = (): Date => new Date(Date.UTC(2026, 0, 1) + clock.now());
  const record = createRecorder({
    api,
    clock,
    wallClock,
    log,
    controller: 'natoutgoing.io/applier',
    instance,
  });
  const sent = (): readonly string[] => api.requests.map(({ method, path }) => `${method} ${path}`);
  return { clock, api, log, record, sent };
}

describe('an Event', () => {
  it('of a cluster-scoped object lives in namespace default', async () => {
    const t = recorder();
    t.record(drift);
    await settle();
    expect(t.api.requests).toEqual([
      {
        method: 'POST',
        path: EVENTS,
        body: {
          apiVersion: 'events.k8s.io/v1',
          kind: 'Event',
          metadata: { generateName: 'natoutgoing-', namespace: 'default' },
          eventTime: '2026-01-01T00:00:00.000000Z',
          type: 'Warning',
          regarding: { ...regarding, namespace: '' },
          reason: 'DriftRepaired',
          action: 'Verify',
          note: 'one',
          reportingController: 'natoutgoing.io/applier',
          reportingInstance: 'node-1',
        },
      },
    ]);
  });

  it('is cut to what the API takes, at whole characters', async () => {
    const t = recorder(recorded, 'n'.repeat(253));
    t.record({ ...drift, note: '€'.repeat(500) });
    await settle();
    const { note, reportingInstance } = (t.api.requests[0]?.body ?? {}) as {
      note: string;
      reportingInstance: string;
    };
    expect(reportingInstance).toBe('n'.repeat(128));
    expect(note).toBe(`${'€'.repeat(340)}…`);
  });

  it('that comes again within six minutes is counted in the first', async () => {
    const t = recorder();
    for (let i = 0; i < 3; i++) {
      t.record(drift);
      await t.clock.advance(300_000);
    }
    expect(t.sent()).toEqual([`POST ${EVENTS}`, `PATCH ${EVENTS}/event-1`, `PATCH ${EVENTS}/event-1`]);
    expect(t.api.requests[2]).toMatchObject({
      contentType: 'application/merge-patch+json',
      body: { series: { count: 3, lastObservedTime: '2026-01-01T00:10:00.000000Z' } },
    });
    await t.clock.advance(360_000);
    t.record(drift);
    await settle();
    expect(t.sent()[3]).toBe(`POST ${EVENTS}`);
  });

  it('that comes again while the first is sent is counted at once', async () => {
    const t = recorder();
    for (let i = 0; i < 10; i++) t.record(drift);
    await settle();
    expect(t.api.requests).toMatchObject([
      { method: 'POST' },
      { method: 'PATCH', body: { series: { count: 10 } } },
    ]);
    expect(t.api.requests.length).toBe(2);
  });

  it('that says something else is another one', async () => {
    const t = recorder();
    for (const note of ['one', 'two']) t.record({ ...drift, note });
    t.record({ ...drift, regarding: { ...regarding, name: 'b' } });
    await settle();
    expect(t.sent()).toEqual([`POST ${EVENTS}`, `POST ${EVENTS}`, `POST ${EVENTS}`]);
  });

  it('is made anew when the one that counts is not there any more', async () => {
    const t = recorder((request, count) =>
      request.method === 'PATCH' ? refusal(404) : recorded(request, count),
    );
    for (let i = 0; i < 3; i++) {
      t.record(drift);
      await settle();
    }
    expect(t.sent()).toEqual([
      `POST ${EVENTS}`,
      `PATCH ${EVENTS}/event-1`,
      `POST ${EVENTS}`,
      `PATCH ${EVENTS}/event-3`,
      `POST ${EVENTS}`,
    ]);
  });
});

describe('many Events', () => {
  it('of one object are 25, then one in five minutes; what was not told is counted', async () => {
    const t = recorder();
    for (let i = 0; i < 100; i++) {
      t.record(drift);
      await settle();
    }
    expect(t.api.requests.length).toBe(25);
    t.record({ ...drift, regarding: { ...regarding, name: 'b' } });
    await settle();
    expect(t.api.requests.length).toBe(26);
    await t.clock.advance(300_000);
    for (let i = 0; i < 10; i++) {
      t.record(drift);
      await settle();
    }
    expect(t.api.requests.slice(26)).toMatchObject([{ method: 'PATCH', body: { series: { count: 101 } } }]);
  });

  it('are told one after the other, and not queued without end', async () => {
    let answer: () => void = () => {};
    const t = recorder(
      () => new Promise(resolve => void (answer = () => resolve({ status: 201, body: thing('event', 1) }))),
    );
    for (let i = 0; i < 1000; i++) t.record({ ...drift, regarding: { ...regarding, name: `thing-${i}` } });
    await settle();
    expect(t.api.requests.length).toBe(1);
    for (let i = 0; i < 100; i++) {
      answer();
      await settle();
    }
    expect(t.api.requests.length).toBe(25);
  });

  it('of very many objects are remembered of the newest only', async () => {
    const t = recorder();
    for (let i = 0; i < 10_000; i++) {
      t.record({ ...drift, regarding: { ...regarding, name: `thing-${i}` } });
      if (i % 20 === 0) await settle();
    }
    await settle();
    expect(t.api.requests.length).toBe(10_000);
    t.record({ ...drift, regarding: { ...regarding, name: 'thing-0' } });
    t.record({ ...drift, regarding: { ...regarding, name: 'thing-9999' } });
    await settle();
    expect(t.api.requests.slice(-2).map(({ method }) => method)).toEqual(['POST', 'PATCH']);
  });
});

describe('an Event that cannot be recorded', () => {
  it.each([
    ['is refused', () => refusal(403)],
    ['gets no answer', () => Promise.reject(noAnswer())],
    ['gets nonsense', () => ({ status: 201, body: 'ok' })],
  ] as const)('since it %s is said once, and nothing more', async (_, answer) => {
    let broken = true;
    const t = recorder((request, count) => (broken ? answer() : recorded(request, count)));
    for (const note of ['1', '2', '3']) t.record({ ...drift, note });
    await settle();
    expect(t.log.lines.map(({ message }) => message)).toEqual(['an Event could not be recorded']);
    broken = false;
    t.record({ ...drift, note: '4' });
    await settle();
    broken = true;
    t.record({ ...drift, note: '5' });
    await settle();
    expect(t.log.lines.length).toBe(2);
  });
});
