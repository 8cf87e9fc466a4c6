// The one way to run another program: bounded in time, without a shell, with the input given as text.
import { spawn } from 'node:child_process';

export interface Command {
  readonly tool: string;
  readonly args: readonly string[];
  readonly stdin?: string;
  /** Milliseconds until the child is killed. */
  readonly timeoutMs: number;
}

export interface CommandResult {
  /** Exit code; null when a signal ended the child or it could not be started. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
  /** Why the program could not be started (ENOENT, EACCES, EMFILE …). */
  readonly spawnError?: string;
}

/** Runs commands. Tests inject one that fails at a chosen step; everything else uses systemExec. */
export interface Exec {
  /** Never rejects: how it ended is in the result. An abort kills the child. */
  run(command: Command, signal?: AbortSignal): Promise<CommandResult>;
}

/** Enough for `save` of the largest sets; beyond it the child is killed rather than memory filled. */
const MAX_OUTPUT_BYTES = 256 * 1024 * 1024;

/** Runs commands on this machine, in the C locale, found by PATH. */
export const systemExec: Exec = {
  run: (command, signal) =>
    new Promise(resolve => {
      let stdout = '';
      let stderr = '';
      let timedOut = false;
      let spawnError: string | undefined;
      const child = spawn(command.tool, command.args, {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, LC_ALL: 'C' },
      });
      const kill = (): void => void child.kill('SIGKILL');
      const timer = setTimeout(() => {
        timedOut = true;
        kill();
      }, command.timeoutMs);
      if (signal?.aborted === true) kill();
      signal?.addEventListener('abort', kill, { once: true });
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        stdout += text;
        if (stdout.length > MAX_OUTPUT_BYTES) kill();
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        if (stderr.length < 64 * 1024) stderr += text;
      });
      child.on('error', (error: NodeJS.ErrnoException) => {
        spawnError = error.code ?? error.message;
      });
      child.on('close', code => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', kill);
        resolve({ code, stdout, stderr, timedOut, ...(spawnError === undefined ? {} : { spawnError }) });
      });
      // A child that ends before it has read its input closes the pipe; how it ended is told by its exit code.
      child.stdin.on('error', () => {});
      child.stdin.end(command.stdin ?? '');
    }),
};
