import { CommandError } from './io.ts';

/** A command that changes or reads the kernel needs root; saying so beats what the tools say. */
export function requireRoot(what: string): void {
  if (process.getuid?.() !== 0)
    throw new CommandError(`${what} needs root (or CAP_NET_ADMIN in the user namespace of the network)`);
}
