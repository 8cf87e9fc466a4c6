// The nat rules of this kernel as data, whoever wrote them and in whichever of the kernel's three languages: what
// foreign-iptables.ts and foreign-nft.ts read, and foreign.ts judges. What is not understood is kept as `unknown`
// with its text, never guessed.
import { bitsOf, type Family, parseAddress } from '../../cidr/address.ts';
import { parseCidr, sizeOf } from '../../cidr/cidr.ts';
import type { Packet } from '../../planner/packet.ts';

export type Side = 'source' | 'destination';

/** Inclusive. Addresses and ports alike. */
export type Range = readonly [first: bigint, last: bigint];

export type SetRef =
  | { readonly kind: 'ipset'; readonly name: string }
  | { readonly kind: 'nft'; readonly family: NftFamily; readonly table: string; readonly name: string };

export type NftFamily = 'ip' | 'ip6' | 'inet';

/** One thing that a rule asks of a packet. A rule matches when all of its conditions do. */
export type Condition = {
  /** As printed. */
  readonly text: string;
  readonly negated: boolean;
} & Asked;

export type Asked =
  | { readonly kind: 'family'; readonly family: Family }
  | { readonly kind: 'addresses'; readonly side: Side; readonly ranges: readonly Range[] }
  /** A mask that is not a prefix. */
  | { readonly kind: 'masked'; readonly side: Side; readonly value: bigint; readonly mask: bigint }
  /** IANA's numbers. */
  | { readonly kind: 'protocol'; readonly numbers: readonly number[] }
  /** Names, or prefixes with a trailing +. */
  | { readonly kind: 'outInterface'; readonly patterns: readonly string[] }
  | { readonly kind: 'mark'; readonly value: number; readonly mask: number }
  /** More than one side for sets of more than one dimension. */
  | { readonly kind: 'set'; readonly set: SetRef; readonly sides: readonly Side[] }
  /** Whether the address is one of this host's own. */
  | { readonly kind: 'local'; readonly side: Side }
  | { readonly kind: 'destinationPort'; readonly ranges: readonly Range[] }
  /** The states of conntrack, in capitals. */
  | { readonly kind: 'state'; readonly states: readonly string[] }
  | { readonly kind: 'unknown' };

/** mark = (mark & keep) ^ flip; the bits of `unknown` are not known afterwards. */
export interface MarkChange {
  readonly keep: number;
  readonly flip: number;
  readonly unknown: number;
}

export const UNKNOWN_MARK: MarkChange = { keep: 0, flip: 0, unknown: 0xffffffff };

export type Outcome =
  | { readonly kind: 'continue' | 'return' | 'accept' | 'drop' | 'masquerade' | 'notrack' }
  | { readonly kind: 'jump' | 'goto'; readonly chain: string }
  /** `to` as printed: addresses, maybe with ports; undefined when it depends on a map. */
  | { readonly kind: 'snat'; readonly to: string | undefined }
  /** The source's leading bits become those of the network; a prefix of 0 keeps the source. */
  | { readonly kind: 'netmap'; readonly network: bigint; readonly prefix: number }
  | { readonly kind: 'unknown'; readonly what: string };

export interface ForeignRule {
  /** As printed. */
  readonly text: string;
  readonly conditions: readonly Condition[];
  /** Made when the conditions match, before the outcome. */
  readonly mark?: MarkChange;
  readonly outcome: Outcome;
}

/** A chain of type nat at hook postrouting, with the chains that it reaches. */
export interface BaseChain {
  /** How its rules were read. */
  readonly readBy: 'iptables-nft' | 'iptables-legacy' | 'nft';
  /** For people: `iptables-nft nat POSTROUTING`, `nft ip calico nat-POSTROUTING`. */
  readonly place: string;
  readonly name: string;
  readonly priority: number;
  /** The kernel's number of the chain in its table; absent for iptables-legacy. */
  readonly nft?: { readonly family: NftFamily; readonly table: string; readonly handle: number };
  /** What happens to a packet that comes through. */
  readonly policy: 'accept' | 'drop';
  /** By name, with the base chain itself. A chain that a rule leads to and that is not here could not be read. */
  readonly chains: ReadonlyMap<string, readonly ForeignRule[]>;
}

