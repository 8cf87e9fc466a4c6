// Addresses as numbers. Everything that is given to ipset or iptables is parsed here first and printed again from
// the numbers: both tools read 010.0.0.0 as octal and look names up in DNS (seen with ipset 7.17).
import ipaddr from 'ipaddr.js';

export type Family = 4 | 6;

export const FAMILIES: readonly Family[] = [4, 6];

export interface Address {
  readonly family: Family;
  /** The address as an unsigned number of 32 or 128 bits. */
  readonly value: bigint;
}

export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly reason: string };

export const bitsOf = (family: Family): number => (family === 4 ? 32 : 128);

const MAPPED_PREFIX = 0xffffn;

/**
 * Parses one address, strictly: IPv4 as four decimal parts without leading zeros, IPv6 in hexadecimal, without
 * a zone id, outside ::ffff:0:0/96. Never throws; the reason is a phrase that follows the value in a message.
 */
export function parseAddress(text: unknown): Parsed<Address> {
  if (typeof text !== 'string') return { ok: false, reason: 'is not a string' };
  if (text.includes(':')) return parseIPv6(text);
  if (!/^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(text))
    return { ok: false, reason: 'is not an IP address' };
  if (!ipaddr.IPv4.isValidFourPartDecimal(text)) {
    return { ok: false, reason: 'is not an IPv4 address (four numbers of 0 to 255 without leading zeros)' };
  }
  const [a, b, c, d] = ipaddr.IPv4.parse(text).octets as [number, number, number, number];
  return { ok: true, value: { family: 4, value: BigInt(((a << 24) | (b << 16) | (c << 8) | d) >>> 0) } };
}

function parseIPv6(text: string): Parsed<Address> {
  if (text.includes('%')) return { ok: false, reason: 'has a zone id, which no rule can hold' };
  // The library reads ::1.2.3.4 as ::ffff:1.2.3.4 and takes leading zeros in such a tail.
  if (text.includes('.')) return { ok: false, reason: 'holds a dotted IPv4 part; write it in hexadecimal' };
  if (!ipaddr.IPv6.isValid(text)) return { ok: false, reason: 'is not an IPv6 address' };
  let value = 0n;
  for (const part of ipaddr.IPv6.parse(text).parts) value = (value << 16n) | BigInt(part);
  if (value >> 32n === MAPPED_PREFIX) {
    return { ok: false, reason: 'is an IPv4-mapped IPv6 address; write it as IPv4' };
  }
  return { ok: true, value: { family: 6, value } };
}

/** Prints an address in its canonical form (RFC 5952 for IPv6). */
export function formatAddress(address: Address): string {
  const v = address.value;
  if (address.family === 4) {
    const n = Number(v);
    return `${n >>> 24}.${(n >>> 16) & 255}.${(n >>> 8) & 255}.${n & 255}`;
  }
  const parts: number[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) parts.push(Number((v >> shift) & 0xffffn));
  return new ipaddr.IPv6(parts).toRFC5952String();
}

export const sameAddress = (a: Address, b: Address): boolean => a.family === b.family && a.value === b.value;
