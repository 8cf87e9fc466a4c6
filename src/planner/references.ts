// Problems that show only when objects are seen together: names that nothing has, pools that get in each other's way.
import type { Destination, IpPool, MasqPolicy, Snapshot } from '../api/model.ts';
import { FAMILIES, formatAddress } from '../cidr/address.ts';
import { hasAddress, isEmpty, isSubset } from '../cidr/address-set.ts';
import { containsAddress, formatCidr, sameCidr } from '../cidr/cidr.ts';
import type { Problem } from './problem.ts';
import { NAT_OUTGOING_POOLS, type Resolver, sourceItems } from './resolve.ts';

const EVERY_POOL: readonly Destination[] = [{ ipPools: { natOutgoing: 'Any' } }];

/** Problems of the pools and nodes by themselves. */
export function snapshotProblems(snapshot: Snapshot, resolver: Resolver): readonly Problem[] {
  return [...equalPools(snapshot.pools), ...poolsOverNodes(snapshot, resolver)];
}

function equalPools(pools: readonly IpPool[]): readonly Problem[] {
  const firstByCidr = new Map<string, IpPool>();
  const problems: Problem[] = [];
  for (const pool of [...pools].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const key = formatCidr(pool.cidr);
    const first = firstByCidr.get(key);
    if (first === undefined) firstByCidr.set(key, pool);
    else if (sameCidr(first.cidr, pool.cidr)) {
      problems.push({
        severity: 'warning',
        kind: 'IPPool',
        name: pool.name,
        field: 'spec.cidr',
        reason: 'SameCIDR',
        message: `${key} is the CIDR of pool ${first.name} too, whose settings count`,
      });
    }
  }
  return problems;
}

/** A pool that covers node addresses makes pods and nodes talk without translation, and often without answers. */
function poolsOverNodes(snapshot: Snapshot, resolver: Resolver): readonly Problem[] {
  const pods = resolver.resolve([{ scope: 'ClusterPods' }]);
  const problems = new Map<string, Problem>();
  for (const node of snapshot.nodes) {
    for (const { address } of node.addresses) {
      if (!hasAddress(pods.addresses[address.family], address)) continue;
      const pool = snapshot.pools.find(candidate => containsAddress(candidate.cidr, address));
      if (pool === undefined || problems.has(pool.name)) continue;
      problems.set(pool.name, {
        severity: 'warning',
        kind: 'IPPool',
        name: pool.name,
        field: 'spec.cidr',
        reason: 'OverlapsNodes',
        message: `${formatCidr(pool.cidr)} holds ${formatAddress(address)} of node ${node.name}: traffic to it is not masqueraded by natOutgoing`,
      });
    }
  }
  return [...problems.values()];
}

/** The names that references may use, and who forwards packets past iptables. */
export interface KnownNames {
  readonly pools: ReadonlySet<string>;
  readonly networkSets: ReadonlySet<string>;
  /** The FelixConfiguration that turns eBPF on for any node; undefined: none does. */
  readonly bpf: string | undefined;
}

export const knownNames = (
  cluster: Pick<Snapshot, 'pools' | 'networkSets' | 'felixConfigs'>,
): KnownNames => ({
  pools: new Set(cluster.pools.map(pool => pool.name)),
  networkSets: new Set(cluster.networkSets.map(set => set.name)),
  bpf: cluster.felixConfigs.find(({ bpfEnabled }) => bpfEnabled === true)?.name,
});

/** Problems of one policy's references: names without an object, a source that is empty or not of pods. */
export function referenceProblems(
  policy: MasqPolicy,
  known: KnownNames,
  resolver: Resolver,
): readonly Problem[] {
  const problems: Problem[] = [];
  const report = (severity: Problem['severity'], field: string, reason: string, message: string): void => {
    problems.push({ severity, kind: 'MasqPolicy', name: policy.name, field, reason, message });
  };
  const { source, rules } = policy.spec;
  const missing = (
    field: string,
    kind: string,
    names: readonly string[] | undefined,
    present: ReadonlySet<string>,
  ): void =>
    names?.forEach((name, i) => {
      if (!present.has(name))
        report('error', `${field}.names[${i}]`, 'NotFound', `there is no ${kind} ${JSON.stringify(name)}`);
    });
  missing('spec.source.ipPools', 'IPPool', source.ipPools?.names, known.pools);
  rules.forEach((rule, r) =>
    rule.to?.forEach((item, t) => {
      const field = `spec.rules[${r}].to[${t}]`;
      if ('ipPools' in item) missing(`${field}.ipPools`, 'IPPool', item.ipPools.names, known.pools);
      if ('networkSets' in item)
        missing(`${field}.networkSets`, 'GlobalNetworkSet', item.networkSets.names, known.networkSets);
    }),
  );
  const resolved = resolver.resolve(sourceItems(source)).addresses;
  const natted = resolver.resolve(NAT_OUTGOING_POOLS).addresses;
  if (isEmpty(resolved[4]) && isEmpty(resolved[6])) {
    report('warning', 'spec.source', 'NoAddresses', 'stands for no address now, so the policy has no effect');
  }
  // Felix's eBPF programs forward by themselves, past all rules, but for new connections that leave natOutgoing pools.
  if (known.bpf !== undefined && !FAMILIES.every(family => isSubset(resolved[family], natted[family]))) {
    report(
      'warning',
      'spec.source',
      'BypassedByEbpf',
      `FelixConfiguration ${known.bpf} has bpfEnabled, and then packets reach iptables only from pools with natOutgoing: true; what pods of other pools send is asked by no rule`,
    );
  }
  source.ipBlocks?.forEach((block, i) => {
    const family = block.cidr.family;
    const addresses = resolver.resolve([{ ipBlock: block }]).addresses[family];
    if (isSubset(addresses, resolver.resolve(EVERY_POOL).addresses[family])) return;
    report(
      'warning',
      `spec.source.ipBlocks[${i}].cidr`,
      'NotOnlyPods',
      `${formatCidr(block.cidr)} reaches beyond the IPPools: clients outside the cluster with such an address are translated too`,
    );
  });
  return problems;
}
