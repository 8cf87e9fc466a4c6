// A TCP relay between a client and the API server, in which faults are injected. It hands on bytes and sees no content:
// the client's TLS ends at the server.
import { createConnection, createServer, type Server, type Socket } from 'node:net';

export interface Relay {
  /** Connections from now on, and those that are there, are silent: bytes vanish, nothing is closed. */
  blackhole(): void;
  /** New connections are refused (closed at once), those that are there are reset. */
  refuse(): void;
  /** Resets the connections that are there. */
  cut(): void;
  /** Bytes towards the client wait that many milliseconds. */
  delay(ms: number): void;
  /** New connections work. Those that were silent stay so, as behind a firewall that forgot them. */
  heal(): void;
  /** Where it listens; 0 for a unix socket. */
  readonly port: number;
  /** Connections so far. */
  readonly connections: number;
  close(): Promise<void>;
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket | undefined;
}

/** Listens on a unix socket (path) or a port of loopback, and connects to the port of loopback. */
export async function openRelay(listen: { path: string } | { port: number }, toPort: number): Promise<Relay> {
  const pairs = new Set<Pair>();
  let mode: 'open' | 'silent' | 'refusing' = 'open';
  let delayMs = 0;
  let connections = 0;

  const accept = (client: Socket): void => {
    connections += 1;
    client.on('error', () => {});
    if (mode === 'refusing') return void client.resetAndDestroy();
    if (mode === 'silent') {
      client.resume();
      return keep({ client, server: undefined });
    }
    const server = createConnection({ host: '127.0.0.1', port: toPort });
    server.on('error', () => client.destroy());
    client.on('close', () => server.destroy());
    server.on('close', () => client.destroy());
    client.pipe(server);
    if (delayMs === 0) server.pipe(client);
    else server.on('data', (bytes: Buffer) => void setTimeout(() => client.write(bytes), delayMs));
    keep({ client, server });
  };
  const keep = (pair: Pair): void => {
    pairs.add(pair);
    pair.client.once('close', () => pairs.delete(pair));
  };
  const cut = (): void => {
    for (const { client, server } of pairs) {
      client.resetAndDestroy();
      server?.destroy();
    }
  };
  /** Neither end learns that the other does not hear it any more. */
  const silence = ({ client, server }: Pair): void => {
    if (server === undefined) return;
    client.unpipe(server);
    server.unpipe(client);
    server.removeAllListeners('data');
    for (const socket of [client, server]) socket.removeAllListeners('close');
    client.resume();
    server.resume();
    client.once('close', () => server.destroy());
  };

  const listener: Server = createServer(accept);
  await new Promise<void>((resolve, reject) => {
    listener.once('error', reject);
    listener.listen('path' in listen ? listen : { ...listen, host: '127.0.0.1' }, resolve);
  });
  const bound = listener.address();
  return {
    port: typeof bound === 'object' && bound !== null ? bound.port : 0,
    blackhole() {
      mode = 'silent';
      for (const pair of pairs) silence(pair);
    },
    refuse() {
      mode = 'refusing';
      cut();
    },
    cut,
    delay: ms => void (delayMs = ms),
    heal: () => void (mode = 'open'),
    get connections() {
      return connections;
    },
    close: () =>
      new Promise(resolve => {
        listener.close(() => resolve());
        for (const { client, server } of pairs) {
          client.destroy();
          server?.destroy();
        }
      }),
  };
}
