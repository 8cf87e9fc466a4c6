// The endpoint of a kubeconfig, with all that kubeconfigs can say (exec plugins, client certificates, tokens in files):
// client-node's KubeConfig knows it. Not for the applier, whose memory is paid on every node.
import type { OutgoingHttpHeaders } from 'node:http';
import type { RequestOptions } from 'node:https';
import { isDeepStrictEqual } from 'node:util';
import { type Cluster, KubeConfig } from '@kubernetes/client-node';
import { messageOf } from '../kernel/errors.ts';
import type { Endpoint, TlsParts } from './endpoint.ts';

export interface KubeconfigOptions {
  /** Path; absent: KUBECONFIG, ~/.kube/config, or the pod's own account. */
  readonly file?: string | undefined;
  /** Absent: the current one. */
  readonly context?: string | undefined;
}

/** Throws one sentence that names the file and the context. */
export function kubeconfigEndpoint(options: KubeconfigOptions): Endpoint {
  let config: KubeConfig | undefined = loaded(options);
  const { server } = clusterOf(config, options);
  let tls: TlsParts = {};
  return {
    url: server,
    async credentials() {
      config ??= loaded(options);
      const asked: RequestOptions & { headers: OutgoingHttpHeaders } = { headers: {} };
      try {
        await config.applyToHTTPSOptions(asked);
      } catch (error) {
        throw new Error(`${nameOf(options)} gives no credentials: ${messageOf(error)}`, { cause: error });
      }
      const { ca, cert, key, servername, rejectUnauthorized } = asked;
      const now = { ca, cert, key, servername, rejectUnauthorized } as TlsParts;
      if (!isDeepStrictEqual(now, tls)) tls = now;
      return { tls, authorization: authorizationOf(asked) };
    },
    // Tokens that were read from files, or that plugins gave, are remembered in there.
    distrust: () => {
      config = undefined;
    },
  };
}

function authorizationOf({
  headers,
  auth,
}: RequestOptions & { headers: OutgoingHttpHeaders }): string | undefined {
  const header = headers['Authorization'];
  if (typeof header === 'string') return header;
  return typeof auth === 'string' ? `Basic ${Buffer.from(auth).toString('base64')}` : undefined;
}

/** Read, and with the context chosen. */
function loaded(options: KubeconfigOptions): KubeConfig {
  const { file, context } = options;
  const config = new KubeConfig();
  try {
    if (file === undefined) config.loadFromDefault();
    else config.loadFromFile(file);
  } catch (error) {
    throw new Error(`${nameOf(options)} cannot be used: ${messageOf(error)}`, { cause: error });
  }
  if (context === undefined) return config;
  const names = config.getContexts().map(({ name }) => name);
  if (!names.includes(context)) {
    throw new Error(
      `there is no context ${JSON.stringify(context)} in ${nameOf(options)}; it has ${names.join(', ') || 'none'}`,
    );
  }
  config.setCurrentContext(context);
  return config;
}

function clusterOf(config: KubeConfig, options: KubeconfigOptions): Cluster {
  const context = config.getCurrentContext();
  const cluster = config.getCurrentCluster();
  const name = `${nameOf(options)}, context ${JSON.stringify(context)}`;
  if (cluster === null) throw new Error(`${name}: there is no such context, or its cluster is not in there`);
  // What client-node falls back to when there is neither a file nor a pod's account.
  if (cluster.server === 'http://localhost:8080') {
    throw new Error('no cluster is known: there is no kubeconfig, and this is no pod');
  }
  if (!cluster.server.startsWith('https://')) {
    throw new Error(`${name}: the server ${JSON.stringify(cluster.server)} does not begin with https://`);
  }
  if (cluster.proxyUrl !== undefined) throw new Error(`${name}: proxy-url is not supported`);
  return cluster;
}

const nameOf = ({ file }: KubeconfigOptions): string =>
  `the kubeconfig${file === undefined ? '' : ` ${file}`}`;
