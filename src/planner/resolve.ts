// Selections of addresses (pools, blocks, network sets, scopes) → plan sets. A set's id names the selection, so rules
// that choose alike share one set, and a pool or node that comes or goes changes a set's content in place.
import type { Destination, IpBlock, PolicySource, PoolSelection, Snapshot } from '../api/model.ts';
import { bitsOf, FAMILIES, type Family } from '../cidr/address.ts';
import { type AddressSet, labelledSet, setOf, shareEntries, subtract, union } from '../cidr/address-set.ts';
import { compareCidrs, formatCidr } from '../cidr/cidr.ts';
import { shortHash } from './ids.ts';
import type { PlanSet } from './plan.ts';
import { type FixedScope, SCOPE_RANGES } from './scopes.ts';
import { isSelected, selectorKey } from './select.ts';

export type Cluster = Pick<Snapshot, 'pools' | 'networkSets' | 'nodes'>;

export interface Resolver {
  /** The set for the union of the items; the same object for the same selection. */
  resolve(items: readonly Destination[]): PlanSet;
}

/** The pools that Felix's cali-nat-outgoing takes as sources, and the destinations that it spares. */
export const NAT_OUTGOING_POOLS: readonly Destination[] = [{ ipPools: { natOutgoing: 'Enabled' } }];
export const CLUSTER_PODS: readonly Destination[] = [{ scope: 'ClusterPods' }];
export const NODE_ADDRESSES: readonly Destination[] = [{ scope: 'Nodes' }];

/** Selections that everyone has get a name that a person who reads `ipset list` understands. */
const KNOWN_IDS: ReadonlyMap<string, string> = new Map([
  ['pools|||Enabled', 'masq-pools'],
  ['scope|ClusterPods', 'all-pools'],
  ['scope|Nodes', 'nodes'],
  ['scope|LinkLocal', 'link-local'],
  ['scope|Multicast', 'multicast'],
  ['scope|PrivateUse', 'private-use'],
  ['scope|Reserved', 'reserved'],
]);

/** The set id of a selection: a readable name where everyone has it, else a hash of the selection. */
export const selectionId = (key: string): string => KNOWN_IDS.get(key) ?? `net-${shortHash(key)}`;

/** The items that a policy's source stands for: both of its lists, in the form of destinations. */
export const sourceItems = (source: PolicySource): readonly Destination[] => [
  ...(source.ipPools === undefined ? [] : [{ ipPools: source.ipPools }]),
  ...(source.ipBlocks ?? []).map(ipBlock => ({ ipBlock })),
];

/**
 * Resolves selections against one state of the cluster. Given the resolver of an earlier state, sets whose inputs did
 * not change are taken over, and of the others the entries that are equal.
 */
export function createResolver(cluster: Cluster, earlier?: CachedResolver): CachedResolver {
  const cache = new Map<string, PlanSet>();
  const keys = earlier?.keys ?? new WeakMap<readonly Destination[], string>();
  // Its data, not itself: a resolver that holds the one before holds all that ever were.
  const before = earlier === undefined ? undefined : { cluster: earlier.cluster, cache: earlier.cache };
  const sorted = {
    ...cluster,
    pools: [...cluster.pools].sort((a, b) => compareCidrs(a.cidr, b.cidr) || byName(a, b)),
  };
  const byItem = new Map<string, Addresses>();
  const addressesOf = (item: Destination): Addresses => {
    const key = itemKey(item);
    let addresses = byItem.get(key);
    if (addresses === undefined) {
      addresses = { 4: itemAddresses(sorted, item, 4), 6: itemAddresses(sorted, item, 6) };
      byItem.set(key, addresses);
    }
    return addresses;
  };
  const compute = (items: readonly Destination[], id: string): PlanSet => {
    const parts = items.map(addressesOf);
    return {
      id,
      addresses: {
        4: union(
          4,
          parts.map(part => part[4]),
        ),
        6: union(
          6,
          parts.map(part => part[6]),
        ),
      },
    };
  };
  const renew = (items: readonly Destination[], key: string): PlanSet => {
    const old = before?.cache.get(key);
    if (before === undefined || old === undefined) return compute(items, selectionId(key));
    if (!dependsOnChange(items, cluster, before.cluster)) return old;
    const next = compute(items, old.id);
    const shared = {
      4: shareEntries(old.addresses[4], next.addresses[4]),
      6: shareEntries(old.addresses[6], next.addresses[6]),
    };
    return FAMILIES.every(family => shared[family] === old.addresses[family])
      ? old
      : { ...next, addresses: shared };
  };
  return {
    cluster,
    cache,
    keys,
    resolve(items) {
      let key = keys.get(items);
      if (key === undefined) {
        key = selectionKey(items);
        keys.set(items, key);
      }
      let set = cache.get(key);
      if (set === undefined) {
        set = renew(items, key);
        cache.set(key, set);
      }
      return set;
    },
  };
}

