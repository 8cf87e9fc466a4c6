// Plans by hand: sets as lists of CIDRs, and policies of which only what matters is written.
import { type AddressSet, setOf, subtract } from '../../src/cidr/address-set.ts';
import type { Family } from '../../src/cidr/address.ts';
import type { Plan, PlanPolicy, PlanRule, PlanSet, PoolDefault } from '../../src/planner/plan.ts';
import { cidr } from './universe.ts';

export interface PlanSketch {
  /** By id: CIDRs of both families; those that start with ! are taken away from the others. */
  readonly sets?: Readonly<Record<string, readonly string[]>>;
  readonly policies?: readonly PolicySketch[];
  readonly poolDefault?: Partial<PoolDefault>;
  readonly kubeMark?: number;
  readonly tunnelInterfaces?: readonly string[];
}

export type PolicySketch = Partial<Omit<PlanPolicy, 'rules'>> & { readonly rules?: readonly RuleSketch[] };
export type RuleSketch = Partial<PlanRule>;

/** The plan of a sketch: policies p0, p1 … with rules r0, r1 …, from set `pods`, preserving, where nothing else is said. */
export function planOf(sketch: PlanSketch): Plan {
  const sets = Object.entries({ none: [], ...sketch.sets }).map(([id, texts]) => planSet(id, texts));
  return {
    policies: (sketch.policies ?? []).map((policy, p) => ({
      name: `p${p}`,
      dryRun: false,
      source: 'pods',
      defaultAction: 'Continue',
      connectionPolicy: 'Keep',
      ...policy,
      rules: (policy.rules ?? []).map((rule, r) => ({
        name: `r${r}`,
        action: 'Preserve',
        portAllocation: 'FullyRandom',
        ...rule,
      })),
    })),
    poolDefault: {
      source: 'none',
      spared: 'none',
      addresses: {},
      portAllocation: 'FullyRandom',
      ...sketch.poolDefault,
    },
    sets: new Map(sets.map(set => [set.id, set])),
    kubeMark: sketch.kubeMark ?? 0x4000,
    tunnelInterfaces: sketch.tunnelInterfaces ?? [],
  };
}

function planSet(id: string, texts: readonly string[]): PlanSet {
  const inside = texts.filter(text => !text.startsWith('!')).map(cidr);
  const taken = texts.filter(text => text.startsWith('!')).map(text => cidr(text.slice(1)));
  const addresses = (family: Family): AddressSet => subtract(setOf(family, inside), setOf(family, taken));
  return { id, addresses: { 4: addresses(4), 6: addresses(6) } };
}
