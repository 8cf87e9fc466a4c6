// The shadow analysis by examples; shadow-brute-force.test.ts holds it against every packet of a small world.
import { describe, expect, it } from 'vitest';
import { findEmpty, findShadowed, type ShadowedRule } from '../../src/planner/shadow.ts';
import { planOf, type PolicySketch, type RuleSketch } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';

const sets = {
  pods: ['10.244.0.0/16', 'fd00:10:244::/48'],
  low: ['10.244.0.0/17'],
  high: ['10.244.128.0/17'],
  four: ['10.244.0.0/16'],
  wide: ['10.0.0.0/8'],
  left: ['10.0.0.0/9'],
  right: ['10.128.0.0/9'],
  inner: ['10.64.0.0/10'],
  'all-but-inner': ['10.0.0.0/8', '!10.64.0.0/10'],
  'lan-6': ['fd00:1::/64'],
  outside: ['8.8.8.0/24'],
};
const shadowed = (policies: readonly PolicySketch[]): readonly ShadowedRule[] =>
  findShadowed(planOf({ sets, policies }));
const p = (policy: number, rule: number): { policy: string; rule: string } => ({
  policy: `p${policy}`,
  rule: `r${rule}`,
});
const single = (...rules: readonly RuleSketch[]): readonly PolicySketch[] => [{ rules }];
const tcp = (port: number, endPort = port): RuleSketch => ({ ports: [{ protocol: 'TCP', port, endPort }] });

describe('findShadowed in one policy', () => {
  it('claims what one earlier rule covers, whatever the actions', () => {
    for (const action of ['Preserve', 'Masquerade', 'Continue'] as const) {
      expect(shadowed(single({ to: 'wide', action }, { to: 'inner' }, { to: 'outside' }))).toEqual([
        { ...p(0, 1), by: [p(0, 0)] },
      ]);
    }
    expect(shadowed(single({}, { to: 'inner' }, {}))).toEqual([
      { ...p(0, 1), by: [p(0, 0)] },
      { ...p(0, 2), by: [p(0, 0)] },
    ]);
  });

  it('claims what several cover together, and names only those that take something', () => {
    expect(shadowed(single({ to: 'outside' }, { to: 'left' }, { to: 'right' }, { to: 'wide' }))).toEqual([
      { ...p(0, 3), by: [p(0, 1), p(0, 2)] },
    ]);
    expect(shadowed(single({ to: 'all-but-inner' }, { to: 'inner' }, { to: 'wide' }))).toEqual([
      { ...p(0, 2), by: [p(0, 0), p(0, 1)] },
    ]);
    expect(shadowed(single({ to: 'all-but-inner' }, { to: 'wide' }))).toEqual([]);
  });

  it('looks at ports and interfaces', () => {
    expect(shadowed(single(tcp(1, 100), tcp(50)))).toEqual([{ ...p(0, 1), by: [p(0, 0)] }]);
    expect(shadowed(single(tcp(50), tcp(1, 100)))).toEqual([]);
    expect(shadowed(single(tcp(1, 65_535), {}))).toEqual([]);
    expect(
      shadowed(single({ ports: [{ protocol: 'TCP' }] }, tcp(443), { ports: [{ protocol: 'UDP' }] })),
    ).toEqual([{ ...p(0, 1), by: [p(0, 0)] }]);
    const touching: RuleSketch = {
      ports: [
        { protocol: 'TCP', port: 51, endPort: 90 },
        { protocol: 'TCP', port: 1, endPort: 50 },
      ],
    };
    expect(shadowed(single(touching, tcp(10, 80)))).toHaveLength(1);
    expect(shadowed(single(touching, tcp(10, 91)))).toEqual([]);
    const nested: RuleSketch = { ports: [tcp(1, 100), tcp(10, 20)].flatMap(rule => rule.ports ?? []) };
    expect(shadowed(single(nested, tcp(5, 90)))).toHaveLength(1);
    expect(shadowed(single({ outInterfaces: ['eth+'] }, { outInterfaces: ['eth0', 'eth1+'] }))).toHaveLength(
      1,
    );
    expect(shadowed(single({ outInterfaces: ['eth0'] }, { outInterfaces: ['eth+'] }))).toEqual([]);
    expect(shadowed(single({ outInterfaces: ['eth0'] }, {}))).toEqual([]);
    expect(shadowed(single({ outInterfaces: ['eth1'] }, { outInterfaces: ['eth1+'] }))).toEqual([]);
    expect(shadowed(single({ outInterfaces: ['+'] }, {}))).toHaveLength(1);
  });

  it('lets a SNAT rule hide only the families in which it has an address on every node', () => {
    const snat = { addresses: { 4: address('198.51.100.7') } };
    expect(shadowed(single({ action: 'SNAT', snat }, {}))).toEqual([]);
    expect(shadowed(single({ action: 'SNAT', snat }, { to: 'wide' }))).toHaveLength(1);
    expect(shadowed(single({ action: 'SNAT', snat }, { to: 'lan-6' }))).toEqual([]);
    expect(shadowed(single({ to: 'wide' }, { action: 'SNAT', snat, to: 'inner' }))).toHaveLength(1);
    expect(shadowed(single({ action: 'SNAT', snat: { nodeValue: 'address:ExternalIP' } }, {}))).toEqual([]);
  });
});

