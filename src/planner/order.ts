// The order in which policies are asked.
import type { MasqPolicy } from '../api/model.ts';

/**
 * Lower priority first; of equal ones the older; of equally old ones the alphanumerically first name. A policy
 * without a creation time (one from a file) comes after those that have one, as if it were created now.
 */
export function comparePolicies(a: MasqPolicy, b: MasqPolicy): number {
  if (a.spec.priority !== b.spec.priority) return a.spec.priority - b.spec.priority;
  const byAge = creationTime(a) - creationTime(b);
  // Infinity - Infinity is NaN: both have no time.
  if (byAge !== 0 && !Number.isNaN(byAge)) return byAge;
  if (a.name === b.name) return 0;
  return a.name < b.name ? -1 : 1;
}

function creationTime(policy: MasqPolicy): number {
  const time = policy.creationTimestamp === undefined ? Number.NaN : Date.parse(policy.creationTimestamp);
  return Number.isNaN(time) ? Number.POSITIVE_INFINITY : time;
}

/** The policies that count, in order: Disabled ones are as if they were not there. */
export const activePolicies = (policies: readonly MasqPolicy[]): readonly MasqPolicy[] =>
  policies.filter(policy => policy.spec.enforcementMode !== 'Disabled').sort(comparePolicies);
