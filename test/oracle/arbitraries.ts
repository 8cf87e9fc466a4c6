// Random snapshots and packets over the small world of universe.ts, as validation would let them through: every field
// of every kind, both families, all actions.
import fc from 'fast-check';
import type {
  ClusterNode,
  Destination,
  FelixConfig,
  IpPool,
  LabelSelector,
  MasqPolicy,
  NetworkSet,
  PolicyRule,
  PolicySource,
  PoolSelection,
  PortMatch,
  Scope,
  SnatSource,
  Snapshot,
} from '../../src/api/model.ts';
import { formatAddress } from '../../src/cidr/address.ts';
import { anyCidr, block, family, NODES, podCidr, SNAT } from './universe.ts';

export interface SnapshotSize {
  readonly pools: number;
  readonly networkSets: number;
  readonly policies: number;
  readonly rules: number;
}

export const SMALL: SnapshotSize = { pools: 4, networkSets: 2, policies: 4, rules: 4 };

/** The node that every snapshot has; others may be there. */
export const NODE = 'n1';

/** A snapshot with at most so many objects of each kind, and any number up to that as often (fast-check prefers few). */
export const snapshots = (size: SnapshotSize = SMALL): fc.Arbitrary<Snapshot> =>
  fc.record({
    pools: fc.uniqueArray(pool, { maxLength: size.pools, size: 'max', selector: it => it.name }),
    networkSets: fc.uniqueArray(networkSet, {
      maxLength: size.networkSets,
      size: 'max',
      selector: it => it.name,
    }),
    nodes: fc
      .tuple(node(NODE), fc.subarray(['n0', 'n2']))
      .chain(([own, others]) => fc.tuple(...others.map(node)).map(rest => [...rest, own])),
    policies: fc.uniqueArray(policy(size.rules), {
      maxLength: size.policies,
      size: 'max',
      selector: it => it.name,
    }),
    felixConfigs: fc.uniqueArray(felixConfig, { maxLength: 3, selector: it => it.name }),
  });

const labels: fc.Arbitrary<Readonly<Record<string, string>>> = fc.record(
  { zone: fc.constantFrom('a', 'b', ''), tier: fc.constantFrom('x', 'y') },
  { requiredKeys: [] },
);

const selector: fc.Arbitrary<LabelSelector> = fc.record(
  {
    matchLabels: labels,
    matchExpressions: fc.array(
      fc.oneof(
        fc.record({
          key: fc.constantFrom('zone', 'tier', 'constructor'),
          operator: fc.constantFrom('In', 'NotIn'),
          values: fc.uniqueArray(fc.constantFrom('a', 'b', 'x', ''), { minLength: 1, maxLength: 2 }),
        }),
        fc.record({
          key: fc.constantFrom('zone', 'tier', 'constructor'),
          operator: fc.constantFrom('Exists', 'DoesNotExist'),
        }),
      ),
      { maxLength: 1 },
    ),
  },
  { requiredKeys: [] },
);

const POOL_NAMES = ['pool', 'pool-a', 'pool.a', 'pool-10', 'pool-9', 'z'];
const SET_NAMES = ['partners', 'lan', 'partners-2'];
/** Few names more than objects: some selections name what is not there. */
const someOf = (names: readonly string[]): fc.Arbitrary<readonly string[]> =>
  fc.uniqueArray(fc.constantFrom(...names), { minLength: 1, maxLength: 3 });

const pool: fc.Arbitrary<IpPool> = fc.record({
  name: fc.constantFrom(...POOL_NAMES),
  labels,
  cidr: podCidr,
  natOutgoing: fc.boolean(),
  loadBalancerOnly: fc.integer({ min: 0, max: 3 }).map(n => n === 0),
});

const networkSet: fc.Arbitrary<NetworkSet> = fc.record({
  name: fc.constantFrom(...SET_NAMES),
  labels,
  nets: fc.array(anyCidr, { maxLength: 5 }),
});

const [SNAT4, SNAT6] = [SNAT[4], SNAT[6]].map(addresses => addresses.map(formatAddress)) as [
  string[],
  string[],
];

/** What a node's annotation may hold; the last three give no address. */
const ANNOTATIONS = [
  ...SNAT4,
  ...SNAT6,
  `${SNAT4.at(-1)}, ${SNAT6.at(-1)}`,
  `${SNAT6.at(-1)},${SNAT4.at(-1)}`,
  SNAT4.join(','),
  `${SNAT4[0]},`,
  'none',
];

const node = (name: string): fc.Arbitrary<ClusterNode> =>
  fc.record({
    name: fc.constant(name),
    labels,
    annotations: fc.record({ egress: fc.constantFrom(...ANNOTATIONS) }, { requiredKeys: [] }),
    addresses: fc.array(
      fc.record({
        type: fc.constantFrom('InternalIP' as const, 'ExternalIP' as const),
        address: family.chain(f => fc.constantFrom(...NODES[f])),
      }),
      { maxLength: 4 },
    ),
  });

const portRange = fc
  .tuple(fc.integer({ min: 20_000, max: 30_000 }), fc.nat({ max: 5000 }))
  .map(([start, more]) => ({ start, end: start + more }));

const interfacePattern = fc.constantFrom('eth0', 'eth1', 'eth+', 'eth0+', 'et+', '+', 'wlan0', 'eth');

const felixConfig: fc.Arbitrary<FelixConfig> = fc.record(
  {
    name: fc.constantFrom('default', `node.${NODE}`, 'node.n2'),
    natOutgoingAddress: family.chain(f => fc.constantFrom(...SNAT[f])),
    natPortRange: portRange,
    natOutgoingExclusions: fc.constantFrom('IPPoolsOnly' as const, 'IPPoolsAndHostIPs' as const),
    natOutgoingInterface: interfacePattern,
  },
  { requiredKeys: ['name'] },
);

