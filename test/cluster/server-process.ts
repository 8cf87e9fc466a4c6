// A program that runs beside a test, and dies with it.
import { spawn } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';

export interface ServerProcess {
  readonly pid: number;
  /** True from the moment the program has ended, for whatever reason. */
  readonly ended: () => boolean;
  /** The last lines of its stdout and stderr. */
  readonly logTail: () => Promise<string>;
  /** Kills it, if it still runs, and waits until it is reaped. */
  readonly kill: () => Promise<void>;
}

export interface ServerCommand {
  readonly path: string;
  readonly args: readonly string[];
  /** Takes stdout and stderr; appended to, so that a second start keeps the first one's words. */
  readonly logFile: string;
  /** The whole environment: nothing of the test's own (proxies, GRPC_…, GODEBUG) changes what a server does. */
  readonly env: Readonly<Record<string, string>>;
}

const TAIL_LINES = 15;

/**
 * Starts a program whose death the kernel ties to that of this process (PR_SET_PDEATHSIG): a test runner that is
 * killed leaves no server behind. Rejects when it cannot be started.
 */
export async function startServer(command: ServerCommand): Promise<ServerProcess> {
  const log = await open(command.logFile, 'a');
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', command.path, ...command.args], {
    stdio: ['ignore', log.fd, log.fd],
    env: command.env,
  });
  let ended = false;
  const end = new Promise<void>(resolve => {
    child.once('close', () => {
      ended = true;
      resolve();
    });
  });
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', cause => reject(new Error(`cannot start ${command.path}`, { cause })));
    });
  } finally {
    await log.close();
  }
  if (child.pid === undefined) throw new Error(`${command.path} was started without a process id`);
  return {
    pid: child.pid,
    ended: () => ended,
    logTail: async () =>
      (await readFile(command.logFile, 'utf8')).trimEnd().split('\n').slice(-TAIL_LINES).join('\n'),
    kill: async () => {
      child.kill('SIGKILL');
      await end;
    },
  };
}
