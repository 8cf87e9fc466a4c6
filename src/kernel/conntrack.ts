// The kernel's table of connections, by the tool conntrack: what is listed, read strictly, and deletion of exactly what
// a filter names. Facts of conntrack 1.4.7 on Linux 6.18 are told where they are used.
import { type Address, type Family, formatAddress, parseAddress } from '../cidr/address.ts';
import { commandError, type KernelError } from './errors.ts';
import type { CommandResult } from './exec.ts';
import type { RunContext } from './run.ts';

/** One direction of a connection. Ports are there for protocols that have them. */
export interface ConntrackTuple {
  readonly source: Address;
  readonly destination: Address;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** ICMP and ICMPv6; `id` is the identifier of echo. */
  readonly icmp?: { readonly type: number; readonly code: number; readonly id: number };
}

/** What names connections: all that agree with everything that is there; a port that is absent may be any. */
export interface EntryFilter {
  readonly family: Family;
  /** IP protocol number. */
  readonly protocol: number;
  readonly zone: number;
  /** As the first packet came in. */
  readonly original: ConntrackTuple;
  /** What answers look like: its destination is what the source was translated to. */
  readonly reply: ConntrackTuple;
}

export interface ConntrackEntry extends EntryFilter {
  /** The kernel's, of this entry alone. */
  readonly id: number;
  /**
   * The entry has a zone in one direction only, which filters of conntrack 1.4.7 pass over: a filter made from this
   * entry may match others, and one made from another may match this.
   */
  readonly directionalZone: boolean;
}

/**
 * The lines of a listing, read while it is walked, so that a large table takes the memory of its text and of what is
 * kept. undefined stands for a line that could not be read.
 */
export type ConntrackListing = Iterable<ConntrackEntry | undefined>;

const CONNTRACK = 'conntrack';

/** All entries of a family, in no order. Throws a KernelError; rejects with the signal's reason when it aborts. */
export async function listEntries(context: RunContext, family: Family): Promise<ConntrackListing> {
  const args = ['-L', '-f', familyWord(family), '-o', 'id'];
  const { result, error } = await run(context, args);
  if (error !== undefined) throw error;
  return parseEntries(result.stdout, family);
}

/**
 * Deletes all entries that the filter matches; gives those that it deleted, none when they were gone. An entry is a
 * filter for itself. One process each: the tool reads the whole table for every deletion, so starting it is the
 * smaller part, and its way to run many (--load-file) opens /dev/stdin by name, which fails when that is a socket, and
 * is not there before 1.4.7. Throws a KernelError; rejects with the signal's reason when it aborts.
 */
export async function deleteEntries(
  context: RunContext,
  filter: EntryFilter,
): Promise<readonly ConntrackEntry[]> {
  const deleted: ConntrackEntry[] = [];
  for (let tries = 1; ; tries++) {
    const { result, error } = await run(context, deletionArgs(filter));
    for (const entry of parseEntries(result.stdout, filter.family)) {
      if (entry !== undefined) deleted.push(entry);
    }
    if (error === undefined || /\b0 flow entries have been deleted/.test(error.stderr)) return deleted;
    // Up to 1.4.7 the tool stops when an entry ends between its reading and its deletion, with the rest undone.
    if (tries === MAX_TRIES || !/such conntrack doesn't exist/.test(error.stderr)) throw error;
  }
}

const MAX_TRIES = 5;

async function run(
  context: RunContext,
  args: readonly string[],
): Promise<{ readonly result: CommandResult; readonly error?: KernelError }> {
  const command = { tool: CONNTRACK, args, timeoutMs: context.childTimeoutMs };
  context.signal?.throwIfAborted();
  const result = await context.exec.run(command, context.signal);
  context.signal?.throwIfAborted();
  const failed = result.code !== 0 || result.timedOut || result.spawnError !== undefined;
  return failed ? { result, error: commandError(command, result) } : { result };
}

const familyWord = (family: Family): string => (family === 4 ? 'ipv4' : 'ipv6');

/** The arguments of a deletion. Without -w entries of all zones match; with -w 0 those that are in none. */
export function deletionArgs({ family, protocol, zone, original, reply }: EntryFilter): readonly string[] {
  const icmp = family === 4 ? '--icmp' : '--icmpv6';
  const options: readonly (readonly [string, string | number | undefined])[] = [
    ['-f', familyWord(family)],
    ['-o', 'id'],
    ['-w', zone],
    ['-p', protocol],
    ['-s', formatAddress(original.source)],
    ['-d', formatAddress(original.destination)],
    ['-r', formatAddress(reply.source)],
    ['-q', formatAddress(reply.destination)],
    ['--sport', original.sourcePort],
    ['--dport', original.destinationPort],
    ['--reply-port-src', reply.sourcePort],
    ['--reply-port-dst', reply.destinationPort],
    [`${icmp}-type`, original.icmp?.type],
    [`${icmp}-code`, original.icmp?.code],
    [`${icmp}-id`, original.icmp?.id],
  ];
  return ['-D', ...options.flatMap(([name, value]) => (value === undefined ? [] : [name, `${value}`]))];
}

/** Reads what `conntrack -o id` prints of one family. */
export function* parseEntries(text: string, family: Family): ConntrackListing {
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf('\n', start);
    const line = text.slice(start, end < 0 ? text.length : end);
    start += line.length + 1;
    if (line !== '') yield parseEntry(line, family);
  }
}

