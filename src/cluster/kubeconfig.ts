// The endpoint of a kubeconfig, with all that kubeconfigs can say (exec plugins, client certificates, tokens in files):
// client-node's KubeConfig knows it. Not for the applier, whose memory is paid on every node.
import type { RequestOptions } from 'node:https';
import { isDeepStrictEqual } from 'node:util';
import { KubeConfig } from '@kubernetes/client-node';
import { messageOf } from '../kernel/errors.ts';
import type { Endpoint, TlsParts } from './endpoint.ts';

export interface KubeconfigOptions {
  /** Path; absent: KUBECONFIG, ~/.kube/config, or the pod's own account. */
  readonly file?: string | undefined;
  readonly context?: string | undefined;
}

/** Throws one sentence that names the file or the context. */
export function kubeconfigEndpoint({ file, context }: KubeconfigOptions): Endpoint {
  const config = loaded(file);
  if (context !== undefined) {
    if (!config.getContexts().some(({ name }) => name === context)) {
      const names = config.getContexts().map(({ name }) => name);
      throw new Error(
        `there is no context ${JSON.stringify(context)} in the kubeconfig; it has ${names.join(', ') || 'none'}`,
      );
    }
    config.setCurrentContext(context);
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) {
    throw new Error('no cluster is known: there is no kubeconfig with a current context, and this is no pod');
  }
  let tls: TlsParts = {};
  return {
    url: cluster.server,
    async credentials() {
      const options: RequestOptions = {};
      await config.applyToHTTPSOptions(options);
      const { ca, cert, key, servername, rejectUnauthorized } = options;
      const now = { ca, cert, key, servername, rejectUnauthorized } as TlsParts;
      if (!isDeepStrictEqual(now, tls)) tls = now;
      return { tls, authorization: authorizationOf(options) };
    },
    distrust: () => {},
  };
}

function authorizationOf({ headers, auth }: RequestOptions): string | undefined {
  const header = (headers as Readonly<Record<string, unknown>> | undefined)?.['Authorization'];
  if (typeof header === 'string') return header;
  return typeof auth === 'string' ? `Basic ${Buffer.from(auth).toString('base64')}` : undefined;
}

function loaded(file: string | undefined): KubeConfig {
  const config = new KubeConfig();
  try {
    if (file === undefined) config.loadFromDefault();
    else config.loadFromFile(file);
  } catch (error) {
    throw new Error(
      `the kubeconfig${file === undefined ? '' : ` ${file}`} cannot be used: ${messageOf(error)}`,
      { cause: error },
    );
  }
  return config;
}
