// Cost of a new flow with few and many exempt CIDRs, against one rule for each of them.
import { formatAddress } from '../../src/cidr/address.ts';
import type { Cidr } from '../../src/cidr/cidr.ts';
import { byDriver, type FlowSide, ipMasqAgent, measureFlows, trackedEmptyChain } from './flows.ts';
import { exempting, manyCidrs, tablesOf, textsOf } from './objects.ts';
import type { Options, Part } from './options.ts';
import { type Goal, type Measured, rowOf } from './result.ts';
import type { Packets } from './sender.ts';

const SIZES = [4, 64, 1_000, 10_000, 100_000] as const;
const FEWEST = SIZES[0];
/** More destinations than the first caches hold, so that a large set does not look smaller than it is. */
const DESTINATIONS = 4_096;
const FLAT: Goal = { of: 'ratio', atMost: 1.25 };
/** The goal is five times at 1,000; elsewhere the ratio is for information. */
const JUDGED = 1_000;
const FIVE_TIMES: Goal = { of: 'ratio', atMost: 0.2 };

/** Addresses outside 11.0.0.0/8 and what follows, where the exempt CIDRs lie. */
const elsewhere: Packets = {
  fate: 'translated',
  destinations: Array.from({ length: DESTINATIONS }, (_, i) =>
    formatAddress({ family: 4, value: (100n << 24n) + BigInt(i) * 7919n }),
  ),
};

/** The first addresses of CIDRs spread evenly over the list. */
const inside = (cidrs: readonly Cidr[]): Packets => ({
  fate: 'kept',
  destinations: Array.from({ length: DESTINATIONS }, (_, i) => {
    const { family, base } = cidrs[Math.floor((i * cidrs.length) / DESTINATIONS)] as Cidr;
    return formatAddress({ family, value: base });
  }),
});

const KINDS = [
  { kind: 'exempt', name: 'exempt flow' },
  { kind: 'other', name: 'other flow' },
] as const;

export const exemptions: Part = async options => {
  const sides: Record<string, FlowSide> = {
    floor: { setup: trackedEmptyChain, packets: { exempt: { ...elsewhere, fate: 'kept' } } },
  };
  for (const size of SIZES) {
    const cidrs = manyCidrs(size);
    const packets = { exempt: inside(cidrs), other: elsewhere };
    sides[`ours-${size}`] = { setup: byDriver(tablesOf(exempting(cidrs), [4])), packets };
    if (size <= options.mostRules) sides[`list-${size}`] = { setup: ipMasqAgent(textsOf(cidrs)), packets };
  }
  const values = await measureFlows(sides, options);
  return KINDS.flatMap(({ kind, name }) => SIZES.flatMap(size => rowsOf(kind, name, size, values, options))).map(rowOf);
};

function rowsOf(
  kind: string,
  name: string,
  size: number,
  values: Readonly<Record<string, readonly number[]>>,
  { backend }: Options,
): readonly Measured[] {
  const of = (side: string): readonly number[] => values[side] ?? [];
  const head = {
    part: 'exemptions',
    backend,
    unit: 'µs',
    ours: `${name}, ${size.toLocaleString('en')} CIDRs`,
    values: of(`ours-${size} ${kind}`),
    floor: of('floor exempt'),
  } as const;
  const list = values[`list-${size} ${kind}`];
  const isJudged = size === JUDGED && backend === 'nft';
  return [
    ...(list === undefined
      ? []
      : [
          {
            ...head,
            other: { name: 'a rule for each', values: list },
            ...(isJudged ? { goal: FIVE_TIMES } : {}),
          },
        ]),
    ...(size === FEWEST
      ? []
      : [
          {
            ...head,
            other: { name: `ours with ${FEWEST}`, values: of(`ours-${FEWEST} ${kind}`) },
            goal: FLAT,
          },
        ]),
  ];
}
