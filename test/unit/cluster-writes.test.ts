import { describe, expect, it } from 'vitest';
import type { ApiAnswer } from '../../src/cluster/api.ts';
import { applyObject, deleteObject } from '../../src/cluster/apply.ts';
import { backoffMs, retryMs } from '../../src/cluster/backoff.ts';
import { fenced } from '../../src/cluster/fence.ts';
import { limited } from '../../src/cluster/rate-limit.ts';
import { fakeApi, listOf, refusal, settle, thing, virtualClock } from './cluster-fake.ts';

const answering = (answer: ApiAnswer) => fakeApi({ answer: () => answer });

describe('applyObject', () => {
  const applied = {
    collection: '/apis/example.org/v1/things',
    name: 'a.b',
    fieldManager: 'natoutgoing-operator',
    body: { apiVersion: 'example.org/v1', kind: 'Thing', metadata: { name: 'a.b' }, spec: 1 },
  };

  it('sends one server-side apply, strict and by force', async () => {
    const api = answering({ status: 201, body: thing('a.b', 5) });
    expect(await applyObject(api, applied)).toEqual({ result: 'done', object: thing('a.b', 5) });
    expect(api.requests).toEqual([
      {
        method: 'PATCH',
        path: '/apis/example.org/v1/things/a.b?fieldManager=natoutgoing-operator&force=true&fieldValidation=Strict',
        contentType: 'application/apply-patch+yaml',
        body: applied.body,
      },
    ]);
  });

  it('says which object and which version of it is meant', async () => {
    const api = answering({ status: 200, body: thing('a.b', 5) });
    await applyObject(api, { ...applied, subresource: 'status', lock: '4', uid: 'u' });
    expect(api.requests[0]).toMatchObject({
      path: expect.stringMatching(/\/things\/a\.b\/status\?/) as string,
      body: { metadata: { name: 'a.b', resourceVersion: '4', uid: 'u' } },
    });
  });

  it.each([
    [409, 'conflict'],
    [404, 'notFound'],
    [400, 'refused'],
    [403, 'refused'],
    [413, 'refused'],
    [415, 'refused'],
    [422, 'refused'],
  ])('gives %i as %s, with the words of the server', async (status, result) => {
    expect(await applyObject(answering(refusal(status)), applied)).toEqual({
      result,
      message: `PATCH /apis/example.org/v1/things/a.b: ${status}: the server says ${status}`,
    });
  });

  it('knows how the server says that it is another object, and that a field is unknown', async () => {
    const said = (status: number, more: object): ApiAnswer => ({ status, body: { message: 'no', ...more } });
    const resultOf = async (answer: ApiAnswer) => (await applyObject(answering(answer), applied)).result;
    const causes = (field: string): object => ({ details: { causes: [null, { field }] } });
    expect(await resultOf(said(422, causes('metadata.uid')))).toBe('conflict');
    expect(await resultOf(said(422, causes('spec.uid')))).toBe('refused');
    expect(await resultOf(said(422, { details: null }))).toBe('refused');
    expect(await resultOf(said(500, { message: '.spce: field not declared in schema' }))).toBe('refused');
  });

  it.each([401, 408, 429, 500, 503, 504])(
    'rejects with %i, after which another try may help',
    async status => {
      const error: unknown = await applyObject(
        answering({ ...refusal(status), retryAfterMs: 7 }),
        applied,
      ).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ name: 'ApiError', status, retryAfterMs: 7 });
    },
  );

  it('rejects when the answer is no object', async () => {
    await expect(applyObject(answering({ status: 200, body: 'ok' }), applied)).rejects.toThrow(
      /without a name/,
    );
  });
});

