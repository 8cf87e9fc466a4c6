// Commands that have to succeed.
import { cpus, release } from 'node:os';
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

/** The kernel and the tools that the numbers are of. */
export interface Machine {
  readonly kernel: string;
  readonly node: string;
  readonly iptables: string;
  readonly ipset: string;
  readonly cpus: string;
}

/** Asks the tools, which is to be done in a namespace of our own. */
export async function aboutMachine(signal: AbortSignal): Promise<Machine> {
  const version = async (tool: string): Promise<string> => {
    const words = await mustHere([tool, '--version'], '', signal);
    return /v\d[\d.]*/.exec(words)?.[0] ?? words.trim();
  };
  const processors = cpus();
  return {
    kernel: release(),
    node: process.version,
    iptables: await version('iptables-nft'),
    ipset: await version('ipset'),
    cpus: `${processors.length} × ${processors[0]?.model.trim()}`,
  };
}