export interface CachedResolver extends Resolver {
  readonly cluster: Cluster;
  readonly cache: ReadonlyMap<string, PlanSet>;
  /** The keys of selections that were asked for, since they are long to make. */
  readonly keys: WeakMap<readonly Destination[], string>;
}

function dependsOnChange(items: readonly Destination[], now: Cluster, before: Cluster): boolean {
  return items.some(
    item =>
      (('ipPools' in item || ('scope' in item && item.scope === 'ClusterPods')) &&
        now.pools !== before.pools) ||
      ('networkSets' in item && now.networkSets !== before.networkSets) ||
      ('scope' in item && item.scope === 'Nodes' && now.nodes !== before.nodes),
  );
}

type Addresses = PlanSet['addresses'];

function itemAddresses(cluster: Cluster, item: Destination, family: Family): AddressSet {
  if ('ipBlock' in item) {
    return subtract(setOf(family, [item.ipBlock.cidr]), setOf(family, item.ipBlock.except));
  }
  if ('ipPools' in item) return poolAddresses(cluster, pool => poolSelected(item.ipPools, pool), family);
  if ('networkSets' in item) {
    const chosen = cluster.networkSets.filter(set => isSelected(item.networkSets, set));
    return setOf(
      family,
      chosen.flatMap(set => set.nets),
    );
  }
  if (item.scope === 'ClusterPods') return poolAddresses(cluster, pool => !pool.loadBalancerOnly, family);
  if (item.scope === 'Nodes') return nodeAddresses(cluster, family);
  return fixedScope(item.scope, family);
}

const fixedScope = (scope: FixedScope, family: Family): AddressSet => setOf(family, SCOPE_RANGES[scope]);

/** Whether a pool is chosen: by name, labels and natOutgoing, all of which must allow it. */
export const poolSelected = (selection: PoolSelection, pool: Snapshot['pools'][number]): boolean =>
  isSelected(selection, pool) &&
  (selection.natOutgoing === 'Any' || (selection.natOutgoing === 'Enabled') === pool.natOutgoing);

const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
  a.name < b.name ? -1 : 1;

/**
 * The addresses whose pool is chosen. An address belongs to the pool with the longest prefix, and of equal ones to
 * the alphanumerically first name: as prefixes with a label each, that is the set itself. The pools are sorted so.
 */
const poolAddresses = (
  cluster: Cluster,
  chosen: (pool: Snapshot['pools'][number]) => boolean,
  family: Family,
): AddressSet =>
  labelledSet(
    family,
    cluster.pools.map(pool => ({ cidr: pool.cidr, nomatch: !chosen(pool) })),
  );

const nodeAddresses = (cluster: Cluster, family: Family): AddressSet =>
  setOf(
    family,
    cluster.nodes.flatMap(node =>
      node.addresses
        .filter(({ address }) => address.family === family)
        .map(({ address }) => ({ family, base: address.value, prefix: bitsOf(family) })),
    ),
  );

/** A text that is equal for selections that mean the same by the same words, whatever their order. */
export const selectionKey = (items: readonly Destination[]): string =>
  [...new Set(items.map(itemKey))].sort().join('\n');

function itemKey(item: Destination): string {
  if ('ipBlock' in item) return `block|${blockKey(item.ipBlock)}`;
  if ('ipPools' in item) return `pools|${namesKey(item.ipPools)}|${item.ipPools.natOutgoing}`;
  if ('networkSets' in item) return `networkSets|${namesKey(item.networkSets)}`;
  return `scope|${item.scope}`;
}

const namesKey = (selection: { names?: readonly string[]; selector?: PoolSelection['selector'] }): string =>
  `${selection.names === undefined ? '' : JSON.stringify([...selection.names].sort())}|${selectorKey(selection.selector)}`;

const blockKey = (block: IpBlock): string =>
  [formatCidr(block.cidr), ...[...block.except].sort(compareCidrs).map(formatCidr)].join('-');
