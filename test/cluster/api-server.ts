// A real etcd and kube-apiserver of one test file's own: temporary folder, loopback, CA and RBAC of its own. Starting
// takes a few seconds, so every file starts one: what is installed in a cluster cannot leak from file to file.
import { randomBytes } from 'node:crypto';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { systemExec } from '../../src/kernel/exec.ts';
import { makeServerKeys, type ServerKeys } from './certificates.ts';
import { type ApiClient, createClient } from './client.ts';
import { component } from './components.ts';
import { type ServerProcess, startServer } from './server-process.ts';
import { openTemporaryFolder } from './temporary-folder.ts';
import { waitFor } from './wait.ts';

export interface ApiServerOptions {
  /** Literal address that is listened on and certified; 127.0.0.1 when absent. */
  readonly address?: string;
  /** Further flags of kube-apiserver. */
  readonly flags?: readonly string[];
  /** Which one is started; the newest when absent. */
  readonly program?: 'kube-apiserver' | 'kube-apiserver-1.33';
}

export interface RestartOptions {
  /** Instead of those of the first start. */
  readonly flags?: readonly string[];
  /** Serve with a certificate of a new CA, from now on. */
  readonly newCa?: boolean;
}

export interface ApiServer {
  readonly url: string;
  /** The present CA's certificate, PEM. */
  readonly ca: string;
  /** Bearer token of a member of system:masters. */
  readonly token: string;
  /** Path of a kubeconfig with that token and the present CA. */
  readonly kubeconfig: string;
  /** Path of the private key that signs the tokens of ServiceAccounts. */
  readonly serviceAccountKey: string;
  /** With that token; another one after the CA changed. */
  readonly client: ApiClient;
  /** A client with another token, of a ServiceAccount say; absent: anonymous. close() closes it too. */
  readonly clientWith: (token?: string) => ApiClient;
  /** Process ids, of kube-apiserver and etcd. */
  readonly pids: readonly [number, number];
  /** Kills kube-apiserver; etcd and its data stay. */
  readonly stop: () => Promise<void>;
  /** Starts it again on the same port, and waits until it is ready. */
  readonly start: (options?: RestartOptions) => Promise<void>;
  /** Where logs, keys and data are, until close(). */
  readonly folder: string;
  /** Kills both, waits until they are reaped, and removes the folder. May be called again. */
  readonly close: () => Promise<void>;
}

const START_LIMIT_MS = 90_000;

/** Another program may take the port that was found free before kube-apiserver listens on it. */
const PORT_TRIES = 3;

// Anonymous requests may ask whether the server lives, as kubelet's probes do, and nothing else.
const AUTHENTICATION = {
  apiVersion: 'apiserver.config.k8s.io/v1beta1',
  kind: 'AuthenticationConfiguration',
  anonymous: { enabled: true, conditions: [{ path: '/livez' }, { path: '/readyz' }, { path: '/healthz' }] },
};

/**
 * Starts both and waits until /readyz says ok. Rejects with the log's last lines when one of them ends, when a
 * component is not to be had (components.ts), or after 90 s; nothing is left then. `signal` ends the start; a server
 * that runs is ended by close(), and by the end of this process whatever its cause.
 */
