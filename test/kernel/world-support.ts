// What the tests of the packet world share.
import { readdir, readlink } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { Exec } from '../../src/kernel/exec.ts';

/** Runs a command that must succeed; gives its standard output. */
export async function run(exec: Exec, tool: string, ...args: readonly string[]): Promise<string> {
  const result = await exec.run({ tool, args, timeoutMs: 10_000 });
  if (result.code !== 0) throw new Error(`${tool} ${args.join(' ')}: ${result.spawnError ?? result.stderr}`);
  return result.stdout;
}

/** Runs a line of words that must succeed. */
export const runLine = (exec: Exec, line: string): Promise<string> => {
  const [tool = '', ...args] = line.split(' ');
  return run(exec, tool, ...args);
};

/** The processes of this machine that are in one of the network namespaces. */
export async function processesIn(namespaces: readonly string[]): Promise<readonly string[]> {
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name));
  // A process that ended meanwhile is in no namespace.
  const places = await Promise.all(pids.map(pid => readlink(`/proc/${pid}/ns/net`).catch(() => '')));
  return pids.filter((_, i) => namespaces.includes(places[i] ?? ''));
}

/** Waits until the check holds; fails after the limit. */
export async function eventually(check: () => Promise<boolean>, what: string, limitMs = 5000): Promise<void> {
  const limit = AbortSignal.timeout(limitMs);
  while (!(await check())) {
    if (limit.aborted) throw new Error(`not within ${limitMs} ms: ${what}`);
    await pause(10);
  }
}
