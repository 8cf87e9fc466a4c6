// From what a rule asks for to the arguments of iptables: one alternative for each kernel rule that it takes.
import type { PortAllocation, PortMatch, PortRange, Protocol, RuleAction } from '../api/model.ts';
import { type Address, type Family, formatAddress } from '../cidr/address.ts';

/** What to do with a packet that a rule matched. */
export interface Translation {
  readonly action: RuleAction;
  /** Present exactly when action is SNAT. */
  readonly address?: Address;
  readonly portRange?: PortRange;
  readonly portAllocation: PortAllocation;
}

/** A protocol with its ports: the match of one kernel rule. Without protocol: every protocol. */
export interface PortClause {
  readonly protocol?: Protocol;
  readonly args: readonly string[];
}

/** Protocols that have ports, so that a port range can be given for them. */
const WITH_PORTS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP'];

/** A multiport match takes 15 ports, and a range counts as two. */
const MULTIPORT_SLOTS = 15;

const protocolName = (protocol: Protocol, family: Family): string => {
  if (protocol === 'ICMP') return family === 4 ? 'icmp' : 'ipv6-icmp';
  return protocol.toLowerCase();
};

const protocolArgs = (protocol: Protocol, family: Family): readonly string[] => [
  '-p',
  protocolName(protocol, family),
];

/** The clauses whose union the ports mean; one clause without protocol where no ports were asked for. */
export function portClauses(ports: readonly PortMatch[] | undefined, family: Family): readonly PortClause[] {
  if (ports === undefined) return [{ args: [] }];
  const protocols = [...new Set(ports.map(port => port.protocol))];
  return protocols.flatMap(protocol => {
    const own = ports.filter(port => port.protocol === protocol);
    const args = protocolArgs(protocol, family);
    if (own.some(port => port.port === undefined)) return [{ protocol, args }];
    return multiportLists(mergeRanges(own)).map(list => ({
      protocol,
      args: [...args, '-m', 'multiport', '--dports', list],
    }));
  });
}

function mergeRanges(ports: readonly PortMatch[]): readonly PortRange[] {
  const ranges = ports
    .map(({ port = 0, endPort = port }) => ({ start: port, end: endPort }))
    .sort((a, b) => a.start - b.start);
  const merged: { start: number; end: number }[] = [];
  for (const range of ranges) {
    const last = merged.at(-1);
    if (last !== undefined && range.start <= last.end + 1) last.end = Math.max(last.end, range.end);
    else merged.push(range);
  }
  return merged;
}

function multiportLists(ranges: readonly PortRange[]): readonly string[] {
  const lists: string[][] = [];
  let slots = MULTIPORT_SLOTS;
  for (const { start, end } of ranges) {
    const needed = start === end ? 1 : 2;
    if (slots + needed > MULTIPORT_SLOTS) {
      lists.push([]);
      slots = 0;
    }
    slots += needed;
    lists.at(-1)?.push(start === end ? `${start}` : `${start}:${end}`);
  }
  return lists.map(list => list.join());
}

/**
 * The rule endings that do the translation for packets of a clause. A range of source ports can be given only with a
 * protocol that has ports (iptables: "Need TCP, UDP, SCTP or DCCP"), so it takes a rule for each and one for the
 * rest.
 */
export function targets(
  translation: Translation,
  clause: PortClause,
  family: Family,
): readonly (readonly string[])[] {
  switch (translation.action) {
    case 'Continue':
      return [[...clause.args, '-j', 'RETURN']];
    case 'Preserve':
      return [[...clause.args, ...identity(family)]];
    case 'Masquerade':
    case 'SNAT':
      return portVariants(translation, clause, family).map(({ args, range }) => [
        ...args,
        ...(translation.address === undefined
          ? ['-j', 'MASQUERADE', ...(range === undefined ? [] : ['--to-ports', range])]
          : ['-j', 'SNAT', '--to-source', sourceText(translation.address, range)]),
        ...allocation(translation.portAllocation),
      ]);
  }
}

/**
 * Preserve is translation to the same address. RETURN would let the next rule masquerade, and ACCEPT ends only its
 * own table; a source mapped to itself is settled for the whole connection, against Felix in nftables mode and
 * against the other iptables backend too (seen on both backends, IPv4 and IPv6).
 */
const identity = (family: Family): readonly string[] => [
  '-j',
  'NETMAP',
  '--to',
  family === 4 ? '0.0.0.0/0' : '::/0',
];

function portVariants(
  translation: Translation,
  clause: PortClause,
  family: Family,
): readonly { readonly args: readonly string[]; readonly range?: string }[] {
  if (translation.portRange === undefined) return [{ args: clause.args }];
  const range = `${translation.portRange.start}-${translation.portRange.end}`;
  if (clause.protocol !== undefined) {
    return [WITH_PORTS.includes(clause.protocol) ? { args: clause.args, range } : { args: clause.args }];
  }
  return [
    ...WITH_PORTS.map(protocol => ({ args: [...clause.args, ...protocolArgs(protocol, family)], range })),
    { args: clause.args },
  ];
}

function sourceText(address: Address, range: string | undefined): string {
  const text = formatAddress(address);
  if (range === undefined) return text;
  return address.family === 4 ? `${text}:${range}` : `[${text}]:${range}`;
}

function allocation(portAllocation: PortAllocation): readonly string[] {
  if (portAllocation === 'KeepIfPossible') return [];
  return [portAllocation === 'FullyRandom' ? '--random-fully' : '--random'];
}
