// Reads what nft's matches ask, and the one statement that changes what they see: the packet's mark.
import type { Family } from '../../cidr/address.ts';
import { expressionOf, isList, type Json, member, textOf } from './json.ts';
import {
  type Asked,
  addressesAsked,
  type Condition,
  type ForeignRule,
  type MarkChange,
  type NftFamily,
  portRange,
  type Range,
  rangeOf,
  type Side,
  UNKNOWN_MARK,
  unknownCondition,
  valueOf,
} from './model.ts';
import { protocolNumbers } from './protocols.ts';

export interface TableRef {
  readonly family: NftFamily;
  readonly table: string;
}

/** What of nft's names may stand in a command line of ours: nft joins its arguments and parses them. */
export const isPlainName = (name: string): boolean => /^[A-Za-z_][\w./-]*$/.test(name);

/** What an expression looks at, for people: `ip saddr`, `ct mark`, `limit`. */
export function wordsOf(expression: Json): string {
  const [kind, value] = expressionOf(expression);
  if (kind === 'match') return wordsOf(member(value, 'left') ?? null);
  if (kind === '&' && isList(value)) return wordsOf(value[0] ?? null);
  const field = member(value, 'key') ?? member(value, 'field');
  const protocol = member(value, 'protocol');
  const head = typeof protocol === 'string' ? protocol : kind;
  return typeof field === 'string' ? `${head} ${field}` : head;
}

/** A match as conditions; one unknown condition when it is not understood. */
export function readMatch(match: Json, table: TableRef): readonly Condition[] {
  const left = member(match, 'left') ?? null;
  const right = member(match, 'right') ?? null;
  const op = member(match, 'op');
  const text = wordsOf(left);
  const asked = op === '==' || op === '!=' || op === 'in' ? askedBy(left, right, op, table) : undefined;
  if (asked === undefined) return [unknownCondition(text)];
  const [last, ...implied] = asked;
  // A field of a protocol's header also asks for the protocol, whatever is asked of the field.
  return [
    ...implied.map(each => ({ ...each, negated: false, text })),
    { ...last, negated: op === '!=', text },
  ];
}

/** What is asked, and behind it what is implied by asking. */
type AskedFirst = readonly [Asked, ...Asked[]];

function askedBy(left: Json, right: Json, op: string, table: TableRef): AskedFirst | undefined {
  const [kind, value] = expressionOf(left);
  if (kind === 'ct') return only(stateAsked(value, right));
  // Of other fields than conntrack's, `in` asks for single bits.
  if (op === 'in') return undefined;
  switch (kind) {
    case 'payload':
      return payloadAsked(textOf(value, 'protocol'), textOf(value, 'field'), right, table);
    case 'meta':
      return only(metaAsked(textOf(value, 'key'), right));
    case '&':
      return isList(value) ? maskedAsked(value[0] ?? null, value[1], right) : undefined;
    case 'fib':
      return only(fibAsked(value, right));
    default:
      return undefined;
  }
}

const only = (asked: Asked | undefined): AskedFirst | undefined =>
  asked === undefined ? undefined : [asked];

const FAMILY_OF: ReadonlyMap<string, Family> = new Map([
  ['ip', 4],
  ['ip6', 6],
]);

const SIDE_OF: ReadonlyMap<string, Side> = new Map([
  ['saddr', 'source'],
  ['daddr', 'destination'],
]);

function payloadAsked(protocol: string, field: string, right: Json, table: TableRef): AskedFirst | undefined {
  const family = FAMILY_OF.get(protocol);
  const side = SIDE_OF.get(field);
  if (family !== undefined && side !== undefined) {
    const asked = addressAsked(side, right, family, table);
    return asked === undefined ? undefined : [asked, { kind: 'family', family }];
  }
  if (protocol === 'ip' && field === 'protocol') {
    const asked = protocolAsked(right);
    return asked === undefined ? undefined : [asked, { kind: 'family', family: 4 }];
  }
  if (field !== 'dport') return undefined;
  const ranges = all(itemsOf(right).map(portsOf));
  if (ranges === undefined) return undefined;
  const asked: Asked = { kind: 'destinationPort', ranges };
  if (protocol === 'th') return [asked];
  const numbers = protocolNumbers(protocol);
  return numbers === undefined ? undefined : [asked, { kind: 'protocol', numbers }];
}

function addressAsked(side: Side, right: Json, family: Family, table: TableRef): Asked | undefined {
  if (typeof right === 'string' && right.startsWith('@')) {
    const name = right.slice(1);
    if (!isPlainName(name) || !isPlainName(table.table)) return undefined;
    return {
      kind: 'set',
      set: { kind: 'nft', family: table.family, table: table.table, name },
      sides: [side],
    };
  }
  const ranges = all(itemsOf(right).map(item => addressesOf(item, family)));
  return ranges === undefined ? undefined : { kind: 'addresses', side, ranges };
}

/** A match asks for one value, a list of them, or an anonymous set. */
function itemsOf(right: Json): readonly Json[] {
  const set = member(right, 'set') ?? right;
  return isList(set) ? set : [set];
}

const all = <T>(values: readonly (T | undefined)[]): readonly T[] | undefined =>
  values.every(value => value !== undefined) ? values : undefined;

