// In which order the kernel asks base chains at nat POSTROUTING. By priority; among equal ones the chain that was
// registered last is asked first, whatever made it: iptables-legacy's hook, registered when its table is loaded, and
// nft's chains, when they are created, stand in one list (seen on Linux 6.18: of two SNATs at priority 100, one in
// iptables-legacy and one in iptables-nft, the later loaded won in both orders; the same for two tables of nft, where
// handles of tables mislead, since a chain can be younger than its table). Nothing that was tried shows this order
// (`nft list hooks` prints nothing without the kernel's nfnetlink_hook), so it is known only inside one table, whose
// chains are numbered as they are made.
// A translation by the first that translates binds; ACCEPT, and the end of a chain, lead on to the next (seen).
//
// A table with the flag dormant is not told apart: nft prints the flag only with the whole table.
import type { BaseChain } from './model.ts';

export type Order = 'before' | 'after' | 'unknown';

/** When a chain is asked, seen from another one. */
export function orderOf(chain: BaseChain, other: BaseChain): Order {
  if (chain.priority !== other.priority) return chain.priority < other.priority ? 'before' : 'after';
  const [a, b] = [chain.nft, other.nft];
  if (a === undefined || b === undefined || a.family !== b.family || a.table !== b.table) return 'unknown';
  return a.handle > b.handle ? 'before' : 'after';
}

export const UNKNOWN_ORDER =
  'of chains with one priority the kernel asks the youngest first, and which is younger cannot be read';

/** The chains in the order of asking; those of which the order is not known stand together. */
export function inOrder(chains: readonly BaseChain[]): readonly (readonly BaseChain[])[] {
  const priorities = [...new Set(chains.map(({ priority }) => priority))].sort((a, b) => a - b);
  return priorities.flatMap(priority => {
    const tied = chains.filter(chain => chain.priority === priority);
    const known = tied.every(a => tied.every(b => a === b || orderOf(a, b) !== 'unknown'));
    return known ? tied.sort((a, b) => (orderOf(a, b) === 'before' ? -1 : 1)).map(chain => [chain]) : [tied];
  });
}
