// /healthz, /readyz and /metrics on one address, for kubelet and Prometheus. It serves nothing else and takes nothing in.
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HealthParts {
  /** host:port, [v6]:port or :port; port 0 is any free one. */
  readonly address: string;
  /** Why the program does not work at all and should be started anew; undefined: it works. */
  readonly sick: () => string | undefined;
  /** Why it is not ready for what it is there for; undefined: it is. */
  readonly notReady: () => string | undefined;
  /** The text of Prometheus. */
  readonly metrics: () => Promise<string>;
}

export interface HealthServer {
  readonly port: number;
  close(): Promise<void>;
}

const LIMIT_MS = 5_000;

/** Listens; rejects with one sentence when it cannot. */
export async function startHealthServer(parts: HealthParts): Promise<HealthServer> {
  const { host, port } = parseAddress(parts.address);
  const server = createServer(
    { requestTimeout: LIMIT_MS, headersTimeout: LIMIT_MS, maxHeaderSize: 8192 },
    (request, response) => {
      const path = request.url?.split('?')[0];
      if (request.method !== 'GET' && request.method !== 'HEAD')
        return answer(response, 405, 'method not allowed\n');
      if (path === '/healthz') return told(response, parts.sick());
      if (path === '/readyz') return told(response, parts.notReady());
      if (path !== '/metrics') return answer(response, 404, 'not found\n');
      parts.metrics().then(
        text => answer(response, 200, text, 'text/plain; version=0.0.4; charset=utf-8'),
        () => answer(response, 500, 'the metrics could not be gathered\n'),
      );
    },
  );
  server.maxConnections = 64;
  await new Promise<void>((resolve, reject) => {
    server.once('error', cause =>
      reject(new Error(`cannot listen on ${parts.address}: ${cause.message}`, { cause })),
    );
    server.listen({ port, ...(host === '' ? {} : { host }) }, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const told = (response: ServerResponse, trouble: string | undefined): void =>
  trouble === undefined ? answer(response, 200, 'ok\n') : answer(response, 503, `${trouble}\n`);

function answer(
  response: ServerResponse,
  status: number,
  text: string,
  type = 'text/plain; charset=utf-8',
): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

/** Throws one sentence when it is none. */
export function parseAddress(address: string): { readonly host: string; readonly port: number } {
  const found = /^(?:\[([0-9a-fA-F:]+)\]|([^:[\]]*)):(\d{1,5})$/.exec(address);
  const port = Number(found?.[3]);
  if (found === null || port > 65_535) {
    throw new Error(`${JSON.stringify(address)} is not an address such as 127.0.0.1:9808 or [::1]:9808`);
  }
  return { host: found[1] ?? found[2] ?? '', port };
}
