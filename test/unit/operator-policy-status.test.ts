// What policies are told, in every situation; and how the facts for it are gathered.
import { describe, expect, it } from 'vitest';
import type { Snapshot } from '../../src/api/model.ts';
import type { RawObject } from '../../src/cluster/api.ts';
import type { DesiredPlan } from '../../src/operator/desired.ts';
import { sumOf, tallyOf } from '../../src/operator/node-states.ts';
import { policyFacts, type Shadows, shadowsOf } from '../../src/operator/policy-facts.ts';
import { policyStatus } from '../../src/operator/policy-status.ts';
import { createSnapshotReader } from '../../src/operator/snapshot.ts';
import { planCluster } from '../../src/planner/plan-cluster.ts';
import { SITUATIONS, tally, troubles } from './operator-status-table.ts';

const NOW = '2026-03-01T00:00:00.000Z';
const BEFORE = '2026-02-01T00:00:00Z';

describe('a policy that is', () => {
  it.each(SITUATIONS)('%s', (_, facts, expected) => {
    const status = policyStatus(facts, [], NOW);
    expect(Object.fromEntries(status.conditions.map(it => [it.type, [it.status, it.reason]]))).toEqual(
      Object.fromEntries(Object.entries(expected).map(([type, [said, reason]]) => [type, [said, reason]])),
    );
    for (const condition of status.conditions) {
      expect(condition.message).toMatch(expected[condition.type]?.[2] ?? /./);
      expect(condition.message.length).toBeLessThanOrEqual(4096);
      expect(condition.observedGeneration).toBe(facts.generation);
      expect(condition.lastTransitionTime).toBe(NOW);
    }
    expect(status.observedGeneration).toBe(facts.generation);
    expect(status.nodes.summary).toBe(`${facts.nodes.programmed}/${facts.nodes.desired}`);
    expect(status.failedNodes?.length ?? 0).toBe(Math.min(facts.nodes.failedNodes.length, 16));
    for (const { message } of status.failedNodes ?? []) expect(message.length).toBeLessThanOrEqual(4096);
    const rules = status.rules ?? [];
    expect(rules.map(({ name }) => name)).toEqual((facts.policy?.spec.rules ?? []).map(({ name }) => name));
    expect(new Set(rules.map(({ id }) => id)).size).toBe(rules.length);
  });

  it('keeps the times of conditions that stay, whatever else is said in them', () => {
    const [, facts] = SITUATIONS.find(([name]) => name === 'all is well') as (typeof SITUATIONS)[number];
    const earlier = [
      { type: 'Accepted', status: 'True' as const, lastTransitionTime: BEFORE, reason: 'Other' },
      { type: 'Programmed', status: 'False' as const, lastTransitionTime: BEFORE },
      { type: 'Stranger', status: 'True' as const, lastTransitionTime: BEFORE },
    ];
    const times = policyStatus(facts, earlier, NOW).conditions.map(it => [it.type, it.lastTransitionTime]);
    expect(Object.fromEntries(times)).toEqual({
      Accepted: BEFORE,
      ResolvedRefs: NOW,
      Programmed: NOW,
      Conflicted: NOW,
      Degraded: NOW,
    });
  });
});

const HASH = 'abc';
const WALL = Date.parse('2026-03-01T12:00:00Z');
const condition = (type: string, status: string): object => ({
  type,
  status,
  reason: `${type}${status}`,
  message: `${type} is ${status}`,
});
const report = (conditions: unknown, more: object = {}): unknown => ({
  contentHash: HASH,
  lastVerifiedTime: '2026-03-01T11:50:00Z',
  conditions,
  ...more,
});

