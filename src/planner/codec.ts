// Plan ↔ JSON, the one form in which a plan leaves the process: to the applier's file and to the API. What is read back
// is trusted as little as what users write: whatever reaches ipset and iptables was parsed to numbers and names first.
import { isObject, own } from '../api/fields.ts';
import type { Fault, PerFamily, PortRange } from '../api/model.ts';
import { validated } from '../api/report.ts';
import { type Address, formatAddress } from '../cidr/address.ts';
import type { SetEntry } from '../cidr/address-set.ts';
import { formatCidr } from '../cidr/cidr.ts';
import { PLAN_SCHEMA_VERSION, planDocument } from './codec-readers.ts';
import type { NodeValues, Plan, PlanRule, PlanSet, PlanSnat } from './plan.ts';

export type DecodedPlan =
  | { readonly ok: true; readonly plan: Plan; readonly values: NodeValues }
  | { readonly ok: false; readonly faults: readonly Fault[] };

/** The plan and a node's values as JSON. Equal plans give equal text, whatever the order in which sets were made. */
export function encodePlan(plan: Plan, values: NodeValues): unknown {
  const { poolDefault, kubeMark, tunnelInterfaces } = plan;
  return {
    schemaVersion: PLAN_SCHEMA_VERSION,
    sets: [...plan.sets.values()].sort((a, b) => (a.id < b.id ? -1 : 1)).map(encodeSet),
    policies: plan.policies.map(policy => ({
      name: policy.name,
      dryRun: policy.dryRun,
      source: policy.source,
      rules: policy.rules.map(encodeRule),
      defaultAction: policy.defaultAction,
      connectionPolicy: policy.connectionPolicy,
    })),
    poolDefault: {
      source: poolDefault.source,
      spared: poolDefault.spared,
      ...given('sparedNodes', poolDefault.sparedNodes),
      ...given('outInterface', poolDefault.outInterface),
      ...given('portRange', encodeRange(poolDefault.portRange)),
      addresses: encodeAddresses(poolDefault.addresses),
      portAllocation: poolDefault.portAllocation,
    },
    kubeMark,
    tunnelInterfaces,
    values: Object.fromEntries(
      [...values].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, value]) => [key, encodeAddresses(value)]),
    ),
  };
}

const given = (name: string, value: unknown): Readonly<Record<string, unknown>> =>
  value === undefined ? {} : { [name]: value };

const encodeSet = ({ id, addresses }: PlanSet): unknown => ({
  id,
  ipv4: addresses[4].entries.map(encodeEntry),
  ipv6: addresses[6].entries.map(encodeEntry),
});

const encodeEntry = ({ cidr, nomatch }: SetEntry): string => `${nomatch ? '!' : ''}${formatCidr(cidr)}`;

const encodeRule = (rule: PlanRule): unknown => ({
  name: rule.name,
  ...given('to', rule.to),
  ...given(
    'ports',
    rule.ports?.map(({ protocol, port, endPort }) => ({
      protocol,
      ...given('port', port),
      ...given('endPort', endPort),
    })),
  ),
  ...given('outInterfaces', rule.outInterfaces),
  action: rule.action,
  ...given('snat', rule.snat === undefined ? undefined : encodeSnat(rule.snat)),
  ...given('portRange', encodeRange(rule.portRange)),
  portAllocation: rule.portAllocation,
});

const encodeSnat = (snat: PlanSnat): unknown =>
  'addresses' in snat ? { addresses: encodeAddresses(snat.addresses) } : { nodeValue: snat.nodeValue };

const encodeRange = (range: PortRange | undefined): unknown =>
  range === undefined ? undefined : { start: range.start, end: range.end };

export const encodeAddresses = (addresses: PerFamily<Address>): unknown => ({
  ...given('ipv4', addresses[4] === undefined ? undefined : formatAddress(addresses[4])),
  ...given('ipv6', addresses[6] === undefined ? undefined : formatAddress(addresses[6])),
});

/**
 * Reads a plan from any JSON value, with all of its faults when it has any; never throws. Entries of sets may stand in
 * any order and say more than needed. Fields that are not known are refused: they would mean something to whoever
 * wrote them. A version that is not known is the only fault that is told.
 */
export function decodePlan(json: unknown): DecodedPlan {
  if (isObject(json)) {
    const version = own(json, 'schemaVersion');
    if (typeof version === 'number' && version !== PLAN_SCHEMA_VERSION) {
      const reason = `${version} is a version of plans that this program does not know; it knows ${PLAN_SCHEMA_VERSION}`;
      return { ok: false, faults: [{ field: 'schemaVersion', reason }] };
    }
  }
  const read = validated(planDocument, json);
  if (!read.ok) return { ok: false, faults: read.faults };
  const { values, sets, policies, poolDefault, kubeMark, tunnelInterfaces } = read.value;
  const plan = {
    policies,
    poolDefault,
    sets: new Map(sets.map(set => [set.id, set])),
    kubeMark,
    tunnelInterfaces,
  };
  return { ok: true, plan, values };
}
