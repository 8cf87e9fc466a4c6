// ICMP and SCTP without a socket of their protocol: the packets as bytes, and the helper that sends and hears them.
// Node has no raw sockets, ping would cost a process a probe, and many kernels have no SCTP; but every Debian has
// perl-base (it is an essential package), whose core module Socket has all of it.
import type { Family } from '../cidr/address.ts';

export type RawProtocol = 'icmp' | 'sctp';

/** What one of our packets says. */
export interface RawMessage {
  readonly kind: 'request' | 'answer';
  readonly protocol: RawProtocol;
  readonly token: number;
  /** ICMP's identifier or SCTP's source port, as translated on the way. */
  readonly port: number;
}

export interface RawPacket {
  readonly family: Family;
  /** IP protocol number. */
  readonly protocol: number;
  /** What follows the IP header. */
  readonly payload: Uint8Array;
}

const SCTP = 132;
const icmpNumber = (family: Family): number => (family === 4 ? 1 : 58);
const ECHO_REQUEST = { 4: 8, 6: 128 } as const;
const ECHO_REPLY = { 4: 0, 6: 129 } as const;
/** Before the token in an echo request: "nato". */
const MAGIC = 0x6e61746f;

/** An echo request that carries the token. For IPv6 the kernel fills in the checksum. */
export function echoRequest(family: Family, identifier: number, token: number): RawPacket {
  const payload = new Uint8Array(16);
  const view = new DataView(payload.buffer);
  view.setUint8(0, ECHO_REQUEST[family]);
  view.setUint16(4, identifier);
  view.setUint16(6, token & 0xffff);
  view.setUint32(8, MAGIC);
  view.setUint32(12, token);
  if (family === 4) view.setUint16(2, internetChecksum(view));
  return { family, protocol: icmpNumber(family), payload };
}

/** RFC 1071. */
function internetChecksum(view: DataView): number {
  let sum = 0;
  for (let i = 0; i < view.byteLength; i += 2) sum += view.getUint16(i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** SCTP's first packet (RFC 9260 3.3.2), the token as its initiate tag. conntrack drops one whose checksum is wrong. */
export function sctpInit(family: Family, sourcePort: number, port: number, token: number): RawPacket {
  const payload = new Uint8Array(32);
  const view = new DataView(payload.buffer);
  view.setUint16(0, sourcePort);
  view.setUint16(2, port);
  view.setUint8(12, 1);
  view.setUint16(14, 20);
  view.setUint32(16, token);
  view.setUint32(20, 65_535);
  view.setUint16(24, 1);
  view.setUint16(26, 1);
  view.setUint32(28, token);
  view.setUint32(8, crc32c(payload), true);
  return { family, protocol: SCTP, payload };
}

/** CRC32c (RFC 9260 appendix A), bit by bit: the packets are 32 bytes long. */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}

/** Reads a packet that a raw socket heard; undefined when it is not one of ours. */
export function readRaw({ family, protocol, payload }: RawPacket): RawMessage | undefined {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  if (protocol === SCTP) {
    if (payload.length < 20 || view.getUint8(12) !== 1) return undefined;
    return { kind: 'request', protocol: 'sctp', token: view.getUint32(16), port: view.getUint16(0) };
  }
  if (payload.length < 16 || view.getUint32(8) !== MAGIC) return undefined;
  const type = view.getUint8(0);
  if (type !== ECHO_REQUEST[family] && type !== ECHO_REPLY[family]) return undefined;
  return {
    kind: type === ECHO_REQUEST[family] ? 'request' : 'answer',
    protocol: 'icmp',
    token: view.getUint32(12),
    port: view.getUint16(4),
  };
}

/** A line of the helper's output: `heard FAMILY PROTOCOL SOURCE HEX`, `failed TOKEN MESSAGE` or `ready`. */
export type RawLine =
  | { readonly heard: RawPacket; readonly source: string }
  | { readonly failed: number; readonly message: string }
  | { readonly ready: true };

export function readRawLine(line: string): RawLine {
  const [verb, ...words] = line.split(' ');
  if (verb === 'ready') return { ready: true };
  if (verb === 'failed') return { failed: Number(words[0]), message: words.slice(1).join(' ') };
  const [family, protocol, source = '', hex = ''] = words;
  const payload = new Uint8Array(Buffer.from(hex, 'hex'));
  return { heard: { family: family === '4' ? 4 : 6, protocol: Number(protocol), payload }, source };
}

/** A line of the helper's input. */
export const sendRawLine = (token: number, packet: RawPacket, source: string, destination: string): string =>
  [
    token,
    packet.family,
    packet.protocol,
    source,
    destination,
    Buffer.from(packet.payload).toString('hex'),
  ].join(' ');

/** Not in perl's Socket. Without it a burst of a thousand packets loses some (seen), which would look like a fault. */
const SO_RCVBUFFORCE = 33;

/** The helper, for `perl -e`. It ends when its input does. An IPv4 raw socket hands out the IP header too. */
export const RAW_HELPER = String.raw`
use strict; use Socket qw(:all); $| = 1;
sub at {
  my ($family, $host) = @_;
  $family == 4 ? pack_sockaddr_in(0, inet_pton(AF_INET, $host)) : pack_sockaddr_in6(0, inet_pton(AF_INET6, $host));
}
sub name {
  my ($family, $at) = @_;
  $family == 4 ? inet_ntop(AF_INET, (unpack_sockaddr_in($at))[1]) : inet_ntop(AF_INET6, (unpack_sockaddr_in6($at))[1]);
}
sub raw {
  my ($family, $protocol) = @_;
  socket(my $socket, $family == 4 ? AF_INET : AF_INET6, SOCK_RAW, $protocol) or die "raw socket: $!\n";
  setsockopt($socket, SOL_SOCKET, ${SO_RCVBUFFORCE}, 67108864) or die "receive buffer: $!\n";
  $socket;
}
my @ears = map { [raw(@$_), @$_] } ([4, 1], [4, 132], [6, 58], [6, 132]);
my $input = '';
print "ready\n";
while (1) {
  my $ready = '';
  vec($ready, $_, 1) = 1 for 0, map { fileno $_->[0] } @ears;
  select($ready, undef, undef, undef) > 0 or next;
  for my $ear (@ears) {
    my ($socket, $family, $protocol) = @$ear;
    vec($ready, fileno $socket, 1) or next;
    my $from = recv($socket, my $packet, 65535, 0);
    defined $from or next;
    $packet = substr $packet, 4 * (ord($packet) & 15) if $family == 4;
    print join(' ', 'heard', $family, $protocol, name($family, $from), unpack 'H*', $packet), "\n";
  }
  vec($ready, 0, 1) or next;
  sysread(STDIN, $input, 65536, length $input) or exit;
  while ($input =~ s/^(\d+) (\d) (\d+) (\S+) (\S+) (\S+)\n//) {
    my ($token, $family, $protocol, $source, $destination, $payload) = ($1, $2, $3, $4, $5, $6);
    my $socket = raw($family, $protocol);
    bind($socket, at($family, $source)) or print("failed $token bind: $!\n"), next;
    send($socket, pack('H*', $payload), 0, at($family, $destination)) or print "failed $token send: $!\n";
  }
}
`;
