// Tables for tests of the driver, shaped as render/ makes them: guards before rules, rules on sets, the pool default.
import fc from 'fast-check';
import type { Family } from '../../src/cidr/address.ts';
import { type AddressSet, setOf, subtract, union } from '../../src/cidr/address-set.ts';
import { type Cidr, formatCidr } from '../../src/cidr/cidr.ts';
import { chainOf, type RuleSpec } from '../../src/render/chain.ts';
import type { FamilyTables, KernelEntry, KernelSet } from '../../src/render/tables.ts';

export const jump = chainOf('POSTROUTING', [{ args: ['-j', 'masq-POSTROUTING'], label: 'pod traffic' }])
  .rules[0]!;

export const entry = (cidr: string, nomatch = false): KernelEntry => ({ cidr, nomatch });

export const rule = (args: string, label = 'a rule'): RuleSpec => ({ args: args.split(' '), label });

/** Sets by the end of their names; entries are CIDRs, `!` before one is nomatch. Guards end in -g. */
export function tablesOf(
  family: Family,
  sets: Readonly<Record<string, readonly string[]>>,
  chains: Readonly<Record<string, readonly RuleSpec[]>>,
  maxelem = 1024,
): FamilyTables {
  const kernelSets = Object.entries(sets).map(
    ([id, cidrs]): KernelSet => ({
      name: `masq${family}-${id}`,
      guard: id.endsWith('-g'),
      maxelem,
      entries: cidrs.map(cidr => entry(cidr.replace('!', ''), cidr.startsWith('!'))),
    }),
  );
  const byName = <T extends { readonly name: string }>(list: readonly T[]): readonly T[] =>
    list.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const kernelChains = Object.entries(chains).map(([name, rules]) => chainOf(name, rules));
  return { family, needed: true, sets: byName(kernelSets), chains: byName(kernelChains), jump };
}

/** The pool default with pools that are masqueraded and pools that are spared. */
export const poolTables = (
  family: Family,
  masqueraded: readonly string[],
  spared: readonly string[],
): FamilyTables =>
  tablesOf(
    family,
    { 'all-pools': spared, 'masq-pools': masqueraded },
    {
      'masq-POSTROUTING': [
        rule('-m mark --mark 0x4000/0x4000 -j RETURN', 'for kube-proxy'),
        rule('-j masq-nat-outgoing', 'natOutgoing of IPPools'),
      ],
      'masq-nat-outgoing': [
        rule(
          `-m set --match-set masq${family}-masq-pools src -m set ! --match-set masq${family}-all-pools dst -j MASQUERADE --random-fully`,
          'natOutgoing of IPPools',
        ),
      ],
    },
  );

/** Addresses of 10.0.0.0/29 and one outside, for exhaustive looks. */
export const UNIVERSE: readonly number[] = [...Array(9).keys()].map(i => 10 * 2 ** 24 + i);

const cidrs: fc.Arbitrary<Cidr> = fc
  .tuple(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 29, max: 32 }))
  .map(([host, prefix]) => {
    const size = 2 ** (32 - prefix);
    return { family: 4, base: BigInt(10 * 2 ** 24 + Math.floor(host / size) * size), prefix };
  });

/** Sets with exceptions in them, as longest-prefix match stores them. */
export const addressSets: fc.Arbitrary<AddressSet> = fc
  .tuple(fc.array(cidrs, { minLength: 1, maxLength: 4 }), fc.array(cidrs, { maxLength: 3 }))
  .map(([inside, outside]) => subtract(setOf(4, inside), setOf(4, outside)));

export const entriesOf = (set: AddressSet): readonly KernelEntry[] =>
  set.entries.map(({ cidr, nomatch }) => entry(formatCidr(cidr), nomatch));

const IDS = ['a', 'b', 'c'] as const;

const ruleShapes = fc.record({
  source: fc.constantFrom(...IDS),
  destination: fc.option(fc.constantFrom(...IDS)),
  negated: fc.boolean(),
  target: fc.constantFrom('MASQUERADE', 'NETMAP', 'RETURN'),
});

type Shape = typeof ruleShapes extends fc.Arbitrary<infer T> ? T : never;

const inputs = fc.record({
  contents: fc.tuple(addressSets, addressSets, addressSets),
  shapes: fc.array(ruleShapes, { maxLength: 3 }),
  maxelem: fc.constantFrom(64, 128),
});

/** Whole tables of one family: up to three rules on three sets, behind a guard. */
function build(contents: readonly AddressSet[], shapes: readonly Shape[], maxelem: number): FamilyTables {
  const setNamed = (id: string, content: AddressSet): KernelSet => ({
    name: `masq4-${id}`,
    guard: id === 'g',
    maxelem: id === 'a' || id === 'g' ? maxelem : 64,
    entries: entriesOf(content),
  });
  const used = IDS.filter(id =>
    shapes.some(({ source, destination }) => source === id || destination === id),
  );
  const contentOf = (id: (typeof IDS)[number]): AddressSet => contents[IDS.indexOf(id)]!;
  const sources = [...new Set(shapes.map(({ source }) => source))].map(contentOf);
  const match = (id: string, negated: boolean, flag: string): string =>
    `-m set ${negated ? '! ' : ''}--match-set masq4-${id} ${flag}`;
  const rules = shapes.map(({ source, destination, negated, target }) => {
    const to = destination === null ? '' : ` ${match(destination, negated, 'dst')}`;
    return rule(`${match(source, false, 'src')}${to} -j ${target}`);
  });
  const guarded = shapes.length > 0;
  const top = guarded ? [rule(`${match('g', false, 'src')} -j masq-p`)] : [];
  return {
    family: 4,
    needed: true,
    jump,
    sets: [
      ...used.map(id => setNamed(id, contentOf(id))),
      ...(guarded ? [setNamed('g', union(4, sources))] : []),
    ],
    chains: [chainOf('masq-POSTROUTING', top), ...(guarded ? [chainOf('masq-p', rules)] : [])],
  };
}

export const anyTables: fc.Arbitrary<FamilyTables> = inputs.map(({ contents, shapes, maxelem }) =>
  build(contents, shapes, maxelem),
);

/** Two tables of which the second keeps some of the first: its rules, its sizes, the content of some sets. */
export const changedTables: fc.Arbitrary<readonly [FamilyTables, FamilyTables]> = fc
  .tuple(inputs, inputs, fc.tuple(fc.boolean(), fc.boolean(), fc.boolean(), fc.boolean(), fc.boolean()))
  .map(([old, other, [newRules, newSize, ...newContents]]) => [
    build(old.contents, old.shapes, old.maxelem),
    build(
      old.contents.map((content, i) => (newContents[i] === true ? other.contents[i]! : content)),
      newRules ? other.shapes : old.shapes,
      newSize ? other.maxelem : old.maxelem,
    ),
  ]);