const poolSelection: fc.Arbitrary<PoolSelection> = fc.record(
  {
    names: someOf(POOL_NAMES),
    selector,
    natOutgoing: fc.constantFrom('Any' as const, 'Any' as const, 'Enabled' as const, 'Disabled' as const),
  },
  { requiredKeys: ['natOutgoing'] },
);

const ipBlocks = fc.array(block(podCidr), { minLength: 1, maxLength: 2 });
const source: fc.Arbitrary<PolicySource> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ ipPools: fc.constant({ natOutgoing: 'Any' as const }) }) },
  { weight: 3, arbitrary: fc.record({ ipPools: poolSelection }) },
  { weight: 2, arbitrary: fc.record({ ipBlocks }) },
  { weight: 1, arbitrary: fc.record({ ipPools: poolSelection, ipBlocks }) },
);

const SCOPES: readonly Scope[] = ['ClusterPods', 'Nodes', 'LinkLocal', 'Multicast', 'PrivateUse', 'Reserved'];
const destination: fc.Arbitrary<Destination> = fc.oneof(
  fc.record({ ipBlock: block(anyCidr) }),
  fc.record({ ipPools: poolSelection }),
  fc.record({ networkSets: fc.record({ names: someOf(SET_NAMES), selector }, { requiredKeys: [] }) }),
  fc.record({ scope: fc.constantFrom(...SCOPES) }),
);

/** Ports of rules and packets: few and close, so that ranges begin, end and touch at packets' ports. */
export const port: fc.Arbitrary<number> = fc.constantFrom(1, 53, 79, 80, 81, 443, 65_535);

const portMatch: fc.Arbitrary<PortMatch> = fc.oneof(
  fc.record({ protocol: fc.constantFrom('TCP' as const, 'UDP' as const, 'SCTP' as const, 'ICMP' as const) }),
  fc
    .tuple(fc.constantFrom('TCP' as const, 'UDP' as const, 'SCTP' as const), port, port)
    .map(([protocol, a, b]) => ({ protocol, port: Math.min(a, b), endPort: Math.max(a, b) })),
);

const snat: fc.Arbitrary<SnatSource> = fc.oneof(
  fc.record({ addresses: fc.record({ 4: fc.constantFrom(...SNAT[4]) }) }),
  fc.record({ addresses: fc.record({ 6: fc.constantFrom(...SNAT[6]) }) }),
  fc.record({ addresses: fc.record({ 4: fc.constantFrom(...SNAT[4]), 6: fc.constantFrom(...SNAT[6]) }) }),
  fc.record({ nodeAnnotation: fc.constantFrom('egress', 'constructor') }),
  fc.record({ nodeAddressType: fc.constantFrom('InternalIP' as const, 'ExternalIP' as const) }),
);

/** What every rule may have; which action it has decides about the rest. */
const matches = {
  to: fc.array(destination, { minLength: 1, maxLength: 3 }),
  ports: fc.array(portMatch, { minLength: 1, maxLength: 3 }),
  outInterfaces: fc.uniqueArray(interfacePattern, { minLength: 1, maxLength: 2 }),
};
const portAllocation = fc.constantFrom('FullyRandom' as const, 'Random' as const, 'KeepIfPossible' as const);

const rule: fc.Arbitrary<Omit<PolicyRule, 'name'>> = fc.oneof(
  fc.record(
    { ...matches, portRange, portAllocation, action: fc.constant('Masquerade' as const) },
    { requiredKeys: ['portAllocation', 'action'] },
  ),
  fc.record(
    { ...matches, portRange, portAllocation, action: fc.constant('SNAT' as const), snat },
    { requiredKeys: ['portAllocation', 'action', 'snat'] },
  ),
  fc.record(
    {
      ...matches,
      portAllocation: fc.constant('FullyRandom' as const),
      action: fc.constantFrom('Preserve' as const, 'Continue' as const),
    },
    { requiredKeys: ['portAllocation', 'action'] },
  ),
);

/** The last two name one moment; some policies come from files and have no time. */
const TIMES = ['2026-02-01T00:00:00Z', '2025-12-31T23:00:00Z', '2026-01-01T00:00:00+01:00'];

const policy = (maxRules: number): fc.Arbitrary<MasqPolicy> =>
  fc.record(
    {
      name: fc.constantFrom('a', 'a-b', 'a.b', 'a0', 'b', 'payments', 'z'),
      creationTimestamp: fc.constantFrom(...TIMES),
      spec: fc.record(
        {
          priority: fc.constantFrom(0, 500, 500, 500, 1000),
          enforcementMode: fc.constantFrom(
            ...(['Enforce', 'Enforce', 'Enforce', 'Enforce', 'DryRun', 'Disabled'] as const),
          ),
          nodeSelector: selector,
          source,
          rules: fc
            .array(rule, { minLength: 1, maxLength: maxRules, size: 'max' })
            .map(rules => rules.map((it, index) => ({ ...it, name: `r${index}` }))),
          defaultAction: fc.constantFrom(
            ...(['Continue', 'Continue', 'Continue', 'Masquerade', 'Preserve'] as const),
          ),
          connectionPolicy: fc.constantFrom('Keep' as const, 'FlushChanged' as const),
        },
        {
          requiredKeys: [
            ...(['priority', 'enforcementMode', 'source', 'rules'] as const),
            ...(['defaultAction', 'connectionPolicy'] as const),
          ],
        },
      ),
    },
    { requiredKeys: ['name', 'spec'] },
  );
