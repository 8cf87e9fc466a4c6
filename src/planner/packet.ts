// A packet, and whether its protocol, port and interface are those that a rule asks for. What is not known of a packet
// stays unknown here: `decide` tells it apart from what does not match.
import type { PortMatch, Protocol } from '../api/model.ts';
import type { Address, Family } from '../cidr/address.ts';

/** A packet as nat POSTROUTING sees it: the destination is the one after a Service's translation. */
export interface Packet {
  readonly source: Address;
  readonly destination: Address;
  /** A name, an IP protocol number, or `other` for one that has no name here. Absent: unknown. */
  readonly protocol?: Protocol | 'other' | number;
  /** Absent: unknown. */
  readonly destinationPort?: number;
  /** Absent: unknown. */
  readonly outInterface?: string;
  /** Absent: 0, a packet that nobody marked. */
  readonly mark?: number;
}

/** undefined: unknown. */
export type PacketProtocol = Protocol | 'other' | undefined;

/** Why something that was asked did not match. `address`: a SNAT rule without an address of the packet's family. */
export type Mismatch = 'source' | 'destination' | 'ports' | 'interface' | 'address' | 'localAddresses';

export interface Match {
  readonly answer: 'yes' | 'no' | 'unknown';
  /** What differs, or what is unknown; absent when the answer is yes. */
  readonly because?: Mismatch;
}

export const YES: Match = { answer: 'yes' };
export const no = (because: Mismatch): Match => ({ answer: 'no', because });
export const unknown = (because: Mismatch): Match => ({ answer: 'unknown', because });

/** IANA's numbers of the protocols that have ports. */
const PORTED: ReadonlyMap<number, Protocol> = new Map([
  [6, 'TCP'],
  [17, 'UDP'],
  [132, 'SCTP'],
]);

/** ICMP is ICMP for IPv4 and ICMPv6 for IPv6; each of them in the other family is a protocol like any other. */
export function protocolOf(protocol: Packet['protocol'], family: Family): PacketProtocol {
  if (typeof protocol !== 'number') return protocol;
  if (protocol === (family === 4 ? 1 : 58)) return 'ICMP';
  return PORTED.get(protocol) ?? 'other';
}

/** Whether a packet of this protocol (as protocolOf gives it) is what one of the port matches asks for. */
export function matchPorts(
  ports: readonly PortMatch[],
  protocol: PacketProtocol,
  port: number | undefined,
): Match {
  let answer: Match = no('ports');
  for (const wanted of ports) {
    if (protocol !== undefined && protocol !== wanted.protocol) continue;
    const portFits = fits(wanted, port);
    if (portFits === true && protocol !== undefined) return YES;
    if (portFits !== false) answer = unknown('ports');
  }
  return answer;
}

/** undefined: the answer needs the port, which is unknown. */
function fits(wanted: PortMatch, port: number | undefined): boolean | undefined {
  if (wanted.port === undefined) return true;
  if (port === undefined) return undefined;
  return port >= wanted.port && port <= (wanted.endPort ?? wanted.port);
}

/** Whether one of the patterns matches the interface. */
export function matchInterfaces(patterns: readonly string[], name: string | undefined): Match {
  if (name === undefined) return patterns.includes('+') ? YES : unknown('interface');
  return patterns.some(pattern => matchesInterface(pattern, name)) ? YES : no('interface');
}

/** Whether the name is the pattern, or starts as it does before a trailing + (a + alone matches every name). */
export const matchesInterface = (pattern: string, name: string): boolean =>
  pattern.endsWith('+') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;

/** Whether every packet that `inner` asks for is one that `outer` asks for. Absent: every packet. */
export function coversPorts(
  outer: readonly PortMatch[] | undefined,
  inner: readonly PortMatch[] | undefined,
): boolean {
  if (outer === undefined) return true;
  if (inner === undefined) return false;
  return inner.every(match => {
    const ranges = outer.filter(other => other.protocol === match.protocol).map(rangeOf);
    let [next] = rangeOf(match);
    for (const [start, end] of ranges.sort((a, b) => a[0] - b[0])) {
      if (start <= next && end >= next) next = end + 1;
    }
    return next > rangeOf(match)[1];
  });
}

/** Whether there is a packet that both ask for. Absent: every packet. */
export const portsMeet = (
  a: readonly PortMatch[] | undefined,
  b: readonly PortMatch[] | undefined,
): boolean =>
  a === undefined ||
  b === undefined ||
  a.some(one => b.some(two => one.protocol === two.protocol && rangesMeet(rangeOf(one), rangeOf(two))));

const rangeOf = ({ port, endPort }: PortMatch): readonly [number, number] =>
  port === undefined ? [0, 65_535] : [port, endPort ?? port];

const rangesMeet = (a: readonly [number, number], b: readonly [number, number]): boolean =>
  a[0] <= b[1] && b[0] <= a[1];

/** Whether every interface that a pattern of `inner` matches is matched by one pattern of `outer`. Absent: all. */
export function coversInterfaces(
  outer: readonly string[] | undefined,
  inner: readonly string[] | undefined,
): boolean {
  if (outer === undefined || outer.includes('+')) return true;
  if (inner === undefined) return false;
  return inner.every(pattern =>
    outer.some(other => other === pattern || (other.endsWith('+') && matchesInterface(other, stem(pattern)))),
  );
}

/** Whether there is a name that a pattern of each list matches. Absent: all. */
export const interfacesMeet = (a: readonly string[] | undefined, b: readonly string[] | undefined): boolean =>
  a === undefined ||
  b === undefined ||
  a.some(one => b.some(two => matchesInterface(one, stem(two)) || matchesInterface(two, stem(one))));

const stem = (pattern: string): string => (pattern.endsWith('+') ? pattern.slice(0, -1) : pattern);
