// The API over node:https: no proxies, no redirects, limits on time and size, and nothing secret in an error.
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { type Api, type ApiAnswer, ApiError, type ApiRequest, type WatchOptions } from './api.ts';
import { messageOf } from '../kernel/errors.ts';
import type { Credentials, Endpoint, TlsParts } from './endpoint.ts';
import { limitedSignal } from './limited-signal.ts';
import { createLineReader } from './lines.ts';

export interface HttpsApi extends Api {
  /** Closes the connections that were kept. */
  close(): void;
}

const DEFAULT_LIMIT_MS = 30_000;
/** TCP and TLS. Longer than two lost packets, shorter than it takes to give up a whole answer. */
const CONNECT_LIMIT_MS = 10_000;
/** The API server sends at most some MB for a page; what is larger is not an answer of it. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** One line of a watch: an object is at most 1.5 MiB in etcd, and somewhat more as JSON. */
const MAX_LINE_LENGTH = 16 * 1024 * 1024;
const KEEP_ALIVE_PROBE_MS = 15_000;
const MAX_SOCKETS = 64;

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body?: Buffer;
  readonly contentType?: string;
  readonly guard?: () => void;
}

/** The server closed a kept connection just when it was used again; for a GET that is no reason to fail. */
class StaleConnection extends Error {}

/** An Api that talks to the endpoint. Throws one sentence when its address is none of https. */
export function createHttpsApi(endpoint: Endpoint): HttpsApi {
  const url = httpsUrl(endpoint.url);
  let tls: TlsParts | undefined;
  let agent: Agent | undefined;

  /** What is on its way goes on, and no connection that was kept is used again. */
  const retire = (): void => {
    if (agent === undefined) return;
    agent.maxFreeSockets = 0;
    for (const socket of Object.values(agent.freeSockets).flatMap(free => free ?? [])) socket.destroy();
    agent = undefined;
  };
  /** Connections of an older CA or certificate are not used again. */
  const agentFor = (now: TlsParts): Agent => {
    if (tls !== now) retire();
    tls = now;
    agent ??= new Agent({
      ...now,
      // Said here, since otherwise the environment may switch it off.
      rejectUnauthorized: now.rejectUnauthorized !== false,
      keepAlive: true,
      maxSockets: MAX_SOCKETS,
    });
    return agent;
  };

  const attempt = async (sent: Sent, signal: AbortSignal): Promise<IncomingMessage> => {
    const { tls: parts, authorization } = await credentialsOf(endpoint, sent);
    signal.throwIfAborted();
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
      request.on('error', error => {
        const stale = request.reusedSocket && !signal.aborted && sent.method === 'GET';
        reject(stale ? new StaleConnection('the connection was closed', { cause: error }) : error);
      });
      request.on('response', response => {
        if (response.statusCode === 401) endpoint.distrust();
        resolve(response);
      });
      whenConnected(request, () => {
        sent.guard?.();
        request.end(sent.body);
      });
    });
  };

  /** Resolves with the answer's head. The signal ends the request and the reading of its body. */
  const open = async (sent: Sent, signal: AbortSignal): Promise<IncomingMessage> => {
    try {
      return await attempt(sent, signal);
    } catch (error) {
      if (!(error instanceof StaleConnection)) throw error;
      // A server that went away closed all of them.
      retire();
      return attempt(sent, signal);
    }
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
        if (!limited.expired()) throw unanswered(sent, error, endpoint);
        // Where one connection is dead, so may be all: the next request shall not wait for the same again.
        retire();
        throw new ApiError(`${nameOf(sent)}: no answer within ${limitMs / 1000} s`);
      } finally {
        limited.release();
      }
    },
    watch: (path, options, signal) => watchLines({ open, endpoint, retire }, path, options, signal),
    close: () => agent?.destroy(),
  };
}

function httpsUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'https:') return url;
  throw new Error(`the API server's address ${JSON.stringify(text)} does not begin with https://`);
}

/**
 * Calls `send` when there is a connection to send on, and not before: what is sent on a connection that is still being
 * made may leave much later. An error of `send` ends the request, and so does a connection that takes too long.
 */
function whenConnected(request: ClientRequest, send: () => void): void {
  const late = new Error(`no connection within ${CONNECT_LIMIT_MS / 1000} s`);
  const timer = setTimeout(() => request.destroy(late), CONNECT_LIMIT_MS);
  const connected = (): void => {
    clearTimeout(timer);
    try {
      send();
    } catch (error) {
      request.destroy(error as Error);
    }
  };
  request.once('close', () => clearTimeout(timer));
  request.once('socket', socket => {
    // The agent's own option for this does not reach a TLS socket before it was used once.
    socket.setKeepAlive(true, KEEP_ALIVE_PROBE_MS);
    if (socket.connecting) socket.once('secureConnect', connected);
    else connected();
  });
}

async function credentialsOf(endpoint: Endpoint, sent: Sent): Promise<Credentials> {
  try {
    return await endpoint.credentials();
  } catch (error) {
    throw new ApiError(`${nameOf(sent)}: ${messageOf(error)}`, { cause: error });
  }
}

const sentOf = ({ method, path, body, contentType, guard }: ApiRequest): Sent => ({
  method,
  path,
  ...(body === undefined ? {} : { body: Buffer.from(JSON.stringify(body)) }),
  ...(contentType === undefined ? {} : { contentType }),
  ...(guard === undefined ? {} : { guard }),
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
  // Several addresses that all refused are one error without words.
  return new ApiError(`${nameOf(sent)}: ${messageOf(error) || code}`, { cause: error });
}

interface Transport {
  readonly open: (sent: Sent, signal: AbortSignal) => Promise<IncomingMessage>;
  readonly endpoint: Endpoint;
  readonly retire: () => void;
}

async function* watchLines(
  { open, endpoint, retire }: Transport,
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
    const lines = createLineReader(MAX_LINE_LENGTH);
    for await (const chunk of response as AsyncIterable<Buffer>) {
      // While a line is worked on nobody listens, which is not silence.
      silence.pause();
      const documents = documentsOf(lines.push(chunk));
      if (documents.length > 0) yield documents;
      silence.restart();
    }
    const documents = documentsOf(lines.end());
    if (documents.length > 0) yield documents;
  } catch (error) {
    signal.throwIfAborted();
    if (!silence.expired()) throw unanswered(sent, error, endpoint);
    retire();
    throw new ApiError(`${nameOf(sent)}: nothing was heard for ${silenceMs / 1000} s`);
  } finally {
    silence.release();
    response?.destroy();
  }
}

function documentsOf(lines: readonly string[]): readonly unknown[] {
  try {
    return lines.map(line => JSON.parse(line) as unknown);
  } catch {
    // JSON.parse quotes what it read, which may be anything.
    throw new Error('the watch said what is not JSON');
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
