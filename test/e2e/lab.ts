// A cluster of real nodes: kubelet, containerd, runc and kube-proxy each, in namespaces that end with the test.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, copyFile, mkdir, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type CommandResult, systemExec } from '../../src/kernel/exec.ts';
import { type ComponentName, component } from '../cluster/components.ts';
import { openTemporaryFolder } from '../cluster/temporary-folder.ts';
import { buildImages } from './images.ts';

const SCRIPTS = fileURLToPath(new URL('./lab', import.meta.url));
const COMPONENTS: readonly ComponentName[] = [
  'containerd',
  'containerd-shim-runc-v2',
  'ctr',
  'etcd',
  'helm',
  'kube-apiserver',
  'kube-controller-manager',
  'kube-proxy',
  'kube-scheduler',
  'kubectl',
  'kubelet',
];
const CNI_FOLDER = '/usr/lib/cni';

/** What the host far outside heard. */
export interface Heard {
  readonly protocol: 'udp' | 'tcp';
  readonly source: string;
  readonly payload: string;
}

export interface NodesLab {
  /** The output of kubectl, as the cluster's administrator; rejects with what it says when it fails. */
  kubectl(...args: readonly string[]): Promise<string>;
  /** Creates or changes objects, by server-side apply. */
  apply(objects: readonly object[]): Promise<void>;
  /** What Helm says, logs of hooks among it; rejects likewise. */
  helm(...args: readonly string[]): Promise<string>;
  /** Runs a program in node N (from 1), in all its namespaces. */
  inNode(n: number, ...argv: readonly string[]): Promise<CommandResult>;
  /** As if its plug were pulled. */
  stopNode(n: number): Promise<void>;
  /** With an empty kernel and the disk as it was; returns when the node is Ready. */
  startNode(n: number): Promise<void>;
  /** All that was heard so far. */
  heard(): Promise<readonly Heard[]>;
  /** The end of the daemons' logs, for a test that fails. */
  logs(): Promise<string>;
  close(): Promise<void>;
}

/** Starts it with `nodes` nodes, 1 to 9; seconds, once everything is built. Rejects with the log when it does not come up. */
export async function openNodesLab(nodes: number, signal: AbortSignal): Promise<NodesLab> {
  const log = (line: string): void => console.error(line);
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-e2e-');
  const closers: (() => Promise<void>)[] = [remove];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  try {
    await gather(folder, log, signal);
    const supervisor = spawn('bash', [join(SCRIPTS, 'supervise.sh'), folder, String(nodes)], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // Ctrl-C is for the test; it ends by its standard input.
      detached: true,
    });
    let errors = '';
    supervisor.stderr.setEncoding('utf8').on('data', (text: string) => void (errors += text));
    const ended = once(supervisor, 'close');
    closers.push(async () => {
      supervisor.stdin.end();
      await ended;
      if (errors !== '') throw new Error(`the cluster left something: ${errors}`);
    });
    const [line] = (await Promise.race([
      once(createInterface({ input: supervisor.stdout }), 'line', { signal }),
      ended.then(() => Promise.reject(new Error(`the cluster did not come up: ${errors}`))),
    ])) as [string];
    return labOf(folder, line.replace('up ', ''), signal, close);
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}

/** Programs and images to where the scripts look for them. */
async function gather(folder: string, log: (line: string) => void, signal: AbortSignal): Promise<void> {
  await access(join(CNI_FOLDER, 'bridge')).catch(() => {
    throw new Error(`there is no ${CNI_FOLDER}/bridge: install Debian's containernetworking-plugins`);
  });
  await mkdir(join(folder, 'bin'));
  await mkdir(join(folder, 'images'));
  for (const name of COMPONENTS) {
    const path = await component(name, { exec: systemExec, env: process.env, log }, signal);
    await symlink(path, join(folder, 'bin', name));
  }
  await symlink('/usr/sbin/runc', join(folder, 'bin', 'runc'));
  const archives = await buildImages(log, signal);
  for (const [name, path] of Object.entries(archives))
    await copyFile(path, join(folder, 'images', `${name}.tar`));
}

function labOf(folder: string, pid: string, signal: AbortSignal, close: () => Promise<void>): NodesLab {
  const data = join(folder, 'data');
  const env = [
    `PATH=${join(folder, 'bin')}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
    `LAB=${folder}`,
    `HOME=${join(folder, 'home')}`,
    `KUBECONFIG=${join(data, 'admin.kubeconfig')}`,
  ];
  const inside = (argv: readonly string[], stdin?: string): Promise<CommandResult> =>
    systemExec.run(
      {
        tool: 'nsenter',
        args: ['-t', pid, '-a', '--', 'env', '-i', ...env, ...argv],
        timeoutMs: 300_000,
        ...(stdin === undefined ? {} : { stdin }),
      },
      signal,
    );
  const demanded = async (argv: readonly string[], stdin?: string): Promise<CommandResult> => {
    const result = await inside(argv, stdin);
    if (result.code === 0) return result;
    throw new Error(`${argv.join(' ')}: ${result.stderr.trim()} ${result.stdout.trim()}`);
  };
  const demand = async (argv: readonly string[], stdin?: string): Promise<string> =>
    (await demanded(argv, stdin)).stdout;
  /** A function of node.sh. */
  const call = (name: string, ...args: readonly string[]): readonly string[] => [
    'bash',
    '-c',
    `. ${join(SCRIPTS, 'node.sh')}; "$@"`,
    '-',
    name,
    ...args,
  ];
  return {
    kubectl: (...args) => demand(['kubectl', ...args]),
    apply: async objects => {
      const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects });
      await demand(['kubectl', 'apply', '--server-side', '-f', '-'], list);
    },
    helm: async (...args) => {
      const { stdout, stderr } = await demanded(['helm', ...args]);
      return stdout + stderr;
    },
    inNode: (n, ...argv) => inside(call('enter_node', String(n), ...argv)),
    stopNode: async n => void (await demand(call('stop_node', String(n)))),
    startNode: async n => void (await demand(call('start_node', String(n)))),
    heard: async () => (await readFile(join(folder, 'heard'), 'utf8')).split('\n').flatMap(parseHeard),
    logs: () => demand(['bash', '-c', `tail -n 15 ${data}/log/*.log`]),
    close,
  };
}

function parseHeard(line: string): readonly Heard[] {
  const [protocol, source, payload] = line.split(' ');
  if ((protocol !== 'udp' && protocol !== 'tcp') || source === undefined || payload === undefined) return [];
  return [{ protocol, source, payload }];
}
