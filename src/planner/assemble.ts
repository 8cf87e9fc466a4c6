// Compiled policies and the pool default → the plan of the nodes that these policies select.
import type { Destination, FelixConfig } from '../api/model.ts';
import type { CompiledPolicy } from './compile.ts';
import type { Plan, PlanSet } from './plan.ts';
import { poolDefault } from './pool-default.ts';
import type { Resolver } from './resolve.ts';

export interface PlanOptions {
  /** The bit by which kube-proxy marks what it will masquerade (--iptables-masquerade-bit 14 is 0x4000). */
  readonly kubeMark: number;
  readonly tunnelInterfaces: readonly string[];
  /** Whether FelixConfiguration's natOutgoing options are the defaults of step 3. */
  readonly inheritFelix: boolean;
}

export const DEFAULT_OPTIONS: PlanOptions = { kubeMark: 0x4000, tunnelInterfaces: [], inheritFelix: true };

/** The plan of the nodes that exactly these policies select, in the order given. */
export function assemble(
  policies: readonly CompiledPolicy[],
  felix: FelixConfig,
  options: PlanOptions,
  resolver: Resolver,
): Plan {
  const sets = new Map<string, PlanSet>();
  const collecting: Resolver = {
    resolve(items: readonly Destination[]) {
      const set = resolver.resolve(items);
      sets.set(set.id, set);
      return set;
    },
  };
  for (const policy of policies) for (const items of policy.selections) collecting.resolve(items);
  return {
    policies: policies.map(policy => policy.plan),
    poolDefault: poolDefault(collecting, options.inheritFelix ? felix : undefined),
    sets,
    kubeMark: options.kubeMark,
    tunnelInterfaces: options.tunnelInterfaces,
  };
}
