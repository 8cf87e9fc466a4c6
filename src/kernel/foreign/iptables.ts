// Reads the rules that `iptables -S` prints. The order of its words is the same in both backends (1.8.9): addresses,
// interfaces and protocol, then the matches with their options behind each -m, then the target with its options.
import type { Family } from '../../cidr/address.ts';
import {
  type Asked,
  addressesAsked,
  type Condition,
  type ForeignRule,
  type MarkChange,
  netmapOutcome,
  type Outcome,
  portRange,
  type Range,
  type Side,
  UNKNOWN_MARK,
  unknownCondition,
  valueOf,
} from './model.ts';
import { type PrintedLine, printedLines } from '../printed-lines.ts';
import { protocolNumbers } from './protocols.ts';

export interface PrintedChain {
  /** Only for built-in chains. */
  readonly policy?: 'accept' | 'drop';
  readonly lines: readonly PrintedLine[];
}

/** The chains of a listing, their rules not yet read. Throws a SyntaxError when the text cannot be what -S prints. */
export function readListing(text: string): ReadonlyMap<string, PrintedChain> {
  const chains = new Map<string, { policy?: 'accept' | 'drop'; lines: PrintedLine[] }>();
  for (const line of printedLines(text)) {
    const [verb, chain = '', policy] = line.words;
    if (verb === '-P') chains.set(chain, { policy: policy === 'ACCEPT' ? 'accept' : 'drop', lines: [] });
    else if (verb === '-N') chains.set(chain, { lines: [] });
    else if (verb === '-A' && chains.has(chain)) chains.get(chain)?.lines.push(line);
    else if (verb?.startsWith('#') !== true) throw new SyntaxError(`it holds a strange line: ${line.text}`);
  }
  return chains;
}

/** One option with what stands behind it. */
interface Option {
  readonly name: string;
  readonly negated: boolean;
  readonly values: readonly string[];
}

/** The words of a rule behind `-A CHAIN`, sorted: `module` is empty for the options before the first -m. */
interface Part {
  readonly module: string;
  readonly options: readonly Option[];
}

/** Reads one line of a chain, `-A CHAIN …`. Never throws: what is not understood is an unknown condition or outcome. */
export function readRule(line: PrintedLine, family: Family): ForeignRule {
  const { parts, verb, target, targetOptions } = sortWords(line.words.slice(2));
  const conditions = parts.flatMap(part => conditionsOf(part, family));
  const mark = markChangeOf(target, targetOptions);
  return {
    text: line.text,
    conditions,
    ...(mark === undefined ? {} : { mark }),
    outcome: outcomeOf(verb, target, targetOptions),
  };
}

function sortWords(words: readonly string[]) {
  const parts: Part[] = [];
  let at = 0;
  const isEnd = (word: string | undefined): boolean =>
    word === undefined || word === '-m' || word === '-j' || word === '-g';
  const readOptions = (): Option[] => {
    const options: Option[] = [];
    while (!isEnd(words[at])) {
      const negated = words[at] === '!';
      if (negated) at++;
      const name = words[at++] ?? '';
      const values: string[] = [];
      // A comment is printed without quotes when it is one plain word, which can look like an option.
      if (name === '--comment') values.push(words[at++] ?? '');
      else
        while (!isEnd(words[at]) && words[at] !== '!' && !isOption(words[at])) values.push(words[at++] ?? '');
      options.push({ name, negated, values });
    }
    return options;
  };
  parts.push({ module: '', options: readOptions() });
  while (words[at] === '-m') {
    const module = words[at + 1] ?? '';
    at += 2;
    parts.push({ module, options: readOptions() });
  }
  const verb = words[at];
  const target = words[at + 1];
  at += 2;
  const targetOptions: Option[] = [];
  while (at < words.length) {
    if (isEnd(words[at])) targetOptions.push({ name: words[at++] ?? '', negated: false, values: [] });
    else targetOptions.push(...readOptions());
  }
  return { parts, verb, target, targetOptions };
}

const isOption = (word: string | undefined): boolean => /^--?[a-z]/.test(word ?? '');

const textOf = (module: string, options: readonly Option[]): string =>
  [
    ...(module === '' ? [] : ['-m', module]),
    ...options.flatMap(({ name, negated, values }) => [...(negated ? ['!'] : []), name, ...values]),
  ].join(' ');

/** Options that change what the ones beside them mean: one interface's addresses alone, entries with nomatch. */
const NARROWING = /^addrtype --limit-iface|^set --(?!match-set)/;

function conditionsOf({ module, options }: Part, family: Family): readonly Condition[] {
  if (module === 'comment') return [];
  const narrowed = options.some(({ name }) => NARROWING.test(`${module} ${name}`));
  const conditions: Condition[] = [];
  const rest: Option[] = [];
  for (const option of options) {
    const asked = narrowed ? undefined : askedBy(module, option, family);
    if (asked === undefined) rest.push(option);
    else conditions.push({ ...asked, negated: option.negated, text: textOf(module, [option]) });
  }
  // A match alone, such as -m socket, asks too.
  const isAsking =
    rest.length > 0 || (options.length === 0 && module !== '' && protocolNumbers(module) === undefined);
  return isAsking ? [...conditions, unknownCondition(textOf(module, rest))] : conditions;
}

