// What the rest of the program needs of the Kubernetes API: requests and watch streams of plain JSON. Operator, applier
// and commands use the same; only where address and credentials come from differs.

export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** From the root, with its query: /apis/natoutgoing.io/v1alpha1/masqnodes?limit=500 */
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** application/json when absent; patches have types of their own. */
  readonly contentType?: string;
  /** Milliseconds until the whole answer must be there. Default 30 s. */
  readonly limitMs?: number;
  /** Called when there is a connection, right before the first byte is sent; what it throws ends the request. */
  readonly guard?: () => void;
}

export interface ApiAnswer {
  readonly status: number;
  /** Parsed JSON, or the text where it is none (/readyz). */
  readonly body: unknown;
  /** From the header Retry-After, in milliseconds. */
  readonly retryAfterMs?: number;
}

export interface WatchOptions {
  /** Milliseconds without a byte after which the connection is given up as dead. */
  readonly silenceMs: number;
}

export interface Api {
  /** An HTTP error is an answer. Rejects with ApiError when there was none, and with the signal's reason on an abort. */
  request(request: ApiRequest, signal?: AbortSignal): Promise<ApiAnswer>;
  /**
   * The JSON documents of a watch, those that came together in one batch, until the server ends it. The first batch is
   * empty and says that the watch is open. Throws ApiError when it cannot be opened (with the status), breaks, falls
   * silent or says what is not JSON; the signal's reason on an abort.
   */
  watch(path: string, options: WatchOptions, signal: AbortSignal): AsyncIterable<readonly unknown[]>;
}

/** Why there is no answer, or not the one that was needed. Never holds a token or a header. */
export class ApiError extends Error {
  /** HTTP status; undefined when no answer came. */
  readonly status: number | undefined;
  /** The API server's own word for it (reason of a Status object): NotFound, Expired, Conflict … */
  readonly reason: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    parts: {
      readonly status?: number | undefined;
      readonly reason?: string | undefined;
      readonly retryAfterMs?: number | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, { cause: parts.cause });
    this.name = 'ApiError';
    this.status = parts.status;
    this.reason = parts.reason;
    this.retryAfterMs = parts.retryAfterMs;
  }
}

/** An object as the API gives it; nothing in it is trusted but that it is an object with a name. */
export interface RawObject {
  readonly apiVersion?: unknown;
  readonly kind?: unknown;
  readonly metadata: {
    readonly name: string;
    readonly uid?: unknown;
    readonly resourceVersion?: unknown;
    readonly generation?: unknown;
    readonly [key: string]: unknown;
  };
  readonly [key: string]: unknown;
}

/** A collection, or the part of it that selectors choose. */
export interface Resource {
  /** The collection's path: /apis/natoutgoing.io/v1alpha1/masqplans */
  readonly path: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}
