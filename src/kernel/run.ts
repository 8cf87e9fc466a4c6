// Runs ipset and iptables for the driver: a limit on every child, and patience with a busy xtables lock.
import type { Clock } from './clock.ts';
import { commandError, type KernelError } from './errors.ts';
import type { Command, CommandResult, Exec } from './exec.ts';

export interface RunContext {
  readonly exec: Exec;
  readonly clock: Clock;
  /** Milliseconds for which a command is repeated while the xtables lock is busy. */
  readonly lockWaitMs: number;
  /** Milliseconds after which one child is killed; longer than the 5 s that iptables itself waits for the lock. */
  readonly childTimeoutMs: number;
  readonly signal?: AbortSignal;
}

/** What a context is made of; the limits have defaults of 30 s each. */
export interface RunParts {
  readonly exec: Exec;
  readonly clock: Clock;
  readonly lockWaitMs?: number | undefined;
  readonly childTimeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

const DEFAULT_LIMIT_MS = 30_000;

export const runContext = (parts: RunParts): RunContext => ({
  exec: parts.exec,
  clock: parts.clock,
  lockWaitMs: parts.lockWaitMs ?? DEFAULT_LIMIT_MS,
  childTimeoutMs: parts.childTimeoutMs ?? DEFAULT_LIMIT_MS,
  ...(parts.signal === undefined ? {} : { signal: parts.signal }),
});

/** Without -w, iptables-legacy 1.8.9 waits for the lock without limit. iptables-nft has no lock and ignores it. */
export const WAIT_ARGS: readonly string[] = ['-w', '5'];

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

/** What a command did: its output, and why it failed if it did. */
export type Outcome =
  | { readonly ok: true; readonly stdout: string }
  | { readonly ok: false; readonly stdout: string; readonly error: KernelError };

/** Runs one command; repeats it with growing pauses while the lock is busy, for lockWaitMs altogether. */
export async function tryTool(
  context: RunContext,
  tool: string,
  args: readonly string[],
  stdin?: string,
): Promise<Outcome> {
  const command: Command = {
    tool,
    args,
    timeoutMs: context.childTimeoutMs,
    ...(stdin === undefined ? {} : { stdin }),
  };
  const start = context.clock.now();
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    context.signal?.throwIfAborted();
    const result = await context.exec.run(command, context.signal);
    context.signal?.throwIfAborted();
    if (succeeded(result)) return { ok: true, stdout: result.stdout };
    const error = commandError(command, result);
    const left = context.lockWaitMs - (context.clock.now() - start);
    if (error.kind !== 'busy-lock' || left <= 0) return { ok: false, stdout: result.stdout, error };
    await context.clock.sleep(Math.min(pause, left), context.signal);
  }
}

/** As tryTool, but a failure is thrown as KernelError. */
export async function runTool(
  context: RunContext,
  tool: string,
  args: readonly string[],
  stdin?: string,
): Promise<string> {
  const outcome = await tryTool(context, tool, args, stdin);
  if (!outcome.ok) throw outcome.error;
  return outcome.stdout;
}

/** Words on stderr with exit code 0 are warnings ("iptables-legacy tables present"), not errors. */
const succeeded = (result: CommandResult): boolean =>
  result.code === 0 && !result.timedOut && result.spawnError === undefined;
