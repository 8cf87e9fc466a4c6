// The API over node:https: no proxies, no redirects, limits on time and size, and nothing secret in an error.
import type { IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { StringDecoder } from 'node:string_decoder';
import { type Api, type ApiAnswer, ApiError, type ApiRequest, type WatchOptions } from './api.ts';
import { messageOf } from '../kernel/errors.ts';
import type { Credentials, Endpoint, TlsParts } from './endpoint.ts';
import { limitedSignal } from './limited-signal.ts';

export interface HttpsApi extends Api {
  /** Closes the connections that were kept. */
  close(): void;
}

const DEFAULT_LIMIT_MS = 30_000;
/** The API server sends at most some MB for a page; what is larger is not an answer of it. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** One line of a watch: an object is at most 1.5 MiB in etcd, and somewhat more as JSON. */
const MAX_LINE_LENGTH = 16 * 1024 * 1024;
const KEEP_ALIVE_PROBE_MS = 15_000;

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body?: Buffer;
  readonly contentType?: string;
}

/** An Api that talks to the endpoint. */
export function createHttpsApi(endpoint: Endpoint): HttpsApi {
  let tls: TlsParts | undefined;
  let agent: Agent | undefined;

  /** Connections of an older CA or certificate are not used again. */
  const agentFor = (now: TlsParts): Agent => {
    if (agent === undefined || tls !== now) {
      agent?.destroy();
      tls = now;
      agent = new Agent({ keepAlive: true, keepAliveMsecs: KEEP_ALIVE_PROBE_MS, maxSockets: 64, ...now });
    }
    return agent;
  };

  /** Resolves with the answer's head. The signal ends the request and the reading of its body. */
  const open = async (sent: Sent, signal: AbortSignal): Promise<IncomingMessage> => {
    const { tls: parts, authorization } = await credentialsOf(endpoint, sent);
    signal.throwIfAborted();
    const url = new URL(endpoint.url);
    // The endpoint's own path, where an API server stands behind a gateway, comes first.
    const path = `${url.pathname.replace(/\/$/, '')}${sent.path}`;
    return new Promise((resolve, reject) => {
      const request = httpsRequest({
        protocol: 'https:',
        hostname: url.hostname.replace(/^\[(.*)\]$/, '$1'),
        port: url.port === '' ? 443 : url.port,
        method: sent.method,
        path,
        headers: headersOf(sent, authorization),
        agent: agentFor(parts),
        signal,
      });
      request.on('error', reject);
      request.on('response', response => {
        if (response.statusCode === 401) endpoint.distrust();
        resolve(response);
      });
      request.end(sent.body);
    });
  };

  return {
    async request(asked, signal) {
      const limitMs = asked.limitMs ?? DEFAULT_LIMIT_MS;
      const limited = limitedSignal(signal, limitMs);
      const sent = sentOf(asked);
      try {
        const response = await open(sent, limited.signal);
        return answerOf(response, await wholeText(response));
      } catch (error) {
        signal?.throwIfAborted();
        const expired = new ApiError(`${nameOf(sent)}: no answer within ${limitMs / 1000} s`);
        throw limited.expired() ? expired : unanswered(sent, error, endpoint);
      } finally {
        limited.release();
      }
    },
    watch: (path, options, signal) => watchLines(open, endpoint, path, options, signal),
    close: () => agent?.destroy(),
  };
}

async function credentialsOf(endpoint: Endpoint, sent: Sent): Promise<Credentials> {
  try {
    return await endpoint.credentials();
  } catch (error) {
    throw new ApiError(`${nameOf(sent)}: ${messageOf(error)}`, { cause: error });
  }
}

const sentOf = ({ method, path, body, contentType }: ApiRequest): Sent => ({
  method,
  path,
  ...(body === undefined ? {} : { body: Buffer.from(JSON.stringify(body)) }),
  ...(contentType === undefined ? {} : { contentType }),
});

const headersOf = ({ body, contentType }: Sent, authorization: string | undefined) => ({
  accept: 'application/json',
  'user-agent': 'natoutgoing',
  ...(authorization === undefined ? {} : { authorization }),
  ...(body === undefined
    ? {}
    : { 'content-type': contentType ?? 'application/json', 'content-length': body.length }),
});

async function wholeText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`the answer is larger than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function answerOf(response: IncomingMessage, text: string): ApiAnswer {
  const seconds = Number(response.headers['retry-after']);
  return {
    status: response.statusCode ?? 0,
    body: parsed(text),
    ...(Number.isFinite(seconds) && seconds >= 0 ? { retryAfterMs: seconds * 1000 } : {}),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Without the query, in which a continue token may stand that is of no use to anybody. */
const nameOf = ({ method, path }: Pick<Sent, 'method' | 'path'>): string => `${method} ${path.split('?')[0]}`;

/** Words of node's TLS for a certificate that is not trusted. */
const UNTRUSTED = /CERT|SELF_SIGNED|UNABLE_TO_VERIFY|ERR_TLS/;

function unanswered(sent: Sent, error: unknown, endpoint: Endpoint): ApiError {
  if (error instanceof ApiError) return error;
  const code = (error as NodeJS.ErrnoException | undefined)?.code ?? '';
  // A server with a new CA: what is known of the old one is read again.
  if (UNTRUSTED.test(code)) endpoint.distrust();
  return new ApiError(`${nameOf(sent)}: ${messageOf(error)}`, { cause: error });
}

type Open = (sent: Sent, signal: AbortSignal) => Promise<IncomingMessage>;

async function* watchLines(
  open: Open,
  endpoint: Endpoint,
  path: string,
  { silenceMs }: WatchOptions,
  signal: AbortSignal,
): AsyncGenerator<readonly unknown[], void, undefined> {
  const sent: Sent = { method: 'GET', path };
  const silence = limitedSignal(signal, silenceMs);
  let response: IncomingMessage | undefined;
  try {
    response = await open(sent, silence.signal);
    if (response.statusCode !== 200) throw await refusal(sent, response);
    yield [];
    const decoder = new StringDecoder('utf8');
    let rest = '';
    for await (const chunk of response as AsyncIterable<Buffer>) {
      // While a line is worked on nobody listens, which is not silence.
      silence.pause();
      const lines = (rest + decoder.write(chunk)).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > MAX_LINE_LENGTH) throw new Error('a line of the watch is too long');
      yield lines.filter(line => line !== '').map(line => JSON.parse(line) as unknown);
      silence.restart();
    }
  } catch (error) {
    signal.throwIfAborted();
    const silent = new ApiError(`${nameOf(sent)}: nothing was heard for ${silenceMs / 1000} s`);
    throw silence.expired() ? silent : unanswered(sent, error, endpoint);
  } finally {
    silence.release();
    response?.destroy();
  }
}

async function refusal(sent: Sent, response: IncomingMessage): Promise<ApiError> {
  const { status, body, retryAfterMs } = answerOf(response, await wholeText(response));
  return refusedAnswer(sent, { status, body, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) });
}

/** The error for an answer that is not the one that was needed. */
export function refusedAnswer(asked: Pick<Sent, 'method' | 'path'>, answer: ApiAnswer): ApiError {
  const { status, body, retryAfterMs } = answer;
  const said = (body ?? {}) as { readonly message?: unknown; readonly reason?: unknown };
  const words = typeof said.message === 'string' ? `: ${said.message.slice(0, 1000)}` : '';
  return new ApiError(`${nameOf(asked)}: ${status}${words}`, {
    status,
    reason: typeof said.reason === 'string' ? said.reason : undefined,
    retryAfterMs,
  });
}
