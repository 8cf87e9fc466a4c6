// Commands that have to succeed.
import { type Exec, systemExec } from '../../src/kernel/exec.ts';

/** Reading or writing the largest rules and sets here takes seconds. */
const LIMIT_MS = 120_000;

/** Runs a command and gives what it printed. Throws an Error with the command and its words when it fails. */
export async function must(
  exec: Exec,
  argv: readonly string[],
  stdin: string,
  signal: AbortSignal,
): Promise<string> {
  const [tool = '', ...args] = argv;
  const result = await exec.run({ tool, args, stdin, timeoutMs: LIMIT_MS }, signal);
  signal.throwIfAborted();
  if (result.code === 0) return result.stdout;
  const why = result.spawnError ?? (result.timedOut ? `not done in ${LIMIT_MS} ms` : result.stderr.trim());
  throw new Error(`${argv.join(' ')}: exit code ${result.code}: ${why}`);
}

/** As must, in this process's own namespaces. */
export const mustHere = (argv: readonly string[], stdin: string, signal: AbortSignal): Promise<string> =>
  must(systemExec, argv, stdin, signal);
