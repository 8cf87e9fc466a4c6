import { containsCidr as referenceContains, mergeCidr } from 'cidr-tools';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Address, type Family, formatAddress, parseAddress } from '../../src/cidr/address.ts';
import {
  type AddressSet,
  countAddresses,
  hasAddress,
  intersect,
  isSubset,
  rangesOf,
  setOf,
  storableEntries,
  subtract,
  union,
} from '../../src/cidr/address-set.ts';
import { type Cidr, cidrOf, containsCidr, formatCidr, halves, parseCidr } from '../../src/cidr/cidr.ts';

const must = (text: string, options = {}): Cidr => {
  const parsed = parseCidr(text, options);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
};

// A small universe makes nesting and adjacency common: 256 addresses around 10.0.0.0 or fd00::.
const bases: Record<Family, bigint> = { 4: 10n << 24n, 6: 0xfd00n << 112n };
const smallCidr = (family: Family): fc.Arbitrary<Cidr> =>
  fc
    .tuple(fc.integer({ min: 0, max: 255 }), fc.integer({ min: 0, max: 8 }))
    .map(([low, length]) =>
      cidrOf({ family, value: bases[family] + BigInt(low) }, (family === 4 ? 24 : 120) + length),
    );
const universe = (family: Family): Address[] =>
  Array.from({ length: 256 }, (_, i) => ({ family, value: bases[family] + BigInt(i) }));
const members = (set: AddressSet): string =>
  universe(set.family)
    .map(address => (hasAddress(set, address) ? '1' : '0'))
    .join('');
const bruteMembers = (family: Family, test: (address: Cidr) => boolean): string =>
  universe(family)
    .map(address => (test(cidrOf(address, family === 4 ? 32 : 128)) ? '1' : '0'))
    .join('');

describe('parseAddress', () => {
  it.each([
    ['10.0.0.1', '10.0.0.1'],
    ['255.255.255.255', '255.255.255.255'],
    ['0.0.0.0', '0.0.0.0'],
    ['FD00:0:0::1', 'fd00::1'],
    ['::', '::'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
  ])('prints %s as %s', (text, canonical) => {
    const parsed = parseAddress(text);
    expect(parsed.ok && formatAddress(parsed.value)).toBe(canonical);
  });

  it.each([
    '010.0.0.1',
    '10.0.0',
    '10',
    '0x0a000001',
    '10.0.0.256',
    '10.0.0.1 ',
    ' 10.0.0.1',
    '10.0.0.1\n',
    'localhost',
    '',
    '::ffff:10.0.0.1',
    '::ffff:a00:1',
    '::1.2.3.4',
    'fe80::1%eth0',
    '1::2::3',
    '10.0.0.1,10.0.0.2',
    '١٠.0.0.1',
    7,
    null,
  ])('refuses %j', text => {
    expect(parseAddress(text)).toMatchObject({ ok: false });
  });

  it('reads back what it prints, for any number', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<Family>(4, 6),
        fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }),
        (family, raw) => {
          const value = family === 4 ? raw & 0xffffffffn : raw;
          fc.pre(family === 4 || value >> 32n !== 0xffffn);
          expect(parseAddress(formatAddress({ family, value }))).toEqual({
            ok: true,
            value: { family, value },
          });
        },
      ),
    );
  });
});

describe('parseCidr', () => {
  it.each([
    '10.0.0.0',
    '10.0.0.0/',
    '10.0.0.0/33',
    '10.0.0.0/08',
    '10.0.0.0/-1',
    '10.0.0.0/8/8',
    '10/8',
    '010.0.0.0/8',
    'fd00::/129',
    '10.0.0.0/8\nadd x 1.2.3.4',
    '/8',
    '10.0.0.0/8 ',
    '10.0.0.0/255.0.0.0',
    '::ffff:0:0/96',
  ])('refuses %j', text => {
    expect(parseCidr(text)).toMatchObject({ ok: false });
  });

  it('names the network where host bits are set, and clears them only where told', () => {
    expect(parseCidr('10.1.2.3/8')).toEqual({
      ok: false,
      reason: 'has bits below its prefix; the network is 10.0.0.0/8',
    });
    expect(formatCidr(must('10.1.2.3/8', { hostBits: 'clear' }))).toBe('10.0.0.0/8');
  });

  it('takes a plain address only where told', () => {
    expect(formatCidr(must('10.1.2.3', { plainAddress: true }))).toBe('10.1.2.3/32');
    expect(formatCidr(must('fd00::1', { plainAddress: true }))).toBe('fd00::1/128');
  });

  it('agrees with cidr-tools on containment', () => {
    fc.assert(
      fc.property(smallCidr(4), smallCidr(4), smallCidr(6), smallCidr(6), (a, b, c, d) => {
        expect(containsCidr(a, b)).toBe(referenceContains(formatCidr(a), formatCidr(b)));
        expect(containsCidr(c, d)).toBe(referenceContains(formatCidr(c), formatCidr(d)));
        expect(containsCidr(a, d)).toBe(false);
      }),
    );
  });

  it('splits /0 into the halves that hash:net can hold', () => {
    expect(halves(must('0.0.0.0/0')).map(formatCidr)).toEqual(['0.0.0.0/1', '128.0.0.0/1']);
    expect(halves(must('::/0')).map(formatCidr)).toEqual(['::/1', '8000::/1']);
  });
});