/** The words KEY=VALUE of a line, each with the part of the line in which it stands. */
interface Words {
  readonly original: Map<string, string>;
  readonly reply: Map<string, string>;
  readonly entry: Map<string, string>;
}

/**
 * Such as `udp 17 29 src=… dst=… sport=9 dport=53 [UNREPLIED] src=… dst=… sport=53 dport=9 mark=0 zone=6 use=1 id=…`.
 * Of ICMP each direction has an id of its own, behind code.
 */
function wordsOf(words: readonly string[]): Words {
  const parts: Words = { original: new Map(), reply: new Map(), entry: new Map() };
  let tuple = parts.original;
  let last = '';
  for (const word of words) {
    const equals = word.indexOf('=');
    if (equals < 0) continue;
    const key = word.slice(0, equals);
    if (key === 'src' && tuple.has('src')) tuple = parts.reply;
    const ofEntry = key === 'zone' || (key === 'id' && last !== 'code');
    (ofEntry ? parts.entry : tuple).set(key, word.slice(equals + 1));
    last = key;
  }
  return parts;
}

function parseEntry(line: string, family: Family): ConntrackEntry | undefined {
  const [, number, ...rest] = line.trim().split(/ +/);
  const words = wordsOf(rest);
  const protocol = whole(number, 255);
  const zone = whole(words.entry.get('zone') ?? '0', 0xffff);
  const id = whole(words.entry.get('id'), 0xffff_ffff);
  if (protocol === undefined || zone === undefined || id === undefined) return undefined;
  const original = parseTuple(words.original, family, protocol);
  const reply = parseTuple(words.reply, family, protocol);
  if (original === undefined || reply === undefined) return undefined;
  const directionalZone = words.original.has('zone-orig') || words.reply.has('zone-reply');
  return { family, protocol, zone, original, reply, id, directionalZone };
}

/** TCP, UDP and SCTP: a line of theirs without ports was misread. */
const PORTED: readonly number[] = [6, 17, 132];

function parseTuple(
  words: ReadonlyMap<string, string>,
  family: Family,
  protocol: number,
): ConntrackTuple | undefined {
  const source = parseAddress(words.get('src'));
  const destination = parseAddress(words.get('dst'));
  if (!source.ok || !destination.ok) return undefined;
  if (source.value.family !== family || destination.value.family !== family) return undefined;
  const sourcePort = whole(words.get('sport'), 0xffff);
  const destinationPort = whole(words.get('dport'), 0xffff);
  const addresses = { source: source.value, destination: destination.value };
  if (sourcePort !== undefined && destinationPort !== undefined) {
    return { ...addresses, sourcePort, destinationPort };
  }
  if (PORTED.includes(protocol)) return undefined;
  const type = whole(words.get('type'), 255);
  const code = whole(words.get('code'), 255);
  const id = whole(words.get('id'), 0xffff);
  if (type === undefined || code === undefined || id === undefined) return addresses;
  return { ...addresses, icmp: { type, code, id } };
}

function whole(text: string | undefined, max: number): number | undefined {
  if (text === undefined || !/^(0|[1-9]\d{0,9})$/.test(text)) return undefined;
  const value = Number(text);
  return value <= max ? value : undefined;
}
