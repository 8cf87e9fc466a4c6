// An HTTPS server of a test's own, with a CA of its own.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ApiError } from '../../src/cluster/api.ts';
import type { Endpoint, TlsParts } from '../../src/cluster/endpoint.ts';
import { createHttpsApi, type HttpsApi } from '../../src/cluster/https.ts';
import { systemExec } from '../../src/kernel/exec.ts';
import { makeServerKeys } from '../cluster/certificates.ts';

export interface Keys {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** A CA and a certificate for loopback, PEM. */
export async function makeKeys(): Promise<Keys> {
  const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-keys-'));
  try {
    const keys = await makeServerKeys(folder, ['127.0.0.1', '::1'], systemExec);
    return { ca: keys.ca, cert: await readFile(keys.cert, 'utf8'), key: await readFile(keys.key, 'utf8') };
  } finally {
    await rm(folder, { recursive: true });
  }
}

export interface TestServer {
  readonly port: number;
  /** Requests so far, with their whole bodies. */
  readonly requests: readonly { readonly message: IncomingMessage; readonly body: string }[];
  /** TCP connections so far. */
  readonly connections: number;
  /** Those that are open. */
  readonly open: number;
  close(): Promise<void>;
}

export type Handler = (response: ServerResponse, message: IncomingMessage, body: string) => void;

export async function startServer(
  keys: Keys,
  handler: Handler,
  { host = '127.0.0.1', port = 0 } = {},
): Promise<TestServer> {
  const requests: { readonly message: IncomingMessage; readonly body: string }[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const server: Server = createServer({ cert: keys.cert, key: keys.key }, (message, response) => {
    const chunks: Buffer[] = [];
    message.on('data', (chunk: Buffer) => chunks.push(chunk));
    message.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      requests.push({ message, body });
      handler(response, message, body);
    });
  });
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
  });
  server.on('tlsClientError', () => {});
  await new Promise<void>(resolve => void server.listen(port, host, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    get connections() {
      return connections;
    },
    get open() {
      return sockets.size;
    },
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

export interface TestEndpoint extends Endpoint {
  tls: TlsParts;
  authorization: string | undefined;
  distrusted: number;
}

/** An endpoint whose parts a test may change. */
export function endpointAt(url: string, tls: TlsParts, authorization?: string): TestEndpoint {
  const endpoint: TestEndpoint = {
    url,
    tls,
    authorization,
    distrusted: 0,
    credentials: () => Promise.resolve({ tls: endpoint.tls, authorization: endpoint.authorization }),
    distrust: () => void (endpoint.distrusted += 1),
  };
  return endpoint;
}

/** What is to be closed when a test is over, in the order in which it was opened. */
export type Closers = (() => unknown)[];

/** A server, and the API over it with a secret token. */
export async function serve(keys: Keys, closers: Closers, handler: Handler, prefix = '') {
  const server = await startServer(keys, handler);
  closers.push(() => server.close());
  const endpoint = endpointAt(`https://127.0.0.1:${server.port}${prefix}`, { ca: keys.ca }, 'Bearer s3cret');
  const api: HttpsApi = createHttpsApi(endpoint);
  closers.push(() => api.close());
  return { server, endpoint, api };
}

export const json =
  (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Handler =>
  response => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify(body));
  };

/** The error of a request that must fail: one line, and nothing secret in it. */
export async function failureOf(work: Promise<unknown>): Promise<ApiError> {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof ApiError)) throw new Error(`this is no ApiError: ${String(error)}`);
  expect(`${error.message} ${JSON.stringify(error)}`).not.toContain('s3cret');
  expect(error.message).not.toContain('\n');
  return error;
}
