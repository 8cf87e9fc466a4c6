// Wanted state for an iptables that does not know --random-fully (before 1.6.2): --random is the nearest it has.
import { chainOf } from './chain.ts';
import type { FamilyTables, KernelChain } from './tables.ts';

const FLAG = '--random-fully';

/** The tables with --random in place of --random-fully, and hashes that say so. */
export const withoutRandomFully = (tables: FamilyTables): FamilyTables => ({
  ...tables,
  chains: tables.chains.map(withoutFlag),
});

function withoutFlag(chain: KernelChain): KernelChain {
  if (!chain.rules.some(rule => rule.args.includes(FLAG))) return chain;
  const rules = chain.rules.map(({ args, label }) => ({
    label,
    args: args.map(arg => (arg === FLAG ? '--random' : arg)),
  }));
  return chainOf(chain.name, rules);
}
