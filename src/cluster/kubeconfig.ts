// The endpoint of a kubeconfig, with all that kubeconfigs can say (exec plugins, client certificates, tokens in files):
// client-node's KubeConfig knows it. Not for the applier, whose memory is paid on every node.
import { readFile } from 'node:fs/promises';
import type { OutgoingHttpHeaders } from 'node:http';
import type { RequestOptions } from 'node:https';
import { delimiter, dirname, join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { type Cluster, KubeConfig } from '@kubernetes/client-node';
import { parse } from 'yaml';
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
  const { server } = clusterOf(loaded(options), options);
  let config: KubeConfig | undefined;
  let tls: TlsParts = {};
  return {
    url: server,
    async credentials() {
      const asked: RequestOptions & { headers: OutgoingHttpHeaders } = { headers: {} };
      if (config === undefined) {
        const fresh = loaded(options);
        await withTokenFile(fresh, options);
        config = fresh;
      }
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
  if (typeof header === 'string') return header.trim();
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

/** client-node passes over tokenFile, and would ask as nobody: said to it in the way that it knows. */
async function withTokenFile(config: KubeConfig, { file }: KubeconfigOptions): Promise<void> {
  const user = config.getCurrentUser();
  const fallback = join(process.env['HOME'] ?? '', '.kube', 'config');
  const paths = file === undefined ? (process.env['KUBECONFIG'] || fallback).split(delimiter) : [file];
  for (const path of paths) {
    const text = await readFile(path, 'utf8').catch(() => '');
    const { users } = (parse(text) ?? {}) as { readonly users?: readonly RawUser[] };
    const tokenFile = users?.find(({ name }) => name === user?.name)?.user?.tokenFile;
    if (tokenFile === undefined || user === null) continue;
    const { token: _, ...rest } = user;
    const authProvider = { name: 'tokenFile', config: { tokenFile: resolve(dirname(path), tokenFile) } };
    config.users = config.users.map(it => (it === user ? { ...rest, authProvider } : it));
    return;
  }
}

interface RawUser {
  readonly name?: unknown;
  readonly user?: { readonly tokenFile?: string };
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
