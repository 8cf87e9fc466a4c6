// The steps of typical changes, line by line, as a process with a belief and a process that read the kernel take them.
import { describe, expect, it } from 'vitest';
import { planFamily, type PlanOptions, type Step } from '../../src/kernel/changes.ts';
import { type Observed, observedOf } from '../../src/kernel/observe.ts';
import type { FamilyTables } from '../../src/render/tables.ts';
import { poolTables, rule, tablesOf } from './kernel-tables.ts';

const OPTIONS: PlanOptions = { mayMove: true, held: new Set(), unreadable: new Set() };

const NOTHING: Observed = {
  sets: new Map(),
  chains: new Map(),
  postrouting: { readable: true, rules: [] },
};

/** Hashes and comments are another test's affair. */
const linesOf = (steps: readonly Step[]): readonly string[] =>
  steps.flatMap(({ tool, lines }) => [
    `== ${tool}`,
    ...lines.map(line => line.replace(/-m comment --comment "[^"]*" /, '')),
  ]);

const change = (
  old: FamilyTables,
  wanted: FamilyTables,
): { steps: readonly string[]; staleChains: readonly string[]; staleSets: readonly string[] } => {
  const { steps, staleChains, staleSets } = planFamily(observedOf(old, []), wanted, OPTIONS);
  return { steps: linesOf(steps), staleChains, staleSets };
};

const POOLS = poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16']);

const RULE =
  '-m set --match-set masq4-masq-pools src -m set ! --match-set masq4-all-pools dst -j MASQUERADE --random-fully';

const CREATE = (name: string): string => `create ${name} hash:net family inet hashsize 1024 maxelem 1024`;

describe('the steps of a change', () => {
  it('first apply: sets, then everything else at once', () => {
    const { steps, staleChains, staleSets } = planFamily(NOTHING, POOLS, OPTIONS);
    expect(linesOf(steps)).toEqual([
      '== ipset',
      CREATE('masq4-all-pools'),
      'add masq4-all-pools 10.0.0.0/16 -exist',
      CREATE('masq4-masq-pools'),
      'add masq4-masq-pools 10.0.0.0/16 -exist',
      '== iptables',
      ':masq-POSTROUTING - [0:0]',
      ':masq-nat-outgoing - [0:0]',
      '-A masq-POSTROUTING -m mark --mark 0x4000/0x4000 -j RETURN',
      '-A masq-POSTROUTING -j masq-nat-outgoing',
      `-A masq-nat-outgoing ${RULE}`,
      '-I POSTROUTING 1 -j masq-POSTROUTING',
    ]);
    expect([...staleChains, ...staleSets]).toEqual([]);
  });

  it('nothing to do: nothing', () => {
    expect(planFamily(observedOf(POOLS, []), POOLS, OPTIONS)).toMatchObject({
      differences: [],
      steps: [],
      staleChains: [],
      staleSets: [],
    });
  });

  it('one entry more: one line', () => {
    expect(change(POOLS, poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16', '10.1.0.0/16'])).steps).toEqual([
      '== ipset',
      'add masq4-all-pools 10.1.0.0/16 -exist',
    ]);
  });

  it('a pool added: two sets that live rules look into, so staged; the other chain keeps its counters', () => {
    const more = ['10.0.0.0/16', '10.1.0.0/16'];
    const temporary = RULE.replaceAll('masq4-', 'masq4-tmp-');
    const { steps, staleSets } = change(POOLS, poolTables(4, more, more));
    expect(steps).toEqual([
      '== ipset',
      ...['masq4-tmp-all-pools', 'masq4-tmp-masq-pools'].flatMap(name => [
        CREATE(name),
        `add ${name} 10.0.0.0/16 -exist`,
        `add ${name} 10.1.0.0/16 -exist`,
      ]),
      '== iptables',
      ':masq-nat-outgoing - [0:0]',
      `-A masq-nat-outgoing ${temporary}`,
      '== ipset',
      'add masq4-all-pools 10.1.0.0/16 -exist',
      'add masq4-masq-pools 10.1.0.0/16 -exist',
      '== iptables',
      ':masq-nat-outgoing - [0:0]',
      `-A masq-nat-outgoing ${RULE}`,
    ]);
    expect(staleSets).toEqual(['masq4-tmp-all-pools', 'masq4-tmp-masq-pools']);
  });

  const policy = (action: string, guard: readonly string[], source: readonly string[]): FamilyTables =>
    tablesOf(
      4,
      { 'p-src': source, 'x-g': guard },
      {
        'masq-POSTROUTING': [rule('-m set --match-set masq4-x-g src -j masq-p')],
        'masq-p': [rule(`-m set --match-set masq4-p-src src -j ${action}`)],
      },
    );

  it('an action changed: one chain, one transaction', () => {
    const old = policy('MASQUERADE', ['10.0.0.0/16'], ['10.0.0.0/16']);
    expect(change(old, policy('RETURN', ['10.0.0.0/16'], ['10.0.0.0/16'])).steps).toEqual([
      '== iptables',
      ':masq-p - [0:0]',
      '-A masq-p -m set --match-set masq4-p-src src -j RETURN',
    ]);
  });

  it('a guard grows first and shrinks last, in one process when no rule changes', () => {
    const old = policy('MASQUERADE', ['10.0.0.0/16'], ['10.0.0.0/16']);
    expect(change(old, policy('MASQUERADE', ['10.1.0.0/16'], ['10.1.0.0/16'])).steps).toEqual([
      '== ipset',
      'add masq4-x-g 10.1.0.0/16 -exist',
      'add masq4-p-src 10.1.0.0/16 -exist',
      'del masq4-p-src 10.0.0.0/16 -exist',
      'del masq4-x-g 10.0.0.0/16 -exist',
    ]);
  });

  it('a policy removed: its chain is emptied with the rules, then goes, then its sets', () => {
    const none = tablesOf(4, {}, { 'masq-POSTROUTING': [] });
    expect(change(policy('MASQUERADE', ['10.0.0.0/16'], ['10.0.0.0/16']), none)).toEqual({
      steps: ['== iptables', ':masq-POSTROUTING - [0:0]', ':masq-p - [0:0]'],
      staleChains: ['masq-p'],
      staleSets: ['masq4-p-src', 'masq4-x-g'],
    });
  });

  it('another limit: the set is built aside and swapped', () => {
    const larger = {
      ...POOLS,
      sets: POOLS.sets.map((set, i) => (i === 0 ? { ...set, maxelem: 2048 } : set)),
    };
    expect(change(POOLS, larger)).toMatchObject({
      steps: [
        '== ipset',
        'create masq4-tmp-all-pools hash:net family inet hashsize 1024 maxelem 2048',
        'add masq4-tmp-all-pools 10.0.0.0/16 -exist',
        'swap masq4-tmp-all-pools masq4-all-pools',
      ],
      staleSets: ['masq4-tmp-all-pools'],
    });
  });

  it('more changes than a rewrite has: swapped, too', () => {
    const block = (n: number): readonly string[] =>
      Array.from({ length: 300 }, (_, i) => `10.${n}.${i & 255}.${i >> 8}/32`);
    const sorted = (n: number): readonly string[] =>
      block(n).toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    const { steps } = change(
      poolTables(4, ['10.0.0.0/16'], sorted(1)),
      poolTables(4, ['10.0.0.0/16'], sorted(2)),
    );
    expect(steps).toHaveLength(1 + 1 + 300 + 1);
    expect(steps.at(-1)).toBe('swap masq4-tmp-all-pools masq4-all-pools');
  });

  it('a set that is asked for source and destination changes at once, or a packet could see half of it', () => {
    const both = (cidr: string): FamilyTables =>
      tablesOf(
        4,
        { x: [cidr] },
        {
          'masq-POSTROUTING': [
            rule('-m set --match-set masq4-x src -m set --match-set masq4-x dst -j MASQUERADE'),
          ],
        },
      );
    expect(change(both('10.0.0.0/16'), both('10.1.0.0/16')).steps.at(-1)).toBe('swap masq4-tmp-x masq4-x');
  });
});
