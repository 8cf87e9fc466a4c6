// Processes of the world. All of them are killed by the kernel when this process dies, however it dies.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { type Exec, systemExec } from '../kernel/exec.ts';

/** A process that talks in lines. */
export interface LineChild {
  readonly pid: number;
  send(line: string): void;
  /** Never rejects; a phrase such as "exit code 1: unshare failed: Operation not permitted". */
  readonly ended: Promise<string>;
  /** Kills it and waits until it is gone. */
  close(): Promise<void>;
}

/** Debian packages' tools that the world itself runs. */
export const WORLD_TOOLS = ['unshare', 'nsenter', 'setpriv', 'mount', 'ip', 'perl'] as const;

// prctl(PR_SET_PDEATHSIG); it survives exec, unshare and nsenter of a root that stays root.
const dyingWithUs = (argv: readonly string[]): readonly string[] => [
  'setpriv',
  '--pdeathsig',
  'KILL',
  ...argv,
];

const PRIVATE_RUN = 'mount -t tmpfs none /run && exec "$@"';

/** A command line that runs argv in new network and mount namespaces with a /run of their own (xtables.lock, netns). */
export const inNewNamespaces = (argv: readonly string[]): readonly string[] =>
  dyingWithUs(['unshare', '--net', '--mount', 'sh', '-c', PRIVATE_RUN, 'sh', ...argv]);

/** A command line that runs argv in the namespaces of the process, with its working directory. */
export const inNamespacesOf = (pid: number, argv: readonly string[]): readonly string[] =>
  dyingWithUs(['nsenter', '--target', `${pid}`, '--net', '--mount', '--wd', '--', ...argv]);

/** Runs commands in the namespaces of the process. A tool that is not there is a spawnError, as with systemExec. */
export const execInNamespacesOf = (pid: number): Exec => ({
  run: async (command, signal) => {
    const [tool = '', ...args] = inNamespacesOf(pid, [command.tool, ...command.args]);
    const result = await systemExec.run({ ...command, tool, args }, signal);
    const missing = result.code === 127 && result.stderr.startsWith('nsenter: failed to execute');
    return missing ? { ...result, code: null, spawnError: 'ENOENT' } : result;
  },
});

/** Starts a process; `env` is all of its environment. */
export function start(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): ChildProcessWithoutNullStreams {
  const [tool = '', ...args] = argv;
  return spawn(tool, args, { stdio: ['pipe', 'pipe', 'pipe'], env });
}

/** Starts a process that talks in lines. Never throws: a program that cannot be started has ended. */
export function startLineChild(argv: readonly string[], onLine: (line: string) => void): LineChild {
  // Not NODE_OPTIONS and the like: they are meant for this process.
  const child = start(argv, { PATH: process.env['PATH'], LC_ALL: 'C' });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  child.stdin.on('error', () => {});
  createInterface({ input: child.stdout }).on('line', onLine);
  const ended = new Promise<string>(resolve => {
    child.on('error', error => resolve(error.message));
    child.on('close', (code, signal) => {
      const how = signal === null ? `exit code ${code}` : `killed by ${signal}`;
      resolve(errors === '' ? how : `${how}: ${errors.trim()}`);
    });
  });
  return {
    pid: child.pid ?? 0,
    send: line => void child.stdin.write(`${line}\n`),
    ended,
    close: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/** Waits until a started process has ended; kills it first. */
export async function endProcess(child: ChildProcessWithoutNullStreams): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise(resolve => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}