describe('findShadowed across policies', () => {
  const everything: readonly RuleSketch[] = [{}];
  it('claims what policies from the same or a wider source take', () => {
    expect(shadowed([{ rules: everything }, { source: 'low', rules: [{ to: 'wide' }] }])).toEqual([
      { ...p(1, 0), by: [p(0, 0)] },
    ]);
    expect(shadowed([{ source: 'low', rules: everything }, { rules: [{ to: 'wide' }] }])).toEqual([]);
  });

  it('claims what policies take together, source by source and destination by destination', () => {
    const policies: readonly PolicySketch[] = [
      { source: 'low', rules: [{ to: 'left' }] },
      { source: 'high', rules: [{ to: 'wide' }] },
      { source: 'low', rules: [{ to: 'right' }] },
      { source: 'four', rules: [{ to: 'wide' }, { to: 'outside' }] },
    ];
    expect(shadowed(policies)).toEqual([{ ...p(3, 0), by: [p(0, 0), p(1, 0), p(2, 0)] }]);
    expect(shadowed(policies.toSpliced(2, 1))).toEqual([]);
  });

  it('takes Continue as leading out of its policy only', () => {
    const later: PolicySketch = { rules: [{ to: 'wide' }, { to: 'inner' }] };
    expect(shadowed([{ rules: [{ action: 'Continue' }] }, later])).toEqual([{ ...p(1, 1), by: [p(1, 0)] }]);
    expect(
      shadowed([{ rules: [{ to: 'inner', action: 'Continue' }, {}] }, { rules: [{ to: 'wide' }] }]),
    ).toEqual([]);
    expect(
      shadowed([{ rules: [{ to: 'inner', action: 'Continue' }, {}] }, { rules: [{ to: 'right' }] }]),
    ).toEqual([{ ...p(1, 0), by: [p(0, 1)] }]);
    expect(
      shadowed([{ rules: [{ ...tcp(80), action: 'Continue' }, {}] }, { rules: [tcp(443), tcp(79, 80)] }]),
    ).toEqual([{ ...p(1, 0), by: [p(0, 1)] }]);
    for (const [continuing, later] of [
      ['eth0', 'eth+'],
      ['eth+', 'eth0'],
      ['eth+', 'eth0+'],
      ['eth0+', 'eth+'],
    ] as const) {
      const leading: PolicySketch = { rules: [{ outInterfaces: [continuing], action: 'Continue' }, {}] };
      expect(shadowed([leading, { rules: [{ outInterfaces: [later] }, { outInterfaces: ['lo'] }] }])).toEqual(
        [{ ...p(1, 1), by: [p(0, 1)] }],
      );
    }
    expect(
      shadowed([
        { rules: [{ to: 'inner', action: 'Continue' }, {}] },
        { rules: [{ to: 'left' }] },
        { rules: [{ to: 'wide' }] },
      ]),
    ).toEqual([{ ...p(2, 0), by: [p(0, 1), p(1, 0)] }]);
  });

  it('takes a default action as the last rule of its policy', () => {
    const closing = { rules: [{ to: 'left' }], defaultAction: 'Masquerade' } as const;
    expect(shadowed([closing, { rules: [{ to: 'wide' }, { to: 'left' }] }])).toEqual([
      { ...p(1, 0), by: [p(0, 0), { policy: 'p0', default: true }] },
      { ...p(1, 1), by: [p(0, 0)] },
    ]);
    expect(
      shadowed([
        { ...closing, rules: [{ to: 'left', action: 'Continue' }] },
        { rules: [{ to: 'wide' }, { to: 'right' }] },
      ]),
    ).toEqual([{ ...p(1, 1), by: [{ policy: 'p0', default: true }] }]);
    const snat: RuleSketch = { action: 'SNAT', snat: { nodeValue: 'address:ExternalIP' } };
    expect(shadowed([{ ...closing, rules: [snat] }, { rules: [{ to: 'wide' }] }])).toEqual([
      { ...p(1, 0), by: [{ policy: 'p0', default: true }] },
    ]);
  });

  it('lets dry runs hide nothing but their own later rules', () => {
    const trying: PolicySketch = { dryRun: true, rules: [{}, { to: 'wide' }], defaultAction: 'Preserve' };
    expect(shadowed([trying, { rules: everything }])).toEqual([{ ...p(0, 1), by: [p(0, 0)] }]);
    expect(shadowed([{ rules: everything }, trying])).toHaveLength(2);
  });
});

