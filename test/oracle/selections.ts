// Whether an address is in a selection of a policy, by looping over the objects: the oracle's part below the rules. As
// naive as the rest of it, and as independent of src/planner.
import type {
  ClusterNode,
  Destination,
  IpBlock,
  IpPool,
  LabelSelector,
  NetworkSetSelection,
  PolicySource,
  PoolSelection,
  Scope,
  Snapshot,
} from '../../src/api/model.ts';
import type { Address } from '../../src/cidr/address.ts';
import type { Cidr } from '../../src/cidr/cidr.ts';

export function sourceMatches(snapshot: Snapshot, source: PolicySource, address: Address): boolean {
  if (source.ipPools !== undefined && poolsMatch(snapshot.pools, source.ipPools, address)) return true;
  return (source.ipBlocks ?? []).some(block => inBlock(block, address));
}

export function destinationMatches(snapshot: Snapshot, to: Destination, address: Address): boolean {
  if ('ipBlock' in to) return inBlock(to.ipBlock, address);
  if ('ipPools' in to) return poolsMatch(snapshot.pools, to.ipPools, address);
  if ('networkSets' in to) return networkSetsMatch(snapshot, to.networkSets, address);
  return scopeMatches(snapshot, to.scope, address);
}

/** "An address belongs to one pool: the longest prefix; of equal ones the alphanumerically first name." */
export function poolOf(pools: readonly IpPool[], address: Address): IpPool | undefined {
  let owner: IpPool | undefined;
  for (const pool of pools) {
    if (!inCidr(pool.cidr, address)) continue;
    if (
      owner === undefined ||
      pool.cidr.prefix > owner.cidr.prefix ||
      (pool.cidr.prefix === owner.cidr.prefix && pool.name < owner.name)
    ) {
      owner = pool;
    }
  }
  return owner;
}

/** "`ipPools: {}` is every pool; `names`, `selector` and `natOutgoing` together mean all of them." */
function poolsMatch(pools: readonly IpPool[], selection: PoolSelection, address: Address): boolean {
  const pool = poolOf(pools, address);
  if (pool === undefined) return false;
  if (selection.names !== undefined && !selection.names.includes(pool.name)) return false;
  if (!selectorMatches(selection.selector, pool.labels)) return false;
  if (selection.natOutgoing === 'Enabled') return pool.natOutgoing;
  if (selection.natOutgoing === 'Disabled') return !pool.natOutgoing;
  return true;
}

function networkSetsMatch(snapshot: Snapshot, selection: NetworkSetSelection, address: Address): boolean {
  for (const set of snapshot.networkSets) {
    if (selection.names !== undefined && !selection.names.includes(set.name)) continue;
    if (!selectorMatches(selection.selector, set.labels)) continue;
    if (set.nets.some(net => inCidr(net, address))) return true;
  }
  return false;
}

/** First part, prefix length. */
const LINK_LOCAL: readonly Range[] = [
  [[169, 254], 16],
  ['fe80', 10],
];
const MULTICAST: readonly Range[] = [
  [[224], 4],
  ['ff00', 8],
];
const PRIVATE_USE: readonly Range[] = [
  [[10], 8],
  [[172, 16], 12],
  [[192, 168], 16],
  ['fc00', 7],
];
const RESERVED: readonly Range[] = [
  ...PRIVATE_USE,
  [[100, 64], 10],
  [[192, 0, 0], 24],
  [[192, 0, 2], 24],
  [[192, 88, 99], 24],
  [[198, 18], 15],
  [[198, 51, 100], 24],
  [[203, 0, 113], 24],
  [[240], 4],
];

type Range = readonly [firstParts: readonly number[] | string, prefix: number];

function scopeMatches(snapshot: Snapshot, scope: Scope, address: Address): boolean {
  switch (scope) {
    case 'ClusterPods':
      return inSparedPool(snapshot.pools, address);
    case 'Nodes':
      return isNodeAddress(snapshot.nodes, address);
    case 'LinkLocal':
      return LINK_LOCAL.some(range => inRange(range, address));
    case 'Multicast':
      return MULTICAST.some(range => inRange(range, address));
    case 'PrivateUse':
      return PRIVATE_USE.some(range => inRange(range, address));
    case 'Reserved':
      return RESERVED.some(range => inRange(range, address));
  }
}

/**
 * "A pool whose `allowedUses` is exactly `[LoadBalancer]` is not a destination to be spared", and an address belongs to
 * one pool only: inside such a pool a wider pool does not spare it.
 */
export function inSparedPool(pools: readonly IpPool[], address: Address): boolean {
  const pool = poolOf(pools, address);
  return pool !== undefined && !pool.loadBalancerOnly;
}

export const isNodeAddress = (nodes: readonly ClusterNode[], address: Address): boolean =>
  nodes.some(node => node.addresses.some(entry => equal(entry.address, address)));

/** metav1.LabelSelector: every part must hold; absent or empty selects everything. */
export function selectorMatches(
  selector: LabelSelector | undefined,
  labels: Readonly<Record<string, string>>,
): boolean {
  const has = new Map(Object.entries(labels));
  for (const [key, value] of Object.entries(selector?.matchLabels ?? {})) {
    if (has.get(key) !== value) return false;
  }
  for (const { key, operator, values } of selector?.matchExpressions ?? []) {
    const value = has.get(key);
    const listed = value !== undefined && (values ?? []).includes(value);
    if (operator === 'In' && !listed) return false;
    if (operator === 'NotIn' && listed) return false;
    if (operator === 'Exists' && value === undefined) return false;
    if (operator === 'DoesNotExist' && value !== undefined) return false;
  }
  return true;
}

const inBlock = (block: IpBlock, address: Address): boolean =>
  inCidr(block.cidr, address) && !block.except.some(except => inCidr(except, address));

/** By counting: from the first address of the CIDR on, as many as it has. */
function inCidr(cidr: Cidr, address: Address): boolean {
  if (cidr.family !== address.family) return false;
  const size = 2n ** BigInt((cidr.family === 4 ? 32 : 128) - cidr.prefix);
  return address.value >= cidr.base && address.value < cidr.base + size;
}

function inRange([first, prefix]: Range, address: Address): boolean {
  if (typeof first === 'string') {
    return inCidr({ family: 6, base: BigInt(`0x${first}`) << 112n, prefix }, address);
  }
  const base = [0, 1, 2, 3].reduce((sum, i) => sum * 256n + BigInt(first[i] ?? 0), 0n);
  return inCidr({ family: 4, base, prefix }, address);
}

export const equal = (a: Address, b: Address): boolean => a.family === b.family && a.value === b.value;
