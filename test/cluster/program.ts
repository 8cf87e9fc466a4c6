// Our programs as processes beside a test, with their logs.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { waitFor } from './wait.ts';

/** As the chart gives them; chart-values.test.ts holds the two together. */
export const NODE_OPTIONS = {
  operator: '--max-semi-space-size=8',
  applier: '--max-semi-space-size=4',
} as const;

export interface Program {
  readonly pid: number;
  /** The log's lines so far, as objects. */
  log(): readonly Readonly<Record<string, unknown>>[];
  ended(): boolean;
  /** Sends a signal: SIGSTOP, SIGCONT. */
  signal(name: NodeJS.Signals): void;
  /** Ends it, and waits until it is gone. */
  end(signal?: NodeJS.Signals): Promise<void>;
  /** Waits for a line of the log with these words. */
  logged(message: string, limitMs: number): Promise<Readonly<Record<string, unknown>>>;
}

/** Follows a process of ours. */
export function follow(child: ChildProcess, name: string): Program {
  const lines: Readonly<Record<string, unknown>>[] = [];
  let rest = '';
  let errors = '';
  let ended = false;
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts.filter(it => it !== '')) lines.push(parsed(part));
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => void (errors += text));
  child.once('close', () => void (ended = true));
  const pid = child.pid;
  if (pid === undefined) throw new Error(`${name} could not be started`);
  const tail = (): string =>
    [...lines.slice(-20).map(line => JSON.stringify(line)), errors.slice(-2000)].join('\n');
  return {
    pid,
    log: () => lines,
    ended: () => ended,
    signal: signal => void child.kill(signal),
    async end(signal = 'SIGTERM') {
      if (ended) return;
      const closed = once(child, 'close');
      child.kill(signal);
      // A process that was stopped does not hear SIGTERM.
      child.kill('SIGCONT');
      await closed;
    },
    logged: (message, limitMs) =>
      waitFor(
        () => {
          const line = lines.find(it => String(it['msg']).includes(message));
          if (line === undefined && ended) throw new Error(`${name} ended:\n${tail()}`);
          return line;
        },
        { what: `${name} to say ${JSON.stringify(message)}`, limitMs, detail: tail },
      ),
  };
}

function parsed(line: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(line) as Readonly<Record<string, unknown>>;
  } catch {
    return { msg: line };
  }
}

/** Starts a program of this machine that dies with this process. */
export function startProgram(
  name: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
): Program {
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...argv], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'] ?? '', ...env },
  });
  return follow(child, name);
}

/** The folder of a ServiceAccount as kubelet mounts it; files are replaced whole. */
export async function writeAccount(folder: string, files: { token?: string; ca?: string }): Promise<void> {
  await mkdir(folder, { recursive: true });
  const put = async (name: string, text: string): Promise<void> => {
    const path = join(folder, name);
    await writeFile(`${path}.new`, text, { mode: 0o600 });
    await rename(`${path}.new`, path);
  };
  if (files.token !== undefined) await put('token', files.token);
  if (files.ca !== undefined) await put('ca.crt', files.ca);
}