export async function startApiServer(options: ApiServerOptions, signal: AbortSignal): Promise<ApiServer> {
  const tools = { exec: systemExec, env: process.env, log: (line: string) => console.error(line) };
  const etcdPath = await component('etcd', tools, signal);
  const serverPath = await component(options.program ?? 'kube-apiserver', tools, signal);
  const closers: (() => void | Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  try {
    const { path: folder, remove } = await openTemporaryFolder('natoutgoing-api-');
    closers.push(remove);
    const address = options.address ?? '127.0.0.1';
    let keys = await makeServerKeys(folder, [address], systemExec, signal);
    const token = randomBytes(24).toString('hex');
    await writeFile(join(folder, 'tokens.csv'), `${token},admin,admin,system:masters\n`, { mode: 0o600 });
    await writeFile(join(folder, 'authentication.json'), JSON.stringify(AUTHENTICATION));

    const etcd = await start(etcdPath, folder, etcdFlags(folder));
    closers.push(etcd.kill);
    const run = async (port: number, flags: readonly string[]): Promise<ServerProcess> => {
      const server = await start(serverPath, folder, [...serverFlags(folder, keys, address, port), ...flags]);
      closers.push(server.kill);
      await ready({ url: urlOf(address, port), ca: keys.ca, token }, [server, etcd], signal);
      return server;
    };
    const { serviceAccountKey } = keys;
    const started = await startOnFreePort(address, async port => ({
      port,
      server: await run(port, options.flags ?? []),
    }));
    const { port } = started;
    let { server } = started;
    const url = urlOf(address, port);

    const clientWith = (bearer?: string): ApiClient => {
      const client = createClient({ url, ca: keys.ca, ...(bearer === undefined ? {} : { token: bearer }) });
      closers.push(client.close);
      return client;
    };
    const kubeconfig = join(folder, 'kubeconfig');
    const writeKubeconfig = (): Promise<void> =>
      writeFile(kubeconfig, kubeconfigText(url, keys.ca, token), { mode: 0o600 });
    await writeKubeconfig();
    let client = clientWith(token);
    return {
      url,
      get ca() {
        return keys.ca;
      },
      get client() {
        return client;
      },
      get pids(): [number, number] {
        return [server.pid, etcd.pid];
      },
      token,
      kubeconfig,
      serviceAccountKey,
      clientWith,
      folder,
      close,
      stop: () => server.kill(),
      async start(again = {}) {
        if (again.newCa === true) {
          const newer = await mkdtemp(join(folder, 'keys-'));
          keys = { ...(await makeServerKeys(newer, [address], systemExec, signal)), serviceAccountKey };
          await writeKubeconfig();
        }
        server = await run(port, again.flags ?? options.flags ?? []);
        client = clientWith(token);
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

const urlOf = (address: string, port: number): string =>
  `https://${address.includes(':') ? `[${address}]` : address}:${port}`;

const start = (path: string, folder: string, args: readonly string[]): Promise<ServerProcess> =>
  startServer({
    path,
    args,
    logFile: join(folder, `${path.slice(path.lastIndexOf('/') + 1)}.log`),
    env: { PATH: process.env['PATH'] ?? '', HOME: folder },
  });

const etcdSocket = (folder: string): string => `unix://${join(folder, 'etcd.sock')}`;

/** Unix sockets need no free ports, and nobody else on the machine can open them. */
const etcdFlags = (folder: string): readonly string[] => [
  `--data-dir=${join(folder, 'etcd')}`,
  `--listen-client-urls=${etcdSocket(folder)}`,
  // Demanded, must be host:port, and asked for by nobody: the only client has been told the socket.
  '--advertise-client-urls=http://127.0.0.1:1',
  `--listen-peer-urls=unix://${join(folder, 'peer.sock')}`,
  // The data is thrown away; waiting for the disk is most of what etcd would cost a test.
  '--unsafe-no-fsync',
  '--log-level=warn',
];

const serverFlags = (folder: string, keys: ServerKeys, address: string, port: number): readonly string[] => [
  `--etcd-servers=${etcdSocket(folder)}`,
  `--bind-address=${address}`,
  `--advertise-address=${address}`,
  // No Service's endpoint may be a loopback address; without a node nobody looks for one.
  '--endpoint-reconciler-type=none',
  `--secure-port=${port}`,
  `--tls-cert-file=${keys.cert}`,
  `--tls-private-key-file=${keys.key}`,
  `--client-ca-file=${keys.caCert}`,
  `--token-auth-file=${join(folder, 'tokens.csv')}`,
  `--authentication-config=${join(folder, 'authentication.json')}`,
  '--authorization-mode=Node,RBAC',
  '--enable-admission-plugins=NodeRestriction',
  '--allow-privileged=true',
  '--service-account-issuer=https://kubernetes.default.svc',
  `--service-account-key-file=${keys.serviceAccountKey}`,
  `--service-account-signing-key-file=${keys.serviceAccountKey}`,
  address.includes(':')
    ? '--service-cluster-ip-range=fd00:10:96::/112,10.96.0.0/16'
    : '--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112',
];

async function startOnFreePort<T>(address: string, run: (port: number) => Promise<T>): Promise<T> {
  for (let left = PORT_TRIES - 1; ; left--) {
    try {
      return await run(await freePort(address));
    } catch (error) {
      if (left === 0 || !(error instanceof Error && error.message.includes('address already in use')))
        throw error;
    }
  }
}

const freePort = (address: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, address, () => {
      const bound = probe.address();
      probe.close(() =>
        typeof bound === 'object' && bound !== null ? resolve(bound.port) : reject(new Error('no port')),
      );
    });
  });

async function ready(
  access: { readonly url: string; readonly ca: string; readonly token: string },
  processes: readonly ServerProcess[],
  signal: AbortSignal,
): Promise<void> {
  const client = createClient(access);
  let last = 'no answer yet';
  const logs = async (): Promise<string> =>
    (await Promise.all(processes.map(each => each.logTail()))).join('\n');
  const look = async (): Promise<true | undefined> => {
    if (processes.some(each => each.ended()))
      throw new Error(`a server ended at its start:\n${await logs()}`);
    try {
      const { status, body } = await client.request('GET', '/readyz', {}, signal);
      last = `${status} ${JSON.stringify(body)}`;
      return status === 200 ? true : undefined;
    } catch (error) {
      last = String(error);
      return undefined;
    }
  };
  const detail = async (): Promise<string> => `${last}\n${await logs()}`;
  try {
    await waitFor(look, { what: 'the API server to be ready', limitMs: START_LIMIT_MS, detail }, signal);
  } finally {
    client.close();
  }
}

/** JSON is YAML, and needs no quoting by hand. */
export function kubeconfigText(server: string, ca: string, token: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      { name: 'test', cluster: { server, 'certificate-authority-data': Buffer.from(ca).toString('base64') } },
    ],
    users: [{ name: 'admin', user: { token } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
    'current-context': 'test',
  });
}
