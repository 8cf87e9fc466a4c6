// The endpoint of a pod: the ServiceAccount's folder, whose token kubelet renews and whose CA may be rotated.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../kernel/errors.ts';
import type { Endpoint, TlsParts } from './endpoint.ts';

export const SERVICE_ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

export interface InClusterOptions {
  /** Where token and ca.crt are. */
  readonly folder: string;
  /** https://host:port; absent: from KUBERNETES_SERVICE_HOST and _PORT. */
  readonly url?: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Milliseconds, of a clock that never runs backwards. */
  readonly now: () => number;
}

/** What was read is used for this long; a token that kubelet renews is valid for minutes more. */
const KEEP_MS = 60_000;

/** Throws one sentence when this is no pod. Files are read when they are needed: they may come later. */
export function inClusterEndpoint(options: InClusterOptions): Endpoint {
  const url = options.url ?? serviceUrl(options.env);
  const token = keptFile(join(options.folder, 'token'), options.now);
  const ca = keptFile(join(options.folder, 'ca.crt'), options.now);
  let tls: TlsParts = {};
  return {
    url,
    async credentials() {
      const [caText, tokenText] = await Promise.all([ca.read(), token.read()]);
      if (tls.ca !== caText) tls = { ca: caText };
      return { tls, authorization: `Bearer ${tokenText}` };
    },
    distrust() {
      token.forget();
      ca.forget();
    },
  };
}

function serviceUrl(env: InClusterOptions['env']): string {
  const host = env['KUBERNETES_SERVICE_HOST'];
  const port = env['KUBERNETES_SERVICE_PORT_HTTPS'] ?? env['KUBERNETES_SERVICE_PORT'];
  if (host === undefined || port === undefined) {
    throw new Error('not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set');
  }
  return `https://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function keptFile(path: string, now: () => number): { read(): Promise<string>; forget(): void } {
  let kept: { readonly text: string; readonly at: number } | undefined;
  return {
    async read() {
      if (kept !== undefined && now() - kept.at < KEEP_MS) return kept.text;
      const text = await textOf(path);
      kept = { text, at: now() };
      return text;
    },
    forget: () => {
      kept = undefined;
    },
  };
}

async function textOf(path: string): Promise<string> {
  let text: string;
  try {
    text = (await readFile(path, 'utf8')).trim();
  } catch (error) {
    throw new Error(`${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
  if (text === '') throw new Error(`${path} is empty`);
  return text;
}
