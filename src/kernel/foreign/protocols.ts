// IP protocols by the names that iptables and nft print for them. Both take names from /etc/protocols where they know
// none themselves, so this list holds the ones that rules of nat ask for; another name is not understood.
import { type PacketProtocol, protocolOf } from '../../planner/packet.ts';
import type { Traffic } from './model.ts';

const NUMBERS: ReadonlyMap<string, number> = new Map([
  ['icmp', 1],
  ['igmp', 2],
  ['ipencap', 4],
  ['ipip', 4],
  ['tcp', 6],
  ['udp', 17],
  ['dccp', 33],
  ['ipv6', 41],
  ['gre', 47],
  ['esp', 50],
  ['ipv6-crypt', 50],
  ['ah', 51],
  ['ipv6-auth', 51],
  ['icmpv6', 58],
  ['ipv6-icmp', 58],
  ['sctp', 132],
  ['udplite', 136],
]);

/** The number of a printed protocol, alone in a list; undefined when it is not known. */
export function protocolNumbers(text: string | number): readonly number[] | undefined {
  const number =
    typeof text === 'number' ? text : (NUMBERS.get(text) ?? (/^\d{1,3}$/.test(text) ? Number(text) : -1));
  return number >= 0 && number <= 255 ? [number] : undefined;
}

/** undefined: not known. */
export function hasProtocol(
  { protocol, family }: Pick<Traffic, 'protocol' | 'family'>,
  numbers: readonly number[],
): boolean | undefined {
  if (typeof protocol === 'number') return numbers.includes(protocol);
  const named = numberOf(protocolOf(protocol, family), family);
  if (named !== undefined) return numbers.includes(named);
  if (protocol === undefined) return undefined;
  // `other` is none of the named ones, and nobody knows which.
  const usual = [6, 17, 132, family === 4 ? 1 : 58];
  return numbers.every(number => usual.includes(number)) ? false : undefined;
}

function numberOf(protocol: PacketProtocol, family: 4 | 6): number | undefined {
  switch (protocol) {
    case 'TCP':
      return 6;
    case 'UDP':
      return 17;
    case 'SCTP':
      return 132;
    case 'ICMP':
      return family === 4 ? 1 : 58;
    default:
      return undefined;
  }
}
