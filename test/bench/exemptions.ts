// Cost of a new flow with few and many exempt CIDRs, against one rule for each of them.
import { formatAddress } from '../../src/cidr/address.ts';
import { type Cidr, sizeOf } from '../../src/cidr/cidr.ts';
import { byDriver, type FlowSide, ipMasqAgent, measureFlows, trackedEmptyChain } from './flows.ts';
import { exempting, manyCidrs, tablesOf, textsOf } from './objects.ts';
import type { Options, Part } from './options.ts';
import { type Goal, type Measured, rowOf } from './result.ts';
import type { Packets } from './sender.ts';

const SIZES = [4, 64, 1_000, 10_000, 100_000] as const;
const FEWEST = SIZES[0];
const MOST = 100_000;
const FLAT: Goal = { of: 'ratio', atMost: 1.25 };
/** The goal is five times at 1,000; elsewhere the ratio is for information. */
const JUDGED = 1_000;
const FIVE_TIMES: Goal = { of: 'ratio', atMost: 0.2 };

/** So many that the first caches do not hold what a large set has to say about each of them. */
const DESTINATIONS = 4_096;
/** Prime to DESTINATIONS: a walk in such steps visits all, in no order. */
const STEP = 1_237;
const walk = Array.from({ length: DESTINATIONS }, (_, i) => (i * STEP) % DESTINATIONS);

/** Addresses above 100.0.0.0; the exempt CIDRs lie below. */
const elsewhere = walk.map(i => formatAddress({ family: 4, value: (100n << 24n) + BigInt(i) * 7919n }));

/** Addresses in CIDRs spread evenly over the list. */
const inside = (cidrs: readonly Cidr[]): readonly string[] =>
  walk.map(i => {
    const found = cidrs[Math.floor((i * cidrs.length) / DESTINATIONS)] as Cidr;
    return formatAddress({ family: 4, value: found.base + (BigInt(i) % sizeOf(found)) });
  });

const FLOWS = [
  { name: 'exempt flow', kind: 'exempt' },
  { name: 'other flow', kind: 'other' },
] as const;

interface List {
  /** Also the name of its packets to exempt destinations. */
  readonly name: string;
  readonly cidrs: readonly Cidr[];
}

const listsOf = (): readonly List[] => [
  ...SIZES.map(size => ({ name: `${size.toLocaleString('en')} CIDRs`, cidrs: manyCidrs(size) })),
  { name: `${MOST.toLocaleString('en')} /24`, cidrs: manyCidrs(MOST, 24, 24) },
];

export const exemptions: Part = async options => {
  const lists = listsOf();
  const unchanged: Record<string, Packets> = { other: { fate: 'kept', destinations: elsewhere } };
  const sides: Record<string, FlowSide> = { floor: { setup: trackedEmptyChain, packets: unchanged } };
  for (const { name, cidrs } of lists) {
    const exempt: Packets = { fate: 'kept', destinations: inside(cidrs) };
    const packets = { exempt, other: { fate: 'translated' as const, destinations: elsewhere } };
    unchanged[name] = exempt;
    sides[`ours ${name}`] = { setup: byDriver(tablesOf(exempting(cidrs), [4])), packets };
    if (cidrs.length <= options.mostRules) {
      sides[`rules ${name}`] = { setup: ipMasqAgent(textsOf(cidrs)), packets };
    }
  }
  const values = await measureFlows(sides, options);
  return FLOWS.flatMap(flow => lists.flatMap(list => measuredOf(flow, list, values, options))).map(rowOf);
};

function measuredOf(
  flow: (typeof FLOWS)[number],
  { name, cidrs }: List,
  values: Readonly<Record<string, readonly number[]>>,
  { backend }: Options,
): readonly Measured[] {
  const ours = (list: string): readonly number[] => values[`ours ${list} ${flow.kind}`] ?? [];
  const floor = (list: string): readonly number[] =>
    values[`floor ${flow.kind === 'other' ? flow.kind : list}`] ?? [];
  const head = {
    part: 'exemptions',
    backend,
    unit: 'µs',
    ours: `${flow.name}, ${name}`,
    values: ours(name),
    floor: floor(name),
  } as const;
  const rules = values[`rules ${name} ${flow.kind}`];
  const isJudged = cidrs.length === JUDGED && backend === 'nft';
  const few = `${FEWEST} CIDRs`;
  return [
    ...(rules === undefined
      ? []
      : [
          {
            ...head,
            other: { name: 'a rule for each', values: rules },
            ...(isJudged ? { goal: FIVE_TIMES } : {}),
          },
        ]),
    ...(name === few
      ? []
      : [{ ...head, other: { name: `ours, ${few}`, values: ours(few), floor: floor(few) }, goal: FLAT }]),
  ];
}
