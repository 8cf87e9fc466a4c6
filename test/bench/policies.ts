// Cost of a new flow with few and many policy rules that do not concern it, against Felix's one rule.
import type { MasqPolicy, Snapshot } from '../../src/api/model.ts';
import {
  bareFelixRule,
  byDriver,
  emptyChain,
  felix,
  type FlowSide,
  measureFlows,
  trackedEmptyChain,
} from './flows.ts';
import { ALL_PODS, block, cidr, EMPTY, POD_CIDR, policy, pool, rule, tablesOf } from './objects.ts';
import type { Part } from './options.ts';
import { type Goal, type Measured, rowOf } from './result.ts';
import type { Packets } from './sender.ts';

const COUNTS = [1, 10, 50, 200] as const;
const FEWEST = COUNTS[0];
const RULES_OF_A_POLICY = 50;
/** Of what a packet pays that is the first of its flow, tracking of connections included: no packet goes without. */
const NEAR_FELIX: Goal = { of: 'ratio', atMost: 1.2 };
const FLAT: Goal = { of: 'ratio', atMost: 1.25 };

const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);

const ruleTo = (i: number): ReturnType<typeof rule> =>
  rule(`rule-${i}`, [block(`172.20.${i}.0/24`)], i % 2 === 0 ? 'Preserve' : 'Masquerade');

interface Shape {
  readonly name: string;
  /** Policies with that many rules altogether. */
  policies(count: number): readonly MasqPolicy[];
}

const SHAPES: readonly Shape[] = [
  {
    name: 'of other sources',
    policies: count =>
      numbers(count).map(i =>
        policy(`policy-${i}`, { ipBlocks: [{ cidr: cidr(`10.99.${i}.0/24`), except: [] }] }, [ruleTo(i)]),
      ),
  },
  {
    name: 'to other destinations',
    policies: count => numbers(count).map(i => policy(`policy-${i}`, ALL_PODS, [ruleTo(i)])),
  },
  {
    name: `to other destinations, ${RULES_OF_A_POLICY} a policy`,
    policies: count =>
      numbers(Math.ceil(count / RULES_OF_A_POLICY)).map(i =>
        policy(
          `policy-${i}`,
          ALL_PODS,
          numbers(Math.min(count, RULES_OF_A_POLICY)).map(j => ruleTo(i * RULES_OF_A_POLICY + j)),
        ),
      ),
  },
];

const snapshotOf = (policies: readonly MasqPolicy[]): Snapshot => ({
  ...EMPTY,
  pools: [pool('pods', POD_CIDR)],
  policies,
});

const DESTINATIONS = Array.from({ length: 1_024 }, (_, i) => `203.0.${112 + (i >> 8)}.${i & 255}`);
const translated: Readonly<Record<'flow', Packets>> = {
  flow: { fate: 'translated', destinations: DESTINATIONS },
};
const kept: Readonly<Record<'flow', Packets>> = { flow: { fate: 'kept', destinations: DESTINATIONS } };

export const policies: Part = async options => {
  const sides: Record<string, FlowSide> = {
    untracked: { setup: emptyChain, packets: kept },
    floor: { setup: trackedEmptyChain, packets: kept },
    felix: { setup: felix, packets: translated },
    bare: { setup: bareFelixRule, packets: translated },
  };
  SHAPES.forEach((shape, i) => {
    for (const count of COUNTS) {
      const tables = tablesOf(snapshotOf(shape.policies(count)), [4]);
      sides[`${i}-${count}`] = { setup: byDriver(tables), packets: translated };
    }
  });
  const values = await measureFlows(sides, options);
  const of = (side: string): readonly number[] => values[`${side} flow`] ?? [];
  const head = { part: 'policies', backend: options.backend, unit: 'µs' } as const;
  const shapeRows = SHAPES.flatMap((shape, i) =>
    COUNTS.flatMap((count): readonly Measured[] => {
      const name = `${count} rule${count === 1 ? '' : 's'} ${shape.name}`;
      const bare = {
        ...head,
        ours: `${name}, without tracking`,
        values: of(`${i}-${count}`),
        floor: of('floor'),
      };
      const ours = { ...head, ours: name, values: of(`${i}-${count}`), floor: of('untracked') };
      const felixRule = { name: "Felix's rule", values: of('felix') };
      const few = { name: `ours, ${FEWEST} rule`, values: of(`${i}-${FEWEST}`) };
      return [
        { ...ours, other: felixRule, goal: NEAR_FELIX },
        ...(count === COUNTS.at(-1)
          ? [
              { ...bare, other: few, goal: FLAT },
              { ...bare, other: felixRule },
            ]
          : []),
      ];
    }),
  );
  return [
    {
      ...head,
      ours: "(Felix's rule in its chains)",
      values: of('felix'),
      floor: of('floor'),
      other: { name: "Felix's rule alone", values: of('bare') },
    },
    {
      ...head,
      ours: '(tracking of connections)',
      values: of('floor'),
      other: { name: 'an empty chain without', values: of('untracked') },
    },
    ...shapeRows,
  ].map(rowOf);
};
