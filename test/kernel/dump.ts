// What the kernel holds, as text that is equal when it holds the same.
import type { Exec } from '../../src/kernel/exec.ts';
import type { Backend } from '../../src/kernel/backend.ts';

async function output(exec: Exec, tool: string, ...args: readonly string[]): Promise<string> {
  const result = await exec.run({ tool, args, timeoutMs: 30_000 });
  if (result.code !== 0) throw new Error(`${tool} ${args.join(' ')}: ${result.spawnError ?? result.stderr}`);
  return result.stdout;
}

/** Comments hold the time; counters and the policy of chains count packets. */
const ruleLines = (text: string): readonly string[] =>
  text
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => line.replace(/ \[\d+:\d+\]$/, ''));

/** Members in order; the hash function's random start and the grown number of buckets left out. */
const setLines = (text: string): readonly string[] =>
  text
    .split('\n')
    .filter(line => line !== '')
    .map(line => line.replace(/ hashsize \d+/, '').replace(/ initval \S+/, ''))
    .sort();

/** Table nat of both families and all sets. */
export async function dump(exec: Exec, backend: Backend): Promise<string> {
  const parts = [
    ...ruleLines(await output(exec, `iptables-${backend}-save`, '-t', 'nat')),
    ...ruleLines(await output(exec, `ip6tables-${backend}-save`, '-t', 'nat')),
    ...setLines(await output(exec, 'ipset', 'save')),
  ];
  return parts.map(line => `${line}\n`).join('');
}