function addressesOf(item: Json, family: Family): Range | undefined {
  if (typeof item === 'string') return rangeOf(item, family);
  const [kind, value] = expressionOf(item);
  if (kind === 'prefix') return rangeOf(`${textOf(value, 'addr')}/${textOf(value, 'len')}`, family);
  if (kind !== 'range' || !isList(value)) return undefined;
  const [first, last] = value.map(end => (typeof end === 'string' ? valueOf(end, family) : undefined));
  return first === undefined || last === undefined ? undefined : [first, last];
}

function portsOf(item: Json): Range | undefined {
  if (typeof item === 'number') return portRange(item, item);
  const range = member(item, 'range');
  if (!isList(range)) return undefined;
  const [first, last] = range;
  return typeof first === 'number' && typeof last === 'number' ? portRange(first, last) : undefined;
}

function protocolAsked(right: Json): Asked | undefined {
  const numbers = all(
    itemsOf(right).map(item =>
      typeof item === 'string' || typeof item === 'number' ? protocolNumbers(item) : undefined,
    ),
  );
  return numbers === undefined ? undefined : { kind: 'protocol', numbers: numbers.flat() };
}

function metaAsked(key: string, right: Json): Asked | undefined {
  switch (key) {
    case 'mark':
      return typeof right === 'number' ? { kind: 'mark', value: right, mask: 0xffffffff } : undefined;
    case 'l4proto':
      return protocolAsked(right);
    case 'nfproto':
      return right === 'ipv4' || right === 'ipv6'
        ? { kind: 'family', family: right === 'ipv4' ? 4 : 6 }
        : undefined;
    case 'oif':
    case 'oifname': {
      const names = all(itemsOf(right).map(item => (typeof item === 'string' ? item : undefined)));
      // nft's wildcard is a trailing *, iptables' is a +, and a name may end in the other's.
      if (names === undefined || names.some(name => name.endsWith('+'))) return undefined;
      return { kind: 'outInterface', patterns: names.map(name => name.replace(/\*$/, '+')) };
    }
    default:
      return undefined;
  }
}

function maskedAsked(left: Json, mask: Json | undefined, right: Json): AskedFirst | undefined {
  const [kind, value] = expressionOf(left);
  if (kind === 'meta' && member(value, 'key') === 'mark') {
    return typeof mask === 'number' && typeof right === 'number'
      ? [{ kind: 'mark', value: right, mask }]
      : undefined;
  }
  const family = FAMILY_OF.get(textOf(value, 'protocol'));
  const side = SIDE_OF.get(textOf(value, 'field'));
  if (kind !== 'payload' || family === undefined || side === undefined) return undefined;
  if (typeof mask !== 'string' || typeof right !== 'string') return undefined;
  const asked = addressesAsked(`${right}/${mask}`, side, family);
  return asked === undefined ? undefined : [asked, { kind: 'family', family }];
}

/** Other flags beside the address (an interface, the mark) narrow or steer the look-up. */
function fibAsked(value: Json, right: Json): Asked | undefined {
  const flags = member(value, 'flags');
  const [flag, more] = isList(flags) ? flags : [flags];
  const side = SIDE_OF.get(typeof flag === 'string' ? flag : '');
  if (member(value, 'result') !== 'type' || right !== 'local' || side === undefined || more !== undefined) {
    return undefined;
  }
  return { kind: 'local', side };
}

function stateAsked(value: Json, right: Json): Asked | undefined {
  const states = all(itemsOf(right).map(item => (typeof item === 'string' ? item.toUpperCase() : undefined)));
  return member(value, 'key') === 'state' && states !== undefined ? { kind: 'state', states } : undefined;
}

/** `meta mark set …`: other things that a rule may set (ct mark, a priority) are not asked by what we understand. */
export function readMangle(mangle: Json): Pick<ForeignRule, 'mark'> | Record<string, never> {
  return isMark(member(mangle, 'key')) ? { mark: markChange(member(mangle, 'value')) } : {};
}

const isMark = (value: Json | undefined): boolean => {
  const [kind, inner] = expressionOf(value);
  return kind === 'meta' && member(inner, 'key') === 'mark';
};

/** Reads a number, or the mark and numbers joined by & | ^. */
function markChange(value: Json | undefined): MarkChange {
  if (typeof value === 'number') return { keep: 0, flip: value, unknown: 0 };
  if (isMark(value)) return { keep: 0xffffffff, flip: 0, unknown: 0 };
  const [op, operands] = expressionOf(value);
  const [left, number] = isList(operands) ? operands : [];
  if (typeof number !== 'number') return UNKNOWN_MARK;
  const { keep, flip, unknown } = markChange(left);
  switch (op) {
    case '&':
      return { keep: (keep & number) >>> 0, flip: (flip & number) >>> 0, unknown: (unknown & number) >>> 0 };
    case '|':
      return {
        keep: (keep & ~number) >>> 0,
        flip: (flip | number) >>> 0,
        unknown: (unknown & ~number) >>> 0,
      };
    case '^':
      return { keep, flip: (flip ^ number) >>> 0, unknown };
    default:
      return UNKNOWN_MARK;
  }
}