describe('address sets', () => {
  const family = fc.constantFrom<Family>(4, 6);
  const scene = family.chain(f =>
    fc.record({
      family: fc.constant(f),
      lists: fc.array(fc.array(smallCidr(f), { maxLength: 8 }), { minLength: 2, maxLength: 4 }),
    }),
  );

  it('hold the union of their CIDRs, like a merge by cidr-tools', () => {
    fc.assert(
      fc.property(scene, ({ family: f, lists }) => {
        const cidrs = lists.flat();
        const set = setOf(f, cidrs);
        expect(members(set)).toBe(
          bruteMembers(f, address => cidrs.some(cidr => containsCidr(cidr, address))),
        );
        const merged = mergeCidr(cidrs.map(formatCidr)).map(text => must(text));
        expect(countAddresses(set)).toBe(countAddresses(setOf(f, merged)));
      }),
    );
  });

  it('unite, subtract and intersect address by address, whatever nests in what', () => {
    fc.assert(
      fc.property(scene, ({ family: f, lists }) => {
        const [a, b, ...rest] = lists.map(list => setOf(f, list)) as [
          AddressSet,
          AddressSet,
          ...AddressSet[],
        ];
        const hole = subtract(a, b);
        const all = union(f, [hole, ...rest]);
        const inA = (x: Cidr): boolean => (lists[0] as Cidr[]).some(c => containsCidr(c, x));
        const inB = (x: Cidr): boolean => (lists[1] as Cidr[]).some(c => containsCidr(c, x));
        const inRest = (x: Cidr): boolean =>
          lists
            .slice(2)
            .flat()
            .some(c => containsCidr(c, x));
        expect(members(hole)).toBe(bruteMembers(f, x => inA(x) && !inB(x)));
        expect(members(intersect(a, b))).toBe(bruteMembers(f, x => inA(x) && inB(x)));
        expect(members(all)).toBe(bruteMembers(f, x => (inA(x) && !inB(x)) || inRest(x)));
        expect(countAddresses(all)).toBe(BigInt([...members(all)].filter(bit => bit === '1').length));
        expect(isSubset(hole, a)).toBe(true);
        expect(isSubset(a, hole)).toBe(members(a) === members(hole));
      }),
    );
  });

  it('are the same as ranges with gaps between them', () => {
    fc.assert(
      fc.property(scene, ({ family: f, lists }) => {
        const [a, b, ...rest] = lists.map(list => setOf(f, list)) as [
          AddressSet,
          AddressSet,
          ...AddressSet[],
        ];
        const set = union(f, [subtract(a, b), ...rest]);
        const ranges = rangesOf(set);
        expect(members(set)).toBe(
          bruteMembers(f, ({ base }) => ranges.some(([first, last]) => first <= base && base <= last)),
        );
        expect(ranges.every(([first], i) => i === 0 || first > (ranges[i - 1]?.[1] ?? 0n) + 1n)).toBe(true);
        expect(ranges.reduce((sum, [first, last]) => sum + last - first + 1n, 0n)).toBe(countAddresses(set));
      }),
    );
    expect(rangesOf(setOf(6, [must('::/0')]))).toEqual([[0n, 2n ** 128n - 1n]]);
  });

  it('do not depend on the order of their input', () => {
    fc.assert(
      fc.property(fc.array(smallCidr(4), { maxLength: 12 }), cidrs => {
        expect(setOf(4, cidrs.toReversed())).toEqual(setOf(4, cidrs));
      }),
    );
  });

  it('keep the CIDRs as written, less those that are covered, and an exception as one entry', () => {
    const set = subtract(
      setOf(
        4,
        ['10.0.0.0/8', '10.1.0.0/16', '11.0.0.0/24', '11.0.1.0/24'].map(t => must(t)),
      ),
      setOf(4, [must('10.100.0.0/16')]),
    );
    expect(set.entries.map(e => `${e.nomatch ? '!' : ''}${formatCidr(e.cidr)}`)).toEqual([
      '10.0.0.0/8',
      '!10.100.0.0/16',
      '11.0.0.0/24',
      '11.0.1.0/24',
    ]);
  });

  it('store a /0 as halves and leave an entry for a half alone', () => {
    const everything = setOf(4, [must('0.0.0.0/0')]);
    const upper = subtract(everything, setOf(4, [must('0.0.0.0/1')]));
    const printed = (set: AddressSet): string[] =>
      storableEntries(set).map(e => `${e.nomatch ? '!' : ''}${formatCidr(e.cidr)}`);
    expect(printed(everything)).toEqual(['0.0.0.0/1', '128.0.0.0/1']);
    expect(printed(upper)).toEqual(['!0.0.0.0/1', '128.0.0.0/1']);
  });

  it('answer for a gap of a long list without walking it', () => {
    const cidrs = Array.from({ length: 50_000 }, (_, i) => cidrOf({ family: 4, value: BigInt(i) << 9n }, 24));
    const set = setOf(4, cidrs);
    for (let i = 0; i < 50_000; i++) {
      const gap = (BigInt(i) << 9n) + 256n;
      if (hasAddress(set, { family: 4, value: gap })) throw new Error(`${gap} is in a gap`);
    }
    expect(hasAddress(set, { family: 4, value: (49_999n << 9n) + 255n })).toBe(true);
  });
});