describe('a node counts as', () => {
  const READY = condition('Ready', 'True');
  const ends = { done: [1, 0, 0], pending: [0, 0, 0], failed: [0, 1, 0], warned: [1, 0, 1] } as const;
  it.each([
    ['done', 'with the content, and ready', report([READY])],
    ['pending', 'without a status', undefined],
    ['pending', 'with an empty status', {}],
    ['pending', 'with other content', report([READY], { contentHash: 'older' })],
    ['pending', 'without a word about being ready', report([])],
    ['pending', 'with an unknown state', report([condition('Ready', 'Unknown')])],
    ['failed', 'not ready', report([condition('Ready', 'False')])],
    [
      'failed',
      'not ready, with other content',
      report([condition('Ready', 'False')], { contentHash: 'older' }),
    ],
    ['failed', 'silent for more than an hour', report([READY], { lastVerifiedTime: '2026-03-01T10:59:59Z' })],
    ['done', 'silent for less', report([READY], { lastVerifiedTime: '2026-03-01T11:00:01Z' })],
    ['warned', 'contended', report([READY, condition('Contended', 'True')])],
    ['done', 'not contended', report([READY, condition('Contended', 'False')])],
    ['pending', 'with garbage', report('yes')],
    ['pending', 'with more garbage', report([null, 7, { type: 'Ready' }], { lastVerifiedTime: {} })],
  ] as const)('%s: %s', (end, _, status) => {
    const plan: DesiredPlan = { name: 'p', group: 'g', contentHash: HASH, parts: [], nodes: ['n'] };
    const node: RawObject = { metadata: { name: 'n' }, status };
    const counted = tallyOf(plan, new Map([['n', node]]), WALL);
    expect([counted.programmed, counted.failed, counted.warned]).toEqual(ends[end]);
    expect(counted.desired).toBe(1);
    expect(counted.failedNodes.length).toBe(counted.failed);
    for (const { name, reason, message } of [...counted.failedNodes, ...counted.warnings]) {
      expect(name).toBe('n');
      expect(reason).not.toBe('');
      expect(message).not.toBe('');
    }
  });

  it('one of its group, whose sums are right while few are named', () => {
    const groups = [
      tally({ desired: 30, programmed: 10, failed: 20, failedNodes: troubles(16) }),
      tally({
        desired: 5,
        programmed: 4,
        failed: 1,
        failedNodes: [{ name: 'a', reason: 'R', message: 'm' }],
      }),
    ];
    const sum = sumOf(groups);
    expect(sum).toMatchObject({ desired: 35, programmed: 14, failed: 21 });
    expect(sum.failedNodes).toHaveLength(16);
    expect(sum.failedNodes[0]?.name).toBe('a');
    expect(sumOf([])).toEqual(tally({}));
  });
});

interface World {
  readonly pools?: Readonly<Record<string, object>>;
  readonly sets?: Readonly<Record<string, unknown>>;
  readonly zones?: readonly string[];
  readonly policies: Readonly<Record<string, object>>;
}

/** The facts of all policies of a small world; pools are by spec, with labels beside. */
function factsIn({ pools = {}, sets = {}, zones = ['a'], policies }: World, shadows = true) {
  const named = (objects: Readonly<Record<string, object>>): Map<string, RawObject> =>
    new Map(
      Object.entries(objects).map(([name, { ...rest }], i) => [
        name,
        {
          metadata: { name, generation: i + 1, ...('labels' in rest ? { labels: rest.labels } : {}) },
          spec: rest,
        },
      ]),
    );
  const raw = {
    pools: named(pools),
    networkSets: named(Object.fromEntries(Object.entries(sets).map(([name, nets]) => [name, { nets }]))),
    nodes: new Map(
      zones.map((zone, i): [string, RawObject] => [
        `n${i}`,
        { metadata: { name: `n${i}`, labels: { zone } } },
      ]),
    ),
    policies: named(policies),
    felixConfigs: new Map<string, RawObject>(),
  } satisfies { [K in keyof Snapshot]: Map<string, RawObject> };
  const read = createSnapshotReader()(raw);
  const planned = planCluster(read.snapshot);
  const none: Shadows = new Map();
  return policyFacts(raw.policies, {
    read,
    planned,
    tallies: new Map(
      planned.groups.map(({ id, nodes }) => [id, tally({ desired: nodes.length, programmed: 1 })]),
    ),
    shadows: new Map(planned.groups.map(({ id, plan }) => [id, shadows ? shadowsOf(plan) : none])),
    stale: [],
  });
}

const GOOD = { cidr: '10.244.0.0/16', natOutgoing: true };
const BAD = { cidr: '10.244.0.0/99', natOutgoing: true };
const to = (...items: object[]): object => ({
  source: { ipBlocks: [{ cidr: '10.244.0.0/24' }] },
  rules: [{ name: 'a', action: 'Preserve', to: items }],
});
const from = (ipPools: object): object => ({
  source: { ipPools },
  rules: [{ name: 'a', action: 'Preserve' }],
});

