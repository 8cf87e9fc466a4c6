import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRelay, type Relay } from './relay.ts';
import { waitFor } from './wait.ts';

interface Client {
  readonly socket: Socket;
  readonly heard: () => string;
  /** How it ended: 'end', or the code of an error. */
  readonly ended: () => string | undefined;
  says(text: string): void;
}

describe.each(['a port', 'a unix socket'] as const)('a relay on %s', kind => {
  let folder: string;
  let server: Server;
  let relay: Relay;
  let clients: Client[];
  /** The server's ends of the connections, in order. */
  let atServer: Socket[];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'natoutgoing-relay-'));
    clients = [];
    atServer = [];
    server = createServer(socket => {
      atServer.push(socket);
      socket.on('error', () => {});
      socket.pipe(socket);
    });
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
    const listen = kind === 'a port' ? { port: 0 } : { path: join(folder, 'socket') };
    relay = await openRelay(listen, (server.address() as AddressInfo).port);
  });
  afterEach(async () => {
    for (const { socket } of clients) socket.destroy();
    await relay.close();
    await new Promise(resolve => void server.close(resolve));
    await rm(folder, { recursive: true });
  });

  const open = (): Client => {
    const socket =
      kind === 'a port' ? connect(relay.port, '127.0.0.1') : connect({ path: join(folder, 'socket') });
    let heard = '';
    let ended: string | undefined;
    socket.setEncoding('utf8').on('data', (text: string) => void (heard += text));
    socket.on('error', error => void (ended ??= (error as NodeJS.ErrnoException).code));
    socket.on('end', () => void (ended ??= 'end'));
    const client = {
      socket,
      heard: () => heard,
      ended: () => ended,
      says: (text: string) => void socket.write(text),
    };
    clients.push(client);
    return client;
  };

  const until = (what: string, state: () => boolean): Promise<true> =>
    waitFor(() => (state() ? true : undefined), { what, limitMs: 5000, intervalMs: 5 });

  const hears = async (client: Client, text: string): Promise<void> => {
    await until(`the answer ${text.slice(0, 20)}`, () => client.heard().length >= text.length);
    expect(client.heard()).toBe(text);
  };

  const opened = async (): Promise<Client> => {
    const client = open();
    client.says('hello');
    await hears(client, 'hello');
    return client;
  };

  it('hands on what comes, in both directions, and counts', async () => {
    const client = await opened();
    await opened();
    expect(relay.connections).toBe(2);
    expect(relay.bytes).toBe(20);
    // More than the buffers between hold, so that somebody has to wait.
    const much = 'x'.repeat(8_000_000);
    client.says(much);
    await hears(client, `hello${much}`);
    expect(relay.bytes).toBe(20 + 2 * much.length);
  });

  it('hands on that a side has ended', async () => {
    const [first, second] = [await opened(), await opened()];
    first.socket.end();
    await until('the server to see the end', () => atServer[0]?.destroyed === true);
    expect(atServer[1]?.destroyed).toBe(false);
    atServer[1]?.end('bye');
    await until('the client to see the end', () => second.ended() === 'end');
    expect(second.heard()).toBe('hellobye');
  });

  it('drops everything in a black hole, and tells nobody', async () => {
    const before = await opened();
    relay.blackhole();
    const within = open();
    for (const client of [before, within]) client.says('lost');
    atServer[0]?.write('lost');
    await until('both to be connected', () => relay.connections === 2);
    // The server's end goes, and the client does not learn it.
    atServer[0]?.resetAndDestroy();
    relay.heal();
    const after = await opened();
    expect(after.heard()).toBe('hello');
    expect([before.heard(), within.heard()]).toEqual(['hello', '']);
    expect([before.ended(), within.ended()]).toEqual([undefined, undefined]);
    expect(atServer).toHaveLength(2);
    // Those that were silent stay so.
    for (const client of [before, within]) client.says('lost');
    after.says(', again');
    await hears(after, 'hello, again');
    expect([before.heard(), within.heard()]).toEqual(['hello', '']);
  });

  it('cuts what is there and takes what comes', async () => {
    const before = await opened();
    relay.cut();
    await until('the client to be cut off', () => before.ended() !== undefined);
    expect(before.ended()).toBe(kind === 'a port' ? 'ECONNRESET' : 'end');
    await until('the server to see the end', () => atServer[0]?.destroyed === true);
    await opened();
  });

  it('refuses until it is healed', async () => {
    const before = await opened();
    relay.refuse();
    const within = open();
    for (const client of [before, within])
      await until('the client to be refused', () => client.ended() !== undefined);
    expect(atServer).toHaveLength(1);
    relay.heal();
    await opened();
  });

  it('delays answers, and keeps their order when the delay ends', async () => {
    const client = await opened();
    relay.delay(300);
    const start = performance.now();
    client.says(' one');
    await until('the server to have answered', () => atServer[0]?.bytesWritten === 9);
    relay.delay(0);
    client.says(' two');
    await hears(client, 'hello one two');
    expect(performance.now() - start).toBeGreaterThan(290);
  });

  it('ends a connection at once when nobody listens behind it', async () => {
    await new Promise(resolve => void server.close(resolve));
    const client = open();
    await until('the client to see the end', () => client.ended() !== undefined);
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  });
});