describe('deleteObject', () => {
  const target = { collection: '/things', name: 'a', uid: 'u' };

  it('deletes exactly that object', async () => {
    const api = answering({ status: 200, body: {} });
    expect(await deleteObject(api, target)).toEqual({ result: 'done' });
    expect(api.requests[0]).toMatchObject({
      method: 'DELETE',
      path: '/things/a',
      body: { preconditions: { uid: 'u' }, propagationPolicy: 'Background' },
    });
  });

  it.each([
    [202, 'done'],
    [404, 'done'],
    [409, 'conflict'],
    [403, 'refused'],
  ])('gives %i as %s', async (status, result) => {
    expect((await deleteObject(answering(refusal(status)), target)).result).toBe(result);
  });
});

describe('fenced', () => {
  it('lets reading through, and asks before each write', async () => {
    let leads = true;
    const api = answering(listOf(1, []));
    const fence = fenced(api, () => leads);
    await fence.request({ method: 'PUT', path: '/x' });
    leads = false;
    await fence.request({ method: 'GET', path: '/x' });
    for (const method of ['PUT', 'POST', 'PATCH', 'DELETE'] as const)
      await expect(fence.request({ method, path: '/x?y' })).rejects.toThrow(
        `${method} /x: not sent, another one leads`,
      );
    expect(api.requests.map(({ method }) => method)).toEqual(['PUT', 'GET']);
    // For the moment at which the connection is there.
    expect(api.requests[0]?.guard).toThrow('not sent');
  });
});

describe('limited', () => {
  it('lets a burst through, then so many per second, in order, watches too', async () => {
    const clock = virtualClock();
    const api = answering(listOf(1, []));
    const slow = limited(api, { perSecond: 10, burst: 5 }, clock);
    const order: number[] = [];
    for (let i = 0; i < 25; i++)
      void slow.request({ method: 'GET', path: `/${i}` }).then(() => order.push(i));
    await settle();
    expect(order.length).toBe(5);
    await clock.advance(1_000);
    expect(order.length).toBe(15);
    const watch = slow.watch('/w', { silenceMs: 1 }, new AbortController().signal)[Symbol.asyncIterator]();
    void watch.next();
    await clock.advance(1_000);
    expect([order, api.watches.length]).toEqual([[...Array(25).keys()], 0]);
    await clock.advance(100);
    expect(api.watches.length).toBe(1);
  });

  it('gives no more than a burst after a long quiet time', async () => {
    const clock = virtualClock();
    const api = answering(listOf(1, []));
    const slow = limited(api, { perSecond: 10, burst: 5 }, clock);
    await clock.advance(1_000_000);
    for (let i = 0; i < 25; i++) void slow.request({ method: 'GET', path: `/${i}` });
    await settle();
    expect(api.requests.length).toBe(5);
    await clock.advance(1_000);
    expect(api.requests.length).toBe(15);
  });

  it('ends a wait on an abort, and sends nothing then', async () => {
    const clock = virtualClock();
    const api = answering(listOf(1, []));
    const slow = limited(api, { perSecond: 1, burst: 1 }, clock);
    const stop = new AbortController();
    await slow.request({ method: 'GET', path: '/1' });
    const waiting = slow.request({ method: 'GET', path: '/2' }, stop.signal);
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    expect([api.requests.length, clock.sleepers]).toEqual([1, 0]);
  });
});

describe('backoff', () => {
  it('doubles up to 30 s, and spreads over half of it', () => {
    expect([1, 2, 3, 8, 9, 1000].map(failures => backoffMs(failures, 1))).toEqual([
      250, 500, 1000, 30_000, 30_000, 30_000,
    ]);
    expect([1, 8].map(failures => backoffMs(failures, 0))).toEqual([125, 15_000]);
  });

  it('is what the server said or somewhat more, spread, within reason', () => {
    expect([0, 1].map(random => retryMs(1, random, 8_000))).toEqual([8_000, 10_000]);
    expect(retryMs(1, 0, 1e9)).toBe(60_000);
    expect(retryMs(1, 0, 0)).toBe(500);
    // It has failed often, and says that it is back soon.
    expect([3, 6, 20].map(failures => retryMs(failures, 0, 1_000))).toEqual([1_000, 4_000, 8_000]);
    expect([1, 20].map(failures => retryMs(failures, 0, undefined))).toEqual([125, 15_000]);
  });
});