function askedBy(module: string, { name, values }: Option, family: Family): Asked | undefined {
  const [value = '', second] = values;
  switch (`${module} ${name}`) {
    case ' -s':
      return addressesAsked(value, 'source', family);
    case ' -d':
      return addressesAsked(value, 'destination', family);
    case ' -o':
      return { kind: 'outInterface', patterns: [value] };
    case ' -p': {
      const numbers = protocolNumbers(value);
      return numbers === undefined ? undefined : { kind: 'protocol', numbers };
    }
    case 'mark --mark':
      return markAsked(value);
    case 'set --match-set':
      return setAsked(value, second);
    case 'addrtype --src-type':
      return value === 'LOCAL' ? { kind: 'local', side: 'source' } : undefined;
    case 'addrtype --dst-type':
      return value === 'LOCAL' ? { kind: 'local', side: 'destination' } : undefined;
    case 'tcp --dport':
    case 'udp --dport':
    case 'sctp --dport':
    case 'multiport --dports':
      return portsAsked(value);
    case 'conntrack --ctstate':
    case 'state --state':
      return { kind: 'state', states: value.split(',') };
    case 'iprange --src-range':
      return betweenAsked(value, 'source', family);
    case 'iprange --dst-range':
      return betweenAsked(value, 'destination', family);
    default:
      return undefined;
  }
}

/** Reads `VALUE` or `VALUE/MASK`. */
function valueAndMask(text: string): { readonly value: number; readonly mask: number } | undefined {
  const found = /^(0x[0-9a-f]{1,8})(?:\/(0x[0-9a-f]{1,8}))?$/i.exec(text);
  return found === null ? undefined : { value: Number(found[1]), mask: Number(found[2] ?? 0xffffffff) };
}

function markAsked(text: string): Asked | undefined {
  const read = valueAndMask(text);
  return read === undefined ? undefined : { kind: 'mark', ...read };
}

function setAsked(name: string, flags: string | undefined): Asked | undefined {
  const sides = (flags ?? '').split(',').map((flag): Side | undefined => {
    if (flag === 'src') return 'source';
    return flag === 'dst' ? 'destination' : undefined;
  });
  // The name becomes an argument of ipset, which must not take it for an option.
  if (name === '' || name.startsWith('-') || !sides.every(side => side !== undefined)) return undefined;
  return { kind: 'set', set: { kind: 'ipset', name }, sides };
}

function portsAsked(text: string): Asked | undefined {
  const ranges = text.split(',').map((part): Range | undefined => {
    const found = /^(\d{1,5})(?::(\d{1,5}))?$/.exec(part);
    return found === null ? undefined : portRange(Number(found[1]), Number(found[2] ?? found[1]));
  });
  return ranges.every(range => range !== undefined) ? { kind: 'destinationPort', ranges } : undefined;
}

function betweenAsked(text: string, side: Side, family: Family): Asked | undefined {
  const [first, last] = text.split('-', 2).map(part => valueOf(part, family));
  return first === undefined || last === undefined
    ? undefined
    : { kind: 'addresses', side, ranges: [[first, last]] };
}

/** Targets after which the next rule is asked. */
const CONTINUING: ReadonlySet<string> = new Set(['MARK', 'CONNMARK', 'LOG', 'NFLOG', 'ULOG', 'TRACE', 'SET']);

function outcomeOf(
  verb: string | undefined,
  target: string | undefined,
  options: readonly Option[],
): Outcome {
  if (verb === undefined) return { kind: 'continue' };
  if (target === undefined) return { kind: 'unknown', what: `${verb} without a target` };
  if (verb === '-g') return { kind: 'goto', chain: target };
  const valueOfOption = (name: string): string | undefined =>
    options.find(option => option.name === name)?.values[0];
  if (CONTINUING.has(target)) return { kind: 'continue' };
  switch (target) {
    case 'ACCEPT':
      return { kind: 'accept' };
    case 'RETURN':
      return { kind: 'return' };
    case 'DROP':
      return { kind: 'drop' };
    case 'NOTRACK':
      return { kind: 'notrack' };
    case 'CT':
      return { kind: options.some(({ name }) => name === '--notrack') ? 'notrack' : 'continue' };
    case 'MASQUERADE':
      return { kind: 'masquerade' };
    case 'SNAT':
      return { kind: 'snat', to: valueOfOption('--to-source') };
    case 'NETMAP':
      return netmapOutcome(valueOfOption('--to') ?? '');
    default:
      // A chain, or a target of a name that is not known: whoever follows finds no such chain then.
      return { kind: 'jump', chain: target };
  }
}

function markChangeOf(target: string | undefined, options: readonly Option[]): MarkChange | undefined {
  const read = (name: string) => valueAndMask(options.find(option => option.name === name)?.values[0] ?? '');
  if (target === 'MARK') {
    const xmark = read('--set-xmark');
    return xmark === undefined ? UNKNOWN_MARK : { keep: ~xmark.mask >>> 0, flip: xmark.value, unknown: 0 };
  }
  if (target !== 'CONNMARK' || !options.some(({ name }) => name === '--restore-mark')) return undefined;
  const own = read('--nfmask')?.value ?? 0xffffffff;
  return { keep: ~own >>> 0, flip: 0, unknown: read('--ctmask')?.value ?? 0xffffffff };
}
