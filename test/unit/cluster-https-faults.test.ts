import { getEventListeners, setMaxListeners } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { fenced } from '../../src/cluster/fence.ts';
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

/** Lets only our own timers be moved by the test. */
const fakeTimers = (): void => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });

describe('a request that gets no answer', () => {
  it('because nobody listens', async () => {
    const t = await serving(json(200, {}));
    await t.server.close();
    const error = await failureOf(
      t.api.request({ method: 'POST', path: '/x?continue=abc', body: { a: 's3cret' } }),
    );
    expect(error.message).toBe(`POST /x: connect ECONNREFUSED 127.0.0.1:${t.server.port}`);
    expect(error.status).toBeUndefined();
  });

  it('because no address of a name is right, which Node says without a word', async () => {
    const t = await serving(json(200, {}));
    await t.server.close();
    const api = createHttpsApi(endpointAt(`https://localhost:${t.server.port}`, {}));
    closers.push(() => api.close());
    expect((await failureOf(api.request({ method: 'GET', path: '/x' }))).message).toMatch(
      /GET \/x: .*ECONNREFUSED/,
    );
  });

  it('because the server breaks off', async () => {
    const t = await serving(response => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{"half":', () => response.destroy());
    });
    expect((await failureOf(t.api.request({ method: 'GET', path: '/x' }))).message).toMatch(
      /^GET \/x: aborted/,
    );
  });

  it.each([
    ['nothing comes', () => {}],
    ['it never ends', (response: ServerResponse) => response.write('{')],
  ])('because %s within its limit; the next one uses another connection', async (_, handler) => {
    let first = true;
    const t = await serving((response, message, body) => {
      if (first) handler(response);
      else json(200, {})(response, message, body);
      first = false;
    });
    const error = await failureOf(t.api.request({ method: 'GET', path: '/x', limitMs: 100 }));
    expect(error.message).toBe('GET /x: no answer within 0.1 s');
    await t.api.request({ method: 'GET', path: '/x' });
    expect(t.server.connections).toBe(2);
    await waitFor(() => (t.server.open === 1 ? true : undefined), {
      what: 'the dead one to go',
      limitMs: 5000,
    });
  });

  it('because the server says no word of TLS', async () => {
    fakeTimers();
    const server = await silentTcpServer();
    const api = createHttpsApi(endpointAt(`https://127.0.0.1:${server.port}`, {}));
    closers.push(() => api.close());
    const failed = failureOf(api.request({ method: 'GET', path: '/x' }));
    await server.connected;
    await vi.advanceTimersByTimeAsync(10_000);
    expect((await failed).message).toBe('GET /x: no connection within 10 s');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('because it is larger than anything that an API server says', async () => {
    const t = await serving(response => {
      const megabytes = Buffer.alloc(1024 * 1024, 'x');
      const more = (left: number): void => void (left > 0 && response.write(megabytes, () => more(left - 1)));
      more(100);
    });
    const { message } = await failureOf(t.api.request({ method: 'GET', path: '/x' }));
    expect(message).toBe('GET /x: the answer is larger than 67108864 bytes');
  });

  it('because it is aborted: the reason is handed on', async () => {
    const t = await serving(() => {});
    const stop = new AbortController();
    const asked = t.api.request({ method: 'GET', path: '/x' }, stop.signal);
    await waitFor(() => t.server.requests[0], { what: 'the request', limitMs: 5000 });
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(asked).rejects.toBe(reason);
    await expect(t.api.request({ method: 'GET', path: '/x' }, stop.signal)).rejects.toBe(reason);
    await waitFor(() => (t.server.open === 0 ? true : undefined), {
      what: 'the connection to close',
      limitMs: 5000,
    });
  });
});

describe('a signal', () => {
  it('that lives longer than many requests is let go of by each', async () => {
    const t = await serving(json(200, {}));
    const { signal } = new AbortController();
    setMaxListeners(0, signal);
    await Promise.all(
      [...Array(30).keys()].map(i => t.api.request({ method: 'GET', path: `/${i}` }, signal)),
    );
    const batches: unknown[] = [];
    for await (const batch of t.api.watch('/x', { silenceMs: 5_000 }, signal)) batches.push(batch);
    expect(batches).toEqual([[], [{}]]);
    await t.server.close();
    await failureOf(t.api.request({ method: 'GET', path: '/x' }, signal));
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});

describe('a guard', () => {
  it('is asked when there is a connection, and then nothing is sent', async () => {
    const t = await serving(json(200, {}));
    let leads = true;
    let asked = 0;
    const api = fenced(t.api, () => {
      asked += 1;
      return leads && asked === 1;
    });
    const { message } = await failureOf(api.request({ method: 'PUT', path: '/x?y', body: {} }));
    expect(message).toBe('PUT /x: not sent, another one leads now');
    expect(asked).toBe(2);
    expect(t.server.requests).toEqual([]);
    leads = false;
    await failureOf(api.request({ method: 'DELETE', path: '/x' }));
    expect(t.server.connections).toBe(1);
    // Reading needs no leave.
    expect((await api.request({ method: 'GET', path: '/x' })).status).toBe(200);
  });

  it('lets through what may be written, on connections that are new and old', async () => {
    const t = await serving(json(200, {}));
    const api = fenced(t.api, () => true);
    for (let i = 0; i < 2; i++)
      expect((await api.request({ method: 'PUT', path: '/x', body: i })).status).toBe(200);
    expect(t.server.requests.map(({ body }) => body)).toEqual(['0', '1']);
  });
});

describe('a kept connection that the server closed', () => {
  it('is no reason for a GET to fail', async () => {
    const t = await serving((response, { socket }) => {
      response.end('{}');
      // Closed when the client has the answer, and may already send the next request.
      setImmediate(() => socket.destroy());
    });
    for (let i = 0; i < 20; i++)
      expect((await t.api.request({ method: 'GET', path: '/x' })).status).toBe(200);
    expect(t.server.connections).toBeGreaterThan(1);
  });

  it('is not the only one: when one is dead, none is used again', async () => {
    let answers = true;
    const held: ServerResponse[] = [];
    const t = await serving(response => {
      if (!answers) return;
      held.push(response);
      if (held.length >= 3) for (const each of held.splice(0)) each.end('{}');
    });
    await Promise.all([1, 2, 3].map(() => t.api.request({ method: 'GET', path: '/x' })));
    expect(t.server.connections).toBe(3);
    answers = false;
    await failureOf(t.api.request({ method: 'GET', path: '/x', limitMs: 100 }));
    await waitFor(() => (t.server.open === 0 ? true : undefined), {
      what: 'all to be closed',
      limitMs: 5_000,
    });
  });
});

async function silentTcpServer(): Promise<{ readonly port: number; readonly connected: Promise<void> }> {
  let connect: () => void = () => {};
  const connected = new Promise<void>(resolve => void (connect = resolve));
  const server: Server = createServer(socket => {
    socket.on('error', () => {});
    socket.resume();
    connect();
  });
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  closers.push(() => server.close());
  return { port: (server.address() as AddressInfo).port, connected };
}
