// A small world of addresses, so that random pools, policies and packets meet often: pods in 10.244.0.0/16 and
// fd00:10:244::/48, and a few destinations of every kind that the text names.
import fc from 'fast-check';
import { type Address, type Family, parseAddress } from '../../src/cidr/address.ts';
import { type Cidr, cidrOf, parseCidr } from '../../src/cidr/cidr.ts';

/** The address of a text that is known to be one. */
export function address(text: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
}

/** The CIDR of a text that is known to be one. */
export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
}

type ByFamily<T> = { readonly [F in Family]: T };

export const POD_RANGE: ByFamily<Cidr> = { 4: cidr('10.244.0.0/16'), 6: cidr('fd00:10:244::/48') };

export const PODS: ByFamily<readonly Address[]> = {
  4: ['0.1', '0.2', '0.3', '0.129', '0.255', '1.0', '1.1', '1.200', '2.77', '128.1', '255.254'].map(end =>
    address(`10.244.${end}`),
  ),
  6: ['::1', '::2', '::3', '::ff', '::100', '::1:0:0:1', '::1:0:0:2', '::8000:0:0:1'].map(end =>
    address(`fd00:10:244${end}`),
  ),
};

export const NODES: ByFamily<readonly Address[]> = {
  4: ['192.168.1.10', '192.168.1.11', '192.168.1.12', '203.0.113.10', '10.244.2.77'].map(address),
  6: ['fd00:1::10', 'fd00:1::11', '2001:db8::10', 'fd00:10:244::100'].map(address),
};

/** Of every scope at least one, and some of none. */
export const OUTSIDE: ByFamily<readonly Address[]> = {
  4: (
    '8.8.8.8 192.168.1.1 172.16.0.1 10.1.2.3 169.254.169.254 100.64.0.1 192.0.0.9 192.0.2.9 192.88.99.1 ' +
    '198.18.0.1 198.51.100.7 203.0.113.5 203.0.113.130 240.0.0.9'
  )
    .split(' ')
    .map(address),
  6: ['2001:db8::1', '2001:db8::5', '2606:4700::1111', 'fc00::1', 'fd00:1::1', 'fe00::1'].map(address),
};

/** Destinations that no kernel test can send to as to any other. */
export const SPECIAL: ByFamily<readonly Address[]> = {
  4: ['224.0.0.5', '239.255.255.255', '255.255.255.255', '127.0.0.1', '0.0.0.0'].map(address),
  6: ['ff02::5', 'fe80::1', 'febf::1', '::1', '::'].map(address),
};

/** Every address that SNAT may name, by a policy or an annotation; not of pods. A world of packets gives them to its node. */
export const SNAT: ByFamily<readonly Address[]> = {
  4: ['198.51.100.200', '192.168.1.200', '198.51.100.201'].map(address),
  6: ['2001:db8::200', 'fd00:1::200', '2001:db8::201'].map(address),
};

export const INTERFACES = ['eth0', 'eth1'] as const;

/** Prefix lengths that nest, touch and stand apart in the small world. */
const PREFIXES: ByFamily<readonly number[]> = {
  4: [0, 1, 8, 9, 12, 16, 17, 23, 24, 25, 30, 31, 32],
  6: [0, 1, 7, 16, 32, 48, 49, 64, 120, 126, 127, 128],
};

export const family: fc.Arbitrary<Family> = fc.constantFrom(4, 6);

/** A CIDR around one of the addresses, at least as long as `atLeast` bits. */
const around = (f: Family, addresses: readonly Address[], atLeast: number): fc.Arbitrary<Cidr> =>
  fc
    .tuple(fc.constantFrom(...addresses), fc.constantFrom(...PREFIXES[f].filter(prefix => prefix >= atLeast)))
    .map(([inside, prefix]) => cidrOf(inside, prefix));

/** What an IPPool or a source block has: mostly pods, now and then something wide or of the outside. */
export const podCidr: fc.Arbitrary<Cidr> = family.chain(f =>
  fc.oneof(
    { weight: 6, arbitrary: around(f, PODS[f], f === 4 ? 16 : 48) },
    { weight: 1, arbitrary: around(f, PODS[f], 0) },
    { weight: 1, arbitrary: around(f, [...OUTSIDE[f], ...NODES[f]], f === 4 ? 16 : 32) },
  ),
);

/** What a destination has: anything. */
export const anyCidr: fc.Arbitrary<Cidr> = family.chain(f =>
  around(f, [...PODS[f], ...NODES[f], ...OUTSIDE[f], ...SPECIAL[f]], 0),
);

/** A CIDR with exceptions inside it, around addresses of the world. */
export const block = (
  outer: fc.Arbitrary<Cidr>,
): fc.Arbitrary<{ readonly cidr: Cidr; readonly except: readonly Cidr[] }> =>
  fc.tuple(outer, fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 3 })).map(([cidr, choices]) => {
    const f = cidr.family;
    const inside = [...PODS[f], ...NODES[f], ...OUTSIDE[f]].filter(
      a => cidrOf(a, cidr.prefix).base === cidr.base,
    );
    const prefixes = PREFIXES[f].filter(prefix => prefix >= cidr.prefix);
    const except = choices.map(([a, p]) =>
      cidrOf(
        inside[a % Math.max(1, inside.length)] ?? { family: f, value: cidr.base },
        prefixes[p % prefixes.length] ?? cidr.prefix,
      ),
    );
    return { cidr, except };
  });