describe('the facts', () => {
  const broken = (spec: object, labels: object = {}): readonly string[] =>
    (
      factsIn({
        pools: { good: GOOD, bad: { ...BAD, ...labels } },
        sets: { shut: ['x'] },
        policies: { p: spec },
      }).get('p')?.problems ?? []
    )
      .filter(({ severity }) => severity === 'error')
      .map(({ field, reason }) => `${field} ${reason}`);

  it.each<[string, object, object, readonly string[]]>([
    ['by name', from({ names: ['bad'] }), {}, ['spec.source.ipPools InvalidIPPool']],
    ['by all', from({}), {}, ['spec.source.ipPools InvalidIPPool']],
    ['not by the name of another', from({ names: ['good'] }), {}, []],
    [
      'by a selector',
      from({ selector: { matchLabels: { a: 'b' } } }),
      { labels: { a: 'b' } },
      ['spec.source.ipPools InvalidIPPool'],
    ],
    [
      'not by a selector of others',
      from({ selector: { matchLabels: { a: 'c' } } }),
      { labels: { a: 'b' } },
      [],
    ],
    [
      'perhaps by a selector, of labels that cannot be read',
      from({ selector: { matchLabels: { a: 'c' } } }),
      { labels: { a: 7 } },
      ['spec.source.ipPools InvalidIPPool'],
    ],
    ['as a destination', to({ ipPools: {} }), {}, ['spec.rules[0].to[0].ipPools InvalidIPPool']],
    [
      'as the pods of the cluster',
      to({ scope: 'Nodes' }, { scope: 'ClusterPods' }),
      {},
      ['spec.rules[0].to[1].scope InvalidIPPool'],
    ],
    [
      'as a network set',
      to({ networkSets: { names: ['shut'] } }),
      {},
      ['spec.rules[0].to[0].networkSets InvalidGlobalNetworkSet'],
    ],
  ])('name a broken object that is meant %s', (_, spec, labels, expected) => {
    // A name of a broken object is told as missing, too.
    expect(broken(spec, labels).filter(text => !text.endsWith(' NotFound'))).toEqual(expected);
  });

  it('say of missing references where they stand', () => {
    const facts = factsIn({
      pools: { good: GOOD },
      policies: { p: to({ ipPools: { names: ['good', 'blue'] } }) },
    });
    expect(facts.get('p')?.problems).toMatchObject([
      { field: 'spec.rules[0].to[0].ipPools.names[1]', reason: 'NotFound' },
    ]);
  });

  it('have the faults of a refused policy, and no nodes', () => {
    const facts = factsIn({ pools: { good: GOOD }, policies: { p: from({}), q: { source: {}, rules: [] } } });
    expect(facts.get('q')).toMatchObject({ policy: undefined, generation: 2, nodes: { desired: 0 } });
    expect(facts.get('q')?.faults.length).toBeGreaterThan(0);
    expect(facts.get('p')?.faults).toEqual([]);
  });

  it('count nodes over all groups of a policy', () => {
    const facts = factsIn({
      pools: { good: GOOD },
      zones: ['a', 'a', 'b', 'c'],
      policies: {
        all: from({}),
        a: { ...from({}), nodeSelector: { matchLabels: { zone: 'a' } } },
        off: { ...from({}), enforcementMode: 'Disabled' },
      },
    });
    expect(facts.get('all')?.nodes).toMatchObject({ desired: 4, programmed: 2 });
    expect(facts.get('a')?.nodes).toMatchObject({ desired: 2, programmed: 1 });
    expect(facts.get('off')?.nodes).toMatchObject({ desired: 0, programmed: 0 });
  });

  it('count what the selections stand for', () => {
    const facts = factsIn({ pools: { good: GOOD, six: { cidr: 'fd00::/64' } }, policies: { p: from({}) } });
    expect(facts.get('p')?.resolved).toEqual({ ipPools: 2, ipv4CIDRs: 1, ipv6CIDRs: 1 });
  });

  it('call a rule hidden only when it is in every group', () => {
    const hider = { ...from({}), priority: 1, nodeSelector: { matchLabels: { zone: 'a' } } };
    const world = (zones: readonly string[]): World => ({
      pools: { good: GOOD },
      zones,
      policies: { hidden: from({}), hider },
    });
    expect([...(factsIn(world(['a'])).get('hidden')?.shadowed ?? [])]).toEqual([['a', ['hider/a']]]);
    expect([...(factsIn(world(['a', 'b'])).get('hidden')?.shadowed ?? [])]).toEqual([]);
    expect([...(factsIn(world(['b'])).get('hidden')?.shadowed ?? [])]).toEqual([]);
    expect([...(factsIn(world(['a', 'b'])).get('hider')?.shadowed ?? [])]).toEqual([]);
  });
});
