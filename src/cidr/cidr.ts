// CIDRs as numbers: one strict parser, one printer, containment and order.
import { type Address, bitsOf, type Family, formatAddress, type Parsed, parseAddress } from './address.ts';

export interface Cidr {
  readonly family: Family;
  /** The lowest address; bits below the prefix are zero. */
  readonly base: bigint;
  readonly prefix: number;
}

export interface CidrOptions {
  /** What host bits below the prefix get: an error, or to be cleared as Calico clears them. Default refuse. */
  readonly hostBits?: 'refuse' | 'clear';
  /** Whether a plain address is read as a CIDR of full length. Default false. */
  readonly plainAddress?: boolean;
}

/**
 * Parses one CIDR, strictly (see parseAddress). Never throws; the reason is a phrase that follows the value in a
 * message and says what would be right where that is known.
 */
export function parseCidr(text: unknown, options: CidrOptions = {}): Parsed<Cidr> {
  if (typeof text !== 'string') return { ok: false, reason: 'is not a string' };
  const slash = text.indexOf('/');
  if (slash < 0 && !options.plainAddress) return { ok: false, reason: 'is not a CIDR: it has no /prefix' };
  const address = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (!address.ok) return address;
  const bits = bitsOf(address.value.family);
  const prefix = slash < 0 ? bits : parsePrefix(text.slice(slash + 1), bits);
  if (prefix === undefined) return { ok: false, reason: `has a prefix that is not a number of 0 to ${bits}` };
  const cidr = cidrOf(address.value, prefix);
  if (cidr.base !== address.value.value && options.hostBits !== 'clear') {
    return { ok: false, reason: `has bits below its prefix; the network is ${formatCidr(cidr)}` };
  }
  return { ok: true, value: cidr };
}

function parsePrefix(text: string, bits: number): number | undefined {
  if (!/^(0|[1-9]\d{0,2})$/.test(text)) return undefined;
  const prefix = Number(text);
  return prefix <= bits ? prefix : undefined;
}

/** The CIDR of the given prefix length (0 to 32 or 128) that holds the address. */
export function cidrOf(address: Address, prefix: number): Cidr {
  const shift = BigInt(bitsOf(address.family) - prefix);
  return { family: address.family, base: (address.value >> shift) << shift, prefix };
}

/** Prints a CIDR in canonical form, always with its prefix. */
export const formatCidr = (cidr: Cidr): string =>
  `${formatAddress({ family: cidr.family, value: cidr.base })}/${cidr.prefix}`;

/** Whether every address of inner is in outer. CIDRs of two families never contain each other. */
export function containsCidr(outer: Cidr, inner: Cidr): boolean {
  if (outer.family !== inner.family || outer.prefix > inner.prefix) return false;
  const shift = BigInt(bitsOf(outer.family) - outer.prefix);
  return outer.base >> shift === inner.base >> shift;
}

export const containsAddress = (cidr: Cidr, address: Address): boolean =>
  containsCidr(cidr, { family: address.family, base: address.value, prefix: bitsOf(address.family) });

export const sameCidr = (a: Cidr, b: Cidr): boolean =>
  a.family === b.family && a.base === b.base && a.prefix === b.prefix;

/** Sort order: family, then base, then shorter prefixes first, so that a CIDR comes before what it contains. */
export function compareCidrs(a: Cidr, b: Cidr): number {
  if (a.family !== b.family) return a.family - b.family;
  if (a.base !== b.base) return a.base < b.base ? -1 : 1;
  return a.prefix - b.prefix;
}

/** How many addresses the CIDR holds. */
export const sizeOf = (cidr: Cidr): bigint => 1n << BigInt(bitsOf(cidr.family) - cidr.prefix);

/** The two halves of a CIDR. hash:net cannot hold a /0, so that one is stored as its halves. */
export function halves(cidr: Cidr): readonly [Cidr, Cidr] {
  const prefix = cidr.prefix + 1;
  const step = 1n << BigInt(bitsOf(cidr.family) - prefix);
  return [
    { family: cidr.family, base: cidr.base, prefix },
    { family: cidr.family, base: cidr.base + step, prefix },
  ];
}
