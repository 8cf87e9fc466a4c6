import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { createHttpsApi } from '../../src/cluster/https.ts';
import { waitFor } from '../cluster/wait.ts';
import {
  type Closers,
  endpointAt,
  failureOf,
  type Handler,
  json,
  type Keys,
  makeKeys,
  serve,
  startServer,
} from './cluster-server.ts';

let keys: Keys;
const closers: Closers = [];

beforeAll(async () => {
  keys = await makeKeys();
});
afterEach(async () => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
  for (const close of closers.splice(0).toReversed()) await close();
});
const serving = (handler: Handler, prefix = '') => serve(keys, closers, handler, prefix);

describe('a request', () => {
  it("is JSON with the endpoint's credentials, and its answer is parsed", async () => {
    const t = await serving(json(201, { ok: true }), '/k8s/clusters/one/');
    const answer = await t.api.request({
      method: 'PATCH',
      path: '/apis/x?y=1',
      body: { a: 'ü' },
      contentType: 'application/apply-patch+yaml',
    });
    expect(answer).toEqual({ status: 201, body: { ok: true } });
    const { message, body } = t.server.requests[0]!;
    expect([message.method, message.url, message.httpVersion, body]).toEqual([
      'PATCH',
      '/k8s/clusters/one/apis/x?y=1',
      '1.1',
      '{"a":"ü"}',
    ]);
    expect(message.headers).toMatchObject({
      accept: 'application/json',
      authorization: 'Bearer s3cret',
      'content-type': 'application/apply-patch+yaml',
      'content-length': '10',
      'user-agent': 'natoutgoing',
    });
  });

  it.each([
    [404, { reason: 'NotFound' }, {}, undefined],
    [429, {}, { 'retry-after': '7' }, 7_000],
    [503, {}, { 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }, undefined],
    [302, {}, { location: 'https://elsewhere.example' }, undefined],
  ])('that is answered with %i has an answer', async (status, body, headers, retryAfterMs) => {
    const t = await serving(json(status, body, headers));
    const answer = await t.api.request({ method: 'GET', path: '/x' });
    expect(answer).toEqual({ status, body, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) });
  });

  it('may be answered with text', async () => {
    const t = await serving(response => response.end('ok'));
    expect(await t.api.request({ method: 'GET', path: '/readyz' })).toEqual({ status: 200, body: 'ok' });
  });

  it('uses a connection again', async () => {
    const t = await serving(json(200, {}));
    for (let i = 0; i < 5; i++) await t.api.request({ method: 'GET', path: '/x' });
    expect(t.server.connections).toBe(1);
  });

  it('does not go by the environment: no proxy, and no certificate that is not trusted', async () => {
    for (const name of ['HTTPS_PROXY', 'https_proxy', 'ALL_PROXY']) vi.stubEnv(name, 'http://127.0.0.1:1');
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    const t = await serving(json(200, {}));
    expect((await t.api.request({ method: 'GET', path: '/x' })).status).toBe(200);
    const { ca } = await makeKeys();
    t.endpoint.tls = { ca };
    expect((await failureOf(t.api.request({ method: 'GET', path: '/x' }))).message).toContain('certificate');
    t.endpoint.tls = { rejectUnauthorized: false };
    expect((await t.api.request({ method: 'GET', path: '/x' })).status).toBe(200);
  });

  it('speaks IPv6', async () => {
    const server = await startServer(keys, json(200, {}), { host: '::1' });
    closers.push(() => server.close());
    const api = createHttpsApi(endpointAt(`https://[::1]:${server.port}`, { ca: keys.ca }));
    closers.push(() => api.close());
    expect((await api.request({ method: 'GET', path: '/x' })).status).toBe(200);
  });

  it('is sent to https only', () => {
    for (const url of ['http://127.0.0.1:8080', 'nonsense', ''])
      expect(() => createHttpsApi(endpointAt(url, {}))).toThrow(/does not begin with https:\/\//);
  });
});

describe('credentials', () => {
  it('are asked for with each request', async () => {
    const t = await serving(json(200, {}));
    await t.api.request({ method: 'GET', path: '/x' });
    t.endpoint.authorization = 'Bearer s3cret-2';
    await t.api.request({ method: 'GET', path: '/x' });
    expect(t.server.requests.map(({ message }) => message.headers.authorization)).toEqual([
      'Bearer s3cret',
      'Bearer s3cret-2',
    ]);
  });

  it('that are not accepted are read again', async () => {
    const t = await serving(json(401, {}));
    await t.api.request({ method: 'GET', path: '/x' });
    expect(t.endpoint.distrusted).toBe(1);
    await failureOf(
      t.api.watch('/x', { silenceMs: 1000 }, new AbortController().signal)[Symbol.asyncIterator]().next(),
    );
    expect(t.endpoint.distrusted).toBe(2);
  });

  it('that cannot be read are an error of the request', async () => {
    const t = await serving(json(200, {}));
    t.endpoint.credentials = () => Promise.reject(new Error('token cannot be read: ENOENT'));
    const { message } = await failureOf(t.api.request({ method: 'GET', path: '/x?secret=1' }));
    expect(message).toBe('GET /x: token cannot be read: ENOENT');
  });

  it('of another CA: it is read again, and old connections are not used again', async () => {
    const t = await serving(json(200, {}));
    await t.api.request({ method: 'GET', path: '/x' });
    const newer = await makeKeys();
    const { port } = t.server;
    await t.server.close();
    const server = await startServer(newer, json(200, { newer: true }), { port });
    closers.push(() => server.close());
    await failureOf(t.api.request({ method: 'GET', path: '/x' }));
    expect(t.endpoint.distrusted).toBe(1);
    t.endpoint.tls = { ca: newer.ca };
    expect((await t.api.request({ method: 'GET', path: '/x' })).body).toEqual({ newer: true });
    t.endpoint.tls = { ca: `${newer.ca}\n${keys.ca}` };
    await t.api.request({ method: 'GET', path: '/x' });
    await waitFor(() => (server.open === 1 ? true : undefined), {
      what: 'the old one to be closed',
      limitMs: 5000,
    });
  });

  it('that change leave what is under way alone', async () => {
    let answer: () => void = () => {};
    const t = await serving((response, { url }) => {
      if (url === '/slow') answer = () => response.end('{"slow":true}');
      else response.end('{}');
    });
    const slow = t.api.request({ method: 'GET', path: '/slow' });
    await waitFor(() => t.server.requests[0], { what: 'the request', limitMs: 5000 });
    t.endpoint.tls = { ca: `${keys.ca}\n` };
    await t.api.request({ method: 'GET', path: '/x' });
    answer();
    expect((await slow).body).toEqual({ slow: true });
    await waitFor(() => (t.server.open === 1 ? true : undefined), {
      what: 'the old one to be closed',
      limitMs: 5000,
    });
  });
});
