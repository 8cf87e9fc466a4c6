// The sources that a plan decides about.
import type { Family } from '../cidr/address.ts';
import { type AddressSet, emptySet, union } from '../cidr/address-set.ts';
import type { Plan } from './plan.ts';

/** All sources that a policy in force or the pool default is about. A set that the plan does not hold counts as empty. */
export function podSources({ policies, poolDefault, sets }: Plan, family: Family): AddressSet {
  const ids = [...policies.filter(({ dryRun }) => !dryRun).map(({ source }) => source), poolDefault.source];
  return union(
    family,
    [...new Set(ids)].map(id => sets.get(id)?.addresses[family] ?? emptySet(family)),
  );
}
