// A reading of ipset and iptables text as the kernel would act on it, for exactly the syntax that we write; anything
// else is an error. With it, thousands of random plans can be checked without a kernel. test/kernel/ checks that the
// real kernel reads the same text the same way.
import type { Address } from '../../src/cidr/address.ts';
import { type Cidr, containsAddress, parseCidr } from '../../src/cidr/cidr.ts';
import type { Packet } from '../../src/planner/packet.ts';

interface Rule {
  readonly tests: ((packet: Packet, host: Host) => boolean)[];
  readonly target: string;
  readonly options: ReadonlyMap<string, string>;
}

export interface Host {
  readonly localAddresses: readonly { readonly interface: string; readonly address: Address }[];
}

export interface Fate {
  readonly target: 'MASQUERADE' | 'SNAT' | 'NETMAP' | null;
  /** The text behind --to-source. */
  readonly toSource?: string;
  readonly toPorts?: string;
}

type Sets = ReadonlyMap<string, readonly { cidr: Cidr; nomatch: boolean }[]>;

const PROTOCOLS: ReadonlyMap<string, string> = new Map([
  ['tcp', 'TCP'],
  ['udp', 'UDP'],
  ['sctp', 'SCTP'],
  ['icmp', 'ICMP'],
  ['ipv6-icmp', 'ICMP'],
]);

/** Parses both texts of one family. */
export function readTables(ipsetText: string, iptablesText: string): (packet: Packet, host: Host) => Fate {
  const sets = readSets(ipsetText);
  const chains = new Map<string, Rule[]>([['POSTROUTING', []]]);
  for (const line of iptablesText.split('\n')) {
    if (line === '' || line === '*nat' || line === 'COMMIT') continue;
    const declared = /^:(\S+) - \[0:0\]$/.exec(line);
    if (declared !== null) {
      chains.set(declared[1] as string, []);
      continue;
    }
    const words = line.match(/"[^"]*"|\S+/g) ?? [];
    const rules = chains.get(words[1] ?? '');
    if (rules === undefined) throw new Error(`line for an unknown chain: ${line}`);
    const rule = readRule(words.slice(words[0] === '-I' ? 3 : 2), sets);
    if (words[0] === '-A') rules.push(rule);
    else if (words[0] === '-I') rules.unshift(rule);
    else throw new Error(`unknown verb: ${line}`);
  }
  return (packet, host) => walk('POSTROUTING', chains, packet, host) ?? { target: null };
}

function readSets(text: string): Sets {
  const sets = new Map<string, { cidr: Cidr; nomatch: boolean }[]>();
  for (const line of text.split('\n').filter(part => part !== '')) {
    const [verb, name = '', value = '', flag] = line.split(' ');
    if (verb === 'create') sets.set(name, []);
    else if (verb === 'add') {
      const cidr = parseCidr(value);
      if (!cidr.ok || cidr.value.prefix === 0) throw new Error(`hash:net cannot hold ${value}`);
      sets.get(name)?.push({ cidr: cidr.value, nomatch: flag === 'nomatch' });
    } else throw new Error(`unknown ipset line: ${line}`);
  }
  return sets;
}

function inSet(sets: Sets, name: string, address: Address): boolean {
  const entries = sets.get(name);
  if (entries === undefined) throw new Error(`set ${name} does not exist`);
  let longest: { cidr: Cidr; nomatch: boolean } | undefined;
  for (const entry of entries) {
    if (!containsAddress(entry.cidr, address)) continue;
    if (longest === undefined || entry.cidr.prefix > longest.cidr.prefix) longest = entry;
  }
  return longest !== undefined && !longest.nomatch;
}

function readRule(words: readonly string[], sets: Sets): Rule {
  const tests: Rule['tests'] = [];
  const options = new Map<string, string>();
  let target = '';
  const queue = [...words];
  let negated = false;
  const next = (): string => {
    const word = queue.shift();
    if (word === undefined) throw new Error(`rule ends too early: ${words.join(' ')}`);
    return word;
  };
  while (queue.length > 0) {
    const word = next();
    if (word === '-m' && queue[0] === 'set' && queue[1] === '!') {
      queue.splice(0, 2);
      negated = true;
    } else if (word === '-m') next();
    else if (word === '!') negated = true;
    else if (word === '--comment') next();
    else if (word === '-j') target = next();
    else if (['--random', '--random-fully'].includes(word)) options.set(word, '');
    else if (['--to', '--to-source', '--to-ports'].includes(word)) options.set(word, next());
    else {
      const want = !negated;
      negated = false;
      const test = readTest(word, next, sets, queue);
      tests.push((packet, host) => test(packet, host) === want);
    }
  }
  return { tests, target, options };
}

function readTest(word: string, next: () => string, sets: Sets, queue: string[]): Rule['tests'][number] {
  if (word === '--match-set') {
    const name = next();
    const direction = next();
    return packet => inSet(sets, name, direction === 'src' ? packet.source : packet.destination);
  }
  if (word === '--mark') {
    const [value = 0, mask = 0] = next().split('/').map(Number);
    return packet => ((packet.mark ?? 0) & mask) >>> 0 === value;
  }
  if (word === '-o') {
    const name = next();
    return ({ outInterface = '' }) =>
      name.endsWith('+') ? outInterface.startsWith(name.slice(0, -1)) : outInterface === name;
  }
  if (word === '-p') {
    const protocol = PROTOCOLS.get(next());
    return packet => packet.protocol === protocol;
  }
  if (word === '--dports') {
    const ranges = next()
      .split(',')
      .map(part => part.split(':').map(Number));
    if (ranges.reduce((sum, range) => sum + range.length, 0) > 15)
      throw new Error('multiport takes 15 ports');
    return ({ destinationPort = -1 }) =>
      ranges.some(([start = 0, end = start]) => destinationPort >= start && destinationPort <= end);
  }
  if (word === '--src-type') {
    next();
    const limited = queue[0] === '--limit-iface-out';
    if (limited) queue.shift();
    return (packet, host) =>
      host.localAddresses.some(
        local =>
          local.address.family === packet.source.family &&
          local.address.value === packet.source.value &&
          (!limited || local.interface === packet.outInterface),
      );
  }
  throw new Error(`unknown match ${word}`);
}

function walk(
  name: string,
  chains: ReadonlyMap<string, readonly Rule[]>,
  packet: Packet,
  host: Host,
): Fate | undefined {
  const rules = chains.get(name);
  if (rules === undefined) throw new Error(`chain ${name} does not exist`);
  for (const rule of rules) {
    if (!rule.tests.every(test => test(packet, host))) continue;
    if (rule.target === 'RETURN') return undefined;
    if (['MASQUERADE', 'SNAT', 'NETMAP'].includes(rule.target)) {
      const toSource = rule.options.get('--to-source');
      const toPorts = rule.options.get('--to-ports');
      return {
        target: rule.target as 'MASQUERADE' | 'SNAT' | 'NETMAP',
        ...(toSource === undefined ? {} : { toSource }),
        ...(toPorts === undefined ? {} : { toPorts }),
      };
    }
    const fate = walk(rule.target, chains, packet, host);
    if (fate !== undefined) return fate;
  }
  return undefined;
}
