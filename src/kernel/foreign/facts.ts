// Asks the kernel what rules of others ask about one packet: whether it is in their sets, and which addresses are
// this host's. One look-up for each set, never the set itself: sets of others can be large.
import { type Address, type Family, formatAddress } from '../../cidr/address.ts';
import type { Packet } from '../../planner/packet.ts';
import { type Clock, systemClock } from '../clock.ts';
import type { Exec } from '../exec.ts';
import { type ForeignFacts, matchCondition, membershipKey, NO_FACTS } from './match.ts';
import {
  type Condition,
  type NatRules,
  type Range,
  rangeOf,
  type SetRef,
  type Side,
  trafficOf,
} from './model.ts';
import { hasProtocol } from './protocols.ts';
import { type RunContext, runContext, tryTool } from '../run.ts';

/**
 * The facts that the rules ask for about this packet. What the kernel does not tell is left out, and so unknown.
 * Rejects only when the signal aborts.
 */
export async function readForeignFacts(
  exec: Exec,
  rules: NatRules,
  packet: Packet,
  signal?: AbortSignal,
  clock: Clock = systemClock,
): Promise<ForeignFacts> {
  const context = runContext({ exec, clock, lockWaitMs: 0, signal });
  const asked = askedConditions(rules, packet);
  const sets = new Map<string, boolean>();
  const types = new Map<string, SetType | undefined>();
  for (const condition of asked) {
    if (condition.kind !== 'set') continue;
    const { set, sides } = condition;
    const key = membershipKey(set, sides);
    if (sets.has(key)) continue;
    const isIn =
      set.kind === 'ipset'
        ? await isInIpset(context, set.name, sides, packet, types)
        : await isInNftSet(context, set, sides, packet);
    if (isIn !== undefined) sets.set(key, isIn);
  }
  const local = asked.some(({ kind }) => kind === 'local')
    ? await readLocal(context, rules.family)
    : undefined;
  return { sets, ...(local === undefined ? {} : { local }) };
}

/** What rules ask that could still match the packet by what is known without the kernel. */
function askedConditions(rules: NatRules, packet: Packet): readonly Condition[] {
  const traffic = trafficOf(packet);
  // A mark may be changed on the way, so none is taken for granted here.
  const anyMark = { value: 0, unknown: 0xffffffff };
  return rules.hooks
    .flatMap(hook => [...hook.chains.values()].flat())
    .filter(({ conditions }) =>
      conditions.every(condition => matchCondition(condition, traffic, anyMark, NO_FACTS).answer !== 'no'),
    )
    .flatMap(({ conditions }) => conditions);
}

interface SetType {
  /** The parts of an element: ip, net, port … */
  readonly dimensions: readonly string[];
  readonly family: Family;
}

/** undefined: not known. */
async function isInIpset(
  context: RunContext,
  name: string,
  sides: readonly Side[],
  packet: Packet,
  types: Map<string, SetType | undefined>,
): Promise<boolean | undefined> {
  if (!types.has(name)) types.set(name, await readSetType(context, name));
  const type = types.get(name);
  if (type === undefined) return undefined;
  // A set of the other family is asked by the kernel, and holds nothing of this one.
  if (type.family !== packet.source.family) return false;
  const element = elementOf(type.dimensions, sides, packet);
  if (element === undefined) return undefined;
  const outcome = await tryTool(context, 'ipset', ['test', name, element]);
  if (outcome.ok) return true;
  // Exit code 1 is also that of every error.
  return / is NOT in set /.test(outcome.error.stderr) ? false : undefined;
}

/** From the set's header. ipset 7.17 says "is NOT in set" of an address in a set of sets, so the type is looked at. */
async function readSetType(context: RunContext, name: string): Promise<SetType | undefined> {
  const outcome = await tryTool(context, 'ipset', ['list', '-t', name]);
  if (!outcome.ok) return undefined;
  const type = /^Type: (?:hash|bitmap):(\S+)$/m.exec(outcome.stdout)?.[1];
  const family = /^Header: .*\bfamily inet6\b/m.test(outcome.stdout) ? 6 : 4;
  return type === undefined ? undefined : { dimensions: type.split(','), family };
}

/** The packet as an element of a set; undefined when a part of it is not known or not understood. */
function elementOf(
  dimensions: readonly string[],
  sides: readonly Side[],
  packet: Packet,
): string | undefined {
  const parts = dimensions.map((dimension, i) => {
    const side = sides[i];
    if (side === undefined) return undefined;
    if (dimension === 'ip' || dimension === 'net') return formatAddress(packet[side]);
    return dimension === 'port' && side === 'destination' ? portElement(packet) : undefined;
  });
  return parts.every(part => part !== undefined) ? parts.join() : undefined;
}

function portElement(packet: Packet): string | undefined {
  const known = [6, 17, 132].find(number => hasProtocol(trafficOf(packet), [number]) === true);
  return known === undefined || packet.destinationPort === undefined
    ? undefined
    : `${known}:${packet.destinationPort}`;
}

async function isInNftSet(
  context: RunContext,
  set: SetRef & { kind: 'nft' },
  sides: readonly Side[],
  packet: Packet,
): Promise<boolean | undefined> {
  const element = sides.map(side => formatAddress(packet[side])).join(' . ');
  const args = ['get', 'element', set.family, set.table, set.name, '{', element, '}'];
  const outcome = await tryTool(context, 'nft', args);
  if (outcome.ok) return true;
  // The kernel's answer for an element; a set that is not there is nft's own complaint.
  return /Could not process rule: No such file or directory/.test(outcome.error.stderr) ? false : undefined;
}

/** The kernel's table of local routes, which is what addrtype and fib ask: addresses of interfaces, 127.0.0.0/8 … */
async function readLocal(context: RunContext, family: Family): Promise<readonly Range[] | undefined> {
  const path = family === 4 ? '/proc/net/fib_trie' : '/proc/net/ipv6_route';
  const outcome = await tryTool(context, 'cat', [path]);
  if (!outcome.ok) return undefined;
  return family === 4 ? localOfTrie(outcome.stdout) : localOfRoutes(outcome.stdout);
}

/** Leaves `|-- ADDRESS`, each with lines such as `/8 host LOCAL` for its routes. */
export function localOfTrie(text: string): readonly Range[] {
  const ranges: Range[] = [];
  let address = '';
  for (const line of text.split('\n')) {
    address = /\|-- (\S+)/.exec(line)?.[1] ?? address;
    const prefix = /^\s+\/(\d+) \S+ LOCAL\b/.exec(line)?.[1];
    const range = prefix === undefined ? undefined : rangeOf(`${address}/${prefix}`, 4);
    if (range !== undefined) ranges.push(range);
  }
  return ranges;
}

/** RTF_LOCAL of linux/ipv6_route.h. */
const LOCAL_FLAG = 0x80000000;

/** Lines of hexadecimal columns: destination, its prefix, source, its prefix, next hop, metric, two counters, flags. */
export function localOfRoutes(text: string): readonly Range[] {
  return text.split('\n').flatMap(line => {
    const columns = line.trim().split(/\s+/);
    const [destination = '', prefix = ''] = columns;
    const flags = Number.parseInt(columns[8] ?? '', 16);
    if (!/^[0-9a-f]{32}$/.test(destination) || (flags & LOCAL_FLAG) === 0) return [];
    const address: Address = { family: 6, value: BigInt(`0x${destination}`) };
    const range = rangeOf(`${formatAddress(address)}/${Number.parseInt(prefix, 16)}`, 6);
    return range === undefined ? [] : [range];
  });
}
