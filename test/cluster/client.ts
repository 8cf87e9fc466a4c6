// A small JSON client of the API server for tests: what was asked is what is sent, and every answer is handed back.
import { Agent, request as httpsRequest } from 'node:https';

export interface ApiResponse {
  readonly status: number;
  /** Parsed JSON; the text itself where the answer is none (/readyz). */
  readonly body: unknown;
}

export interface RequestOptions {
  /** Sent as JSON. */
  readonly body?: unknown;
  /** application/json when absent; patches and server-side apply have types of their own. */
  readonly contentType?: string;
  readonly accept?: string;
}

export interface ApiClient {
  /** Rejects only when no answer came; an HTTP error is an answer. */
  readonly request: (
    method: string,
    path: string,
    options?: RequestOptions,
    signal?: AbortSignal,
  ) => Promise<ApiResponse>;
  /** Closes the connections that were kept. */
  readonly close: () => void;
}

export interface ClientOptions {
  readonly url: string;
  /** PEM. */
  readonly ca: string;
  /** Bearer token; absent: anonymous. */
  readonly token?: string;
}

/** Longer than the API server's own limit of 60 s for a request. */
const REQUEST_LIMIT_MS = 75_000;

/** A client of one server with the rights of one token. */
export function createClient(options: ClientOptions): ApiClient {
  const agent = new Agent({ keepAlive: true, ca: options.ca });
  return {
    request: (method, path, sent = {}, signal) =>
      new Promise((resolve, reject) => {
        const body = sent.body === undefined ? undefined : Buffer.from(JSON.stringify(sent.body));
        const headers = {
          accept: sent.accept ?? 'application/json',
          ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
          ...(body === undefined
            ? {}
            : { 'content-type': sent.contentType ?? 'application/json', 'content-length': body.length }),
        };
        const limit = AbortSignal.timeout(REQUEST_LIMIT_MS);
        const request = httpsRequest(new URL(path, options.url), {
          method,
          headers,
          agent,
          signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
        });
        const fail = (cause: Error): void =>
          reject(new Error(`${method} ${path}: ${cause.message}`, { cause }));
        request.on('error', fail);
        request.on('response', response => {
          const chunks: Buffer[] = [];
          response.on('error', fail);
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () => {
            resolve({
              status: response.statusCode ?? 0,
              body: parse(Buffer.concat(chunks).toString('utf8')),
            });
          });
        });
        request.end(body);
      }),
    close: () => agent.destroy(),
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
