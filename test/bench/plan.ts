// Planning a large cluster, whole and after small changes.
import type { ClusterNode, LabelSelector, MasqPolicy, Snapshot } from '../../src/api/model.ts';
import { planCluster } from '../../src/planner/plan-cluster.ts';
import { interleave, type Side, timed } from './measure.ts';
import { ALL_PODS, block, cidr, EMPTY, policy, pool, rule } from './objects.ts';
import type { Part } from './options.ts';
import { rowOf } from './result.ts';

const POLICIES = 500;
const POOLS = 100;
const NODES = 5_000;
const ZONES = 20;
const TEAMS = 50;

const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);

const node = (i: number, labels: Readonly<Record<string, string>> = {}): ClusterNode => ({
  name: `node-${i}`,
  labels: { zone: `zone-${i % ZONES}`, arch: i % 2 === 0 ? 'amd64' : 'arm64', ...labels },
  annotations: { 'egress-address': `198.51.${100 + (i >> 8)}.${i & 255}` },
  addresses: [{ type: 'InternalIP', address: { family: 4, value: (172n << 24n) + BigInt(i) } }],
});

/** Two in five policies are for the nodes of a zone, one in five for an architecture, the rest for all. */
function nodeSelectorOf(i: number): { readonly nodeSelector?: LabelSelector } {
  if (i % 5 < 2) return { nodeSelector: { matchLabels: { zone: `zone-${i % ZONES}` } } };
  if (i % 5 === 2) return { nodeSelector: { matchLabels: { arch: i % 2 === 0 ? 'amd64' : 'arm64' } } };
  return {};
}

function policyOf(i: number, edition = 0): MasqPolicy {
  const team = {
    ipPools: { selector: { matchLabels: { team: `team-${i % TEAMS}` } }, natOutgoing: 'Any' as const },
  };
  const plain = policy(`policy-${i}`, i % 3 === 0 ? ALL_PODS : team, [
    rule('datacentre', [{ ipBlock: { cidr: cidr('10.0.0.0/8'), except: [cidr(`10.${i % 200}.0.0/16`)] } }]),
    rule('pools', [{ ipPools: { natOutgoing: 'Enabled' } }, { scope: 'LinkLocal' }]),
    rule('partner', [block(`192.${i & 127}.${edition}.0/24`), block(`198.18.${i >> 1}.0/24`)], 'Masquerade'),
    {
      ...rule('bank', [block(`203.0.${i >> 2}.0/24`)]),
      action: 'SNAT',
      snat: i % 4 === 0 ? { nodeAnnotation: 'egress-address' } : { nodeAddressType: 'InternalIP' },
    },
  ]);
  return { ...plain, spec: { ...plain.spec, priority: i, ...nodeSelectorOf(i) } };
}

const poolOf = (i: number, natOutgoing = true): Snapshot['pools'][number] => ({
  ...pool(`pool-${i}`, `10.${100 + i}.0.0/16`, natOutgoing),
  labels: { team: `team-${i % TEAMS}` },
});

const replaced = <T>(all: readonly T[], index: number, item: T): readonly T[] => all.with(index, item);

export const plan: Part = async ({ longRounds, signal }) => {
  let snapshot: Snapshot = {
    ...EMPTY,
    policies: numbers(POLICIES).map(i => policyOf(i)),
    pools: numbers(POOLS).map(i => poolOf(i)),
    nodes: numbers(NODES).map(i => node(i)),
  };
  let { cache } = planCluster(snapshot);
  let step = 0;
  /** Plans what one more change makes of the last snapshot, and goes on from there. */
  const after = (change: (now: Snapshot, step: number) => Partial<Snapshot>): Side => {
    return () => {
      snapshot = { ...snapshot, ...change(snapshot, ++step) };
      return timed(async () => void ({ cache } = planCluster(snapshot, undefined, cache)));
    };
  };
  const values = await interleave(
    {
      full: () => timed(async () => void planCluster(snapshot)),
      pool: after(({ pools }, i) => ({ pools: replaced(pools, i % POOLS, poolOf(i % POOLS, i % 2 === 0)) })),
      node: after(({ nodes }, i) => ({
        nodes: replaced(nodes, i % NODES, node(i % NODES, { changed: `${i}` })),
      })),
      policy: after(({ policies }, i) => ({
        policies: replaced(policies, i % POLICIES, policyOf(i % POLICIES, i % 250)),
      })),
    },
    longRounds,
    signal,
  );
  const head = { part: 'plan', backend: '-', unit: 'ms' } as const;
  const other = { name: 'all of it', values: values.full };
  return [
    rowOf({
      ...head,
      ours: '500 policies, 100 pools, 5,000 nodes',
      values: values.full,
      goal: { of: 'value', atMost: 1_000 },
    }),
    ...(
      [
        ['a pool toggled', values.pool],
        ["a node's labels changed", values.node],
        ['a policy edited', values.policy],
      ] as const
    ).map(([ours, changed]) =>
      rowOf({ ...head, ours, values: changed, other, goal: { of: 'value', atMost: 100 } }),
    ),
  ];
};
