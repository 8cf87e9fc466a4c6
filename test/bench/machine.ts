// The kernel and the tools that the numbers are of.
import { cpus, release } from 'node:os';
import { mustHere } from './run.ts';

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
