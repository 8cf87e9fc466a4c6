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
  /** Bytes towards the client wait that many milliseconds, on the connections that are there too. */
  delay(ms: number): void;
  /** New connections work. Those that were silent stay so, as behind a firewall that forgot them. */
  heal(): void;
  /** Where it listens; 0 for a unix socket. */
  readonly port: number;
  /** Connections so far. */
  readonly connections: number;
  /** Bytes that were handed on so far, in both directions. */
  readonly bytes: number;
  close(): Promise<void>;
}

/** One connection. The relay to the server is absent when it came in a black hole. */
interface Pair {
  readonly client: Socket;
  readonly server?: Socket;
  silent: boolean;
}

/** Listens on a unix socket (path) or a port of loopback, and connects to the port of loopback. */
export async function openRelay(listen: { path: string } | { port: number }, toPort: number): Promise<Relay> {
  const pairs = new Set<Pair>();
  let mode: 'open' | 'silent' | 'refusing' = 'open';
  let delayMs = 0;
  let connections = 0;
  let bytes = 0;
  // A unix socket has no reset: whoever is behind it sees the connection end in the middle.
  const reset = (client: Socket): unknown => ('path' in listen ? client.destroy() : client.resetAndDestroy());

  const accept = (client: Socket): void => {
    connections += 1;
    // An end that breaks is closed by node; what is to be told to the other end, the handlers of 'close' tell.
    client.on('error', () => {});
    if (mode === 'refusing') {
      reset(client);
      return;
    }
    if (mode === 'silent') {
      client.resume();
      keep({ client, silent: true });
      return;
    }
    const server = createConnection({ host: '127.0.0.1', port: toPort });
    server.on('error', () => {});
    const pair: Pair = { client, server, silent: false };
    keep(pair);
    hand(pair, client, server, () => 0);
    hand(pair, server, client, () => delayMs);
  };

  const keep = (pair: Pair): void => {
    pairs.add(pair);
    const look = (): void => {
      if (pair.client.destroyed && pair.server?.destroyed !== false) pairs.delete(pair);
    };
    pair.client.once('close', look);
    pair.server?.once('close', look);
  };

  /** Hands on what comes, in its order; also that there comes no more. Nothing of it once the pair is silent. */
  const hand = (pair: Pair, from: Socket, to: Socket, waitMs: () => number): void => {
    let due = 0;
    const waiting: (() => void)[] = [];
    const inTime = (act: () => void): void => {
      const now = performance.now();
      due = Math.max(due, now + waitMs());
      if (due <= now && waiting.length === 0) {
        act();
        return;
      }
      waiting.push(act);
      setTimeout(() => waiting.shift()?.(), due - now);
    };
    from.on('data', (data: Buffer) =>
      inTime(() => {
        if (pair.silent || to.destroyed) return;
        bytes += data.length;
        if (to.write(data)) return;
        from.pause();
        to.once('drain', () => from.resume());
      }),
    );
    from.once('close', broken =>
      inTime(() => {
        if (pair.silent) return;
        if (broken) to.destroy();
        else to.end();
      }),
    );
  };

  const cut = (): void => {
    for (const { client, server } of pairs) {
      reset(client);
      server?.destroy();
    }
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
      for (const pair of pairs) {
        pair.silent = true;
        // A socket that waits for the other to drain would not even take what is to vanish.
        pair.client.resume();
        pair.server?.resume();
      }
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
    get bytes() {
      return bytes;
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
