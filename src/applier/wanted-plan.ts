// From what the API says to what the kernel shall hold. Pure.
import { FAMILIES } from '../cidr/address.ts';
import { shareEntries } from '../cidr/address-set.ts';
import type { Plan } from '../planner/plan.ts';
import { renderFamily } from '../render/render.ts';
import type { Wanted } from './keeper.ts';
import type { SourceState } from './plan-source.ts';
import type { Applied } from './record.ts';
import type { PlanOrigin } from './state-file.ts';

export interface WantedPlan extends Wanted, Applied {
  /** metadata.generation of the MasqNode that named the plan and gave the values; absent: not from the API. */
  readonly nodeGeneration?: number;
}

export interface Trouble {
  /** CamelCase, as a condition's reason. */
  readonly reason: string;
  readonly message: string;
}

const REASONS = {
  Incomplete: 'PlanIncomplete',
  NotUnderstood: 'PlanNotUnderstood',
  Invalid: 'PlanInvalid',
} as const;

/** Why the plan of the API cannot be followed; undefined when it can, or when there is none yet. */
export function troubleOf({ plan, unreadable }: SourceState): Trouble | undefined {
  if (unreadable !== undefined) {
    const message = `plan ${unreadable.name} cannot be read: ${unreadable.reason}`;
    return { reason: 'PlanUnreadable', message };
  }
  if (plan === undefined || plan.joined.ok) return undefined;
  const { why, reason } = plan.joined;
  return { reason: REASONS[why], message: `plan ${plan.name} cannot be followed: ${reason}` };
}

/** What is wanted now that the API says this; undefined when nothing new is. */
export function nextPlan(
  { plan, node }: SourceState,
  before: WantedPlan | undefined,
): WantedPlan | undefined {
  if (plan === undefined || node === undefined || !plan.joined.ok) return undefined;
  const { name, generation, joined } = plan;
  const origin: PlanOrigin = { name, generation, contentHash: joined.contentHash };
  const next = { plan: joined.plan, values: joined.values, origin, nodeGeneration: node.generation };
  return before !== undefined && keyOf(before) === keyOf(next) ? undefined : renderedPlan(next, before);
}

/** With its tables, and with the set entries of the plan before where they are equal: the driver goes by identity. */
export function renderedPlan(next: Omit<WantedPlan, 'tables'>, before: WantedPlan | undefined): WantedPlan {
  const plan = before === undefined ? next.plan : sharing(before.plan, next.plan);
  return { ...next, plan, tables: FAMILIES.map(family => renderFamily(plan, next.values, family)) };
}

function sharing(before: Plan, plan: Plan): Plan {
  const sets = [...plan.sets.values()].map(set => {
    const old = before.sets.get(set.id)?.addresses;
    if (old === undefined) return set;
    const addresses = {
      4: shareEntries(old[4], set.addresses[4]),
      6: shareEntries(old[6], set.addresses[6]),
    };
    return { id: set.id, addresses };
  });
  return { ...plan, sets: new Map(sets.map(set => [set.id, set])) };
}

/** Equal for plans that ask the same of this node, and are told of in the same way. */
const keyOf = ({ origin, values, nodeGeneration }: Omit<WantedPlan, 'tables'>): string =>
  JSON.stringify([origin?.name, origin?.contentHash, nodeGeneration, [...values]], (_key, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