export interface NatRules {
  readonly family: Family;
  /** Sorted by priority; foreign-order.ts says what is known of the order of equal ones. */
  readonly hooks: readonly BaseChain[];
  /** One sentence for each thing that could not be read, so that nothing is known of it. */
  readonly gaps: readonly string[];
}

export const unknownCondition = (text: string): Condition => ({ kind: 'unknown', negated: false, text });

/** Reads `ADDRESS` or `ADDRESS/PREFIX`; undefined when it is anything else or of the other family. */
export function rangeOf(text: string, family: Family): Range | undefined {
  const parsed = parseCidr(text, { plainAddress: true, hostBits: 'clear' });
  if (!parsed.ok || parsed.value.family !== family) return undefined;
  return [parsed.value.base, parsed.value.base + sizeOf(parsed.value) - 1n];
}

/** Reads `ADDRESS/PREFIX` or `ADDRESS/MASK` as it stands behind -s and -d. */
export function addressesAsked(text: string, side: Side, family: Family): Asked | undefined {
  const range = rangeOf(text, family);
  if (range !== undefined) return { kind: 'addresses', side, ranges: [range] };
  const [address = '', mask = ''] = text.split('/', 2);
  const value = valueOf(address, family);
  const bits = valueOf(mask, family);
  return value === undefined || bits === undefined
    ? undefined
    : { kind: 'masked', side, value: value & bits, mask: bits };
}

export function valueOf(text: string, family: Family): bigint | undefined {
  const parsed = parseAddress(text);
  return parsed.ok && parsed.value.family === family ? parsed.value.value : undefined;
}

/** Reads the network behind NETMAP --to. */
export function netmapOutcome(text: string): Outcome {
  const parsed = parseCidr(text, { plainAddress: true, hostBits: 'clear' });
  return parsed.ok
    ? { kind: 'netmap', network: parsed.value.base, prefix: parsed.value.prefix }
    : { kind: 'unknown', what: `NETMAP --to ${text}` };
}

export const portRange = (first: number, last: number): Range => [BigInt(first), BigInt(last)];

export const inRanges = (ranges: readonly Range[], value: bigint): boolean =>
  ranges.some(([first, last]) => value >= first && value <= last);

/** What is judged in one go: one packet, or all packets whose addresses are in these ranges. */
export interface Traffic extends Pick<Packet, 'protocol' | 'destinationPort' | 'outInterface' | 'mark'> {
  readonly family: Family;
  /** At least one range each. */
  readonly source: readonly Range[];
  readonly destination: readonly Range[];
  /** Packets may have any mark. */
  readonly anyMark?: true;
}

export const trafficOf = ({ source, destination, ...rest }: Packet): Traffic => ({
  ...rest,
  family: source.family,
  source: [[source.value, source.value]],
  destination: [[destination.value, destination.value]],
});

export const everyAddress = (family: Family): readonly Range[] => [[0n, (1n << BigInt(bitsOf(family))) - 1n]];

/** Whether all of the ranges' addresses are in the others: undefined when some are and some are not. */
export function allIn(ranges: readonly Range[], others: readonly Range[]): boolean | undefined {
  if (ranges.every(([first, last]) => others.some(([from, to]) => from <= first && last <= to))) return true;
  return ranges.some(([first, last]) => others.some(([from, to]) => from <= last && first <= to))
    ? undefined
    : false;
}

/** The one value of the ranges; undefined when there are several. */
export function onlyValue([range, ...others]: readonly Range[]): bigint | undefined {
  return range !== undefined && others.length === 0 && range[0] === range[1] ? range[0] : undefined;
}
