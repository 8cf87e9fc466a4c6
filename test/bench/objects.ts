// Cluster objects to measure with, as validation would hand them to the planner.
import type {
  Destination,
  IpPool,
  MasqPolicy,
  NetworkSet,
  PolicyRule,
  PolicySource,
  Snapshot,
} from '../../src/api/model.ts';
import type { Family } from '../../src/cidr/address.ts';
import { type Cidr, formatCidr, parseCidr } from '../../src/cidr/cidr.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import type { FamilyTables } from '../../src/render/tables.ts';

export const POD_CIDR = '10.244.0.0/16';
export const NODE = 'worker-1';

export const EMPTY: Snapshot = { pools: [], networkSets: [], nodes: [], policies: [], felixConfigs: [] };

/** Reads a CIDR that this program wrote itself. */
export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
}

export const pool = (name: string, text: string, natOutgoing = true): IpPool => ({
  name,
  labels: {},
  cidr: cidr(text),
  natOutgoing,
  loadBalancerOnly: false,
});

export const networkSet = (name: string, nets: readonly Cidr[]): NetworkSet => ({ name, labels: {}, nets });

export const block = (text: string): Destination => ({ ipBlock: { cidr: cidr(text), except: [] } });

export const rule = (
  name: string,
  to: readonly Destination[],
  action: 'Preserve' | 'Masquerade' = 'Preserve',
): PolicyRule => ({ name, to, action, portAllocation: 'FullyRandom' });

export const ALL_PODS: PolicySource = { ipPools: { natOutgoing: 'Any' } };

export const policy = (name: string, source: PolicySource, rules: readonly PolicyRule[]): MasqPolicy => ({
  name,
  spec: {
    priority: 500,
    enforcementMode: 'Enforce',
    source,
    rules,
    defaultAction: 'Continue',
    connectionPolicy: 'Keep',
  },
});

/** Pods whose traffic leaves unmasqueraded to the destinations of one network set. */
export const exempting = (nets: readonly Cidr[]): Snapshot => ({
  ...EMPTY,
  pools: [pool('pods', POD_CIDR)],
  networkSets: [networkSet('exempt', nets)],
  policies: [policy('exempt', ALL_PODS, [rule('keep', [{ networkSets: { names: ['exempt'] } }])])],
});

export const tablesOf = (snapshot: Snapshot, families: readonly Family[]): readonly FamilyTables[] => {
  const { plan, values } = planNode(snapshot, NODE);
  return families.map(family => renderFamily(plan, values, family));
};

const FIRST = 11n << 24n;

/**
 * That many CIDRs, their prefix lengths in turn from `shortest` to `longest`, of which none contains or touches
 * another: from 11.0.0.0 upwards. 100,000 of them end below 19.0.0.0.
 */
export function manyCidrs(count: number, shortest = 20, longest = 32): readonly Cidr[] {
  const cidrs: Cidr[] = [];
  let next = FIRST;
  for (let i = 0; i < count; i++) {
    const prefix = shortest + (i % (longest - shortest + 1));
    const size = 1n << BigInt(32 - prefix);
    const base = ((next + size - 1n) / size) * size;
    cidrs.push({ family: 4, base, prefix });
    next = base + 2n * size;
  }
  return cidrs;
}

export const textsOf = (cidrs: readonly Cidr[]): readonly string[] => cidrs.map(formatCidr);