describe('findEmpty', () => {
  it('names rules that match nothing, which are then not called shadowed', () => {
    const snat = { addresses: { 6: address('2001:db8::7') } };
    const policies: readonly PolicySketch[] = [
      { rules: [{}, { to: 'none' }, { to: 'lan-6' }] },
      { source: 'none', rules: [{}] },
      {
        source: 'four',
        rules: [{ to: 'lan-6' }, { action: 'SNAT', snat }, { action: 'SNAT', snat, to: 'wide' }],
      },
    ];
    expect(findEmpty(planOf({ sets, policies }))).toEqual([p(0, 1), p(1, 0), p(2, 0), p(2, 1), p(2, 2)]);
    expect(shadowed(policies)).toEqual([{ ...p(0, 2), by: [p(0, 0)] }]);
  });

  it('sees a set whose exceptions leave nothing', () => {
    const cancelled = { ...sets, gone: ['10.0.0.0/8', '!10.0.0.0/9', '!10.128.0.0/9'] };
    expect(findEmpty(planOf({ sets: cancelled, policies: single({ to: 'gone' }) }))).toEqual([p(0, 0)]);
  });
});

describe('findShadowed on large plans', () => {
  const netOf = (n: number): string => `10.${n >> 8}.${n & 255}.0/24`;

  it('sees one pair among 500 policies of 4 rules, and soon', () => {
    const many = Object.fromEntries(
      Array.from({ length: 500 }, (_, i) => [`s${i}`, [`10.244.${i >> 1}.${(i & 1) * 128}/25`]]),
    );
    const policies = Array.from({ length: 500 }, (_, i) => ({
      source: i === 499 ? 's7' : `s${i}`,
      rules: ['left', 'inner', 'outside', 'right'].map(to => ({ to })),
    }));
    const plan = planOf({ sets: { ...sets, ...many }, policies });
    const began = performance.now();
    const found = findShadowed(plan);
    // 0.1 s on one core with nothing else to do.
    expect(performance.now() - began).toBeLessThan(2000);
    // In each policy `left` covers `inner`.
    expect(found.map(({ policy, rule }) => `${policy}/${rule}`)).toEqual([
      ...Array.from({ length: 499 }, (_, i) => `p${i}/r1`),
      'p499/r0',
      'p499/r1',
      'p499/r2',
      'p499/r3',
    ]);
  });

  it('claims nothing where it would have to look at too much, and goes on with the others', () => {
    const nets = Array.from({ length: 30_000 }, (_, i) => netOf(i * 2));
    const huge = { ...sets, huge: nets, half: nets.slice(15_000), rest: nets.slice(0, 15_000) };
    const rules: readonly RuleSketch[] = [
      { to: 'half' },
      { to: 'rest' },
      { to: 'huge' },
      { to: 'huge' },
      { to: 'outside' },
      { to: 'outside' },
    ];
    expect(findShadowed(planOf({ sets: huge, policies: single(...rules) }))).toEqual([
      // The second `huge` is the same set as the first, which needs no look; the first would need one.
      { ...p(0, 3), by: [p(0, 2)] },
      { ...p(0, 5), by: [p(0, 4)] },
    ]);
  });

  it('claims nothing of a rule that falls into too many pieces', () => {
    const stripes = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`d${i}`, [`10.0.${i}.0/24`]]));
    const sources = Object.fromEntries(
      Array.from({ length: 200 }, (_, i) => [`s${i}`, [`10.244.${i}.0/24`]]),
    );
    const policies: readonly PolicySketch[] = [
      ...Array.from({ length: 200 }, (_, i) => ({ source: `s${i}`, rules: [{ to: `d${i}` }] })),
      { rules: [{ to: 'wide' }] },
      { source: 's3', rules: [{ to: 'd3' }, { to: 'd4' }] },
    ];
    expect(findShadowed(planOf({ sets: { ...sets, ...stripes, ...sources }, policies }))).toEqual([
      { ...p(201, 0), by: [p(3, 0)] },
      { ...p(201, 1), by: [p(200, 0)] },
    ]);
  });
});
