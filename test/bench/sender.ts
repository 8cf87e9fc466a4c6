// The sender of new flows: packets of its own making, one flow each, in a tight loop, and the processor time that they
// took. It is perl because perl-base is on every Debian and costs 0.3 µs a packet, the same for all sides.
//
// A raw socket sends from any pod's address without a second namespace. The packet passes routing, nat OUTPUT and
// POSTROUTING inside the system call, so the sender's own processor time is what it cost: no other process and no
// interrupt is in it, however busy the machine is. A base chain right behind the nat chains counts the packet by
// the source that it has then, and drops it. A connection that was never confirmed is forgotten at once, so the next
// packet of the same addresses and ports is a new flow again, and the table of connections does not grow.
import { execInNamespacesOf, inNewNamespaces, startLineChild } from '../../src/demo/children.ts';
import type { Exec } from '../../src/kernel/exec.ts';
import { must } from './run.ts';

/** What is to become of a packet's source address. */
export type Fate = 'kept' | 'translated';

export interface Packets {
  readonly fate: Fate;
  /** Sent to in turn. A turn of the sender may be shorter than the list, so its order should have no meaning. */
  readonly destinations: readonly string[];
}

export interface Sender {
  /** Runs commands in the sender's namespaces. */
  readonly exec: Exec;
  /**
   * Processor time of a new flow in microseconds, with that many of the packets of that name. A quarter as many go
   * before them and are not in the time: they bring back into the caches what others drove out.
   */
  send(packets: string, count: number): Promise<number>;
  /** Throws when packets met another fate than they were to meet, or did not get that far. */
  checkFates(): Promise<void>;
  close(): Promise<void>;
}

const SOURCES = 256;

/** For `perl -e`. POSIX::clock is this process's processor time in microseconds. 255 is IPPROTO_RAW. */
const PROGRAM = String.raw`
use strict; use Socket; use POSIX (); $| = 1;
socket(my $socket, AF_INET, SOCK_RAW, 255) or die "raw socket: $!\n";
my (%packets, %at, $made);
print "ready\n";
while (<STDIN>) {
  my ($verb, $name, $what) = split;
  if ($verb eq 'packet') {
    my $from = pack('C4', 10, 244, 0, $made++ % ${SOURCES});
    my $to = inet_aton($what);
    push @{$packets{$name}}, [
      pack('C2n3C2na4a4n4', 0x45, 0, 28, 0, 0, 64, 17, 0, $from, $to, 1024 + $made % 60000, 9, 8, 0),
      pack_sockaddr_in(0, $to)];
    next;
  }
  my ($all, $at, $start) = ($packets{$name}, $at{$name});
  for my $i (-int($what / 4) .. $what - 1) {
    $start = POSIX::clock() if $i == 0;
    my $packet = $all->[$at++ % @$all];
    send $socket, $packet->[0], 0, $packet->[1];
  }
  print POSIX::clock() - $start, "\n";
  $at{$name} = $at;
}
`;

const LINKS = [
  'link set lo up',
  'link add uplink0 type veth peer name uplink1',
  'link set uplink0 up',
  'link set uplink1 up',
  'addr add 192.168.50.10/24 dev uplink0',
  'route add default via 192.168.50.1 dev uplink0',
  'neigh replace 192.168.50.1 lladdr 02:00:00:00:00:02 dev uplink0',
];

/** srcnat is priority 100, in iptables-legacy, iptables-nft and nft alike. */
const COUNTING = `
table ip bench {
  counter kept { }
  counter translated { }
  chain fate {
    type filter hook postrouting priority 101;
    ip saddr 10.244.0.0/24 counter name kept drop
    counter name translated drop
  }
}
`;

/** A sender in namespaces of its own, with a node's uplink and no rules but the counting one. Needs root. */
export async function openSender(
  packets: Readonly<Record<string, Packets>>,
  signal: AbortSignal,
): Promise<Sender> {
  const waiting: ((line: string) => void)[] = [];
  const child = startLineChild(inNewNamespaces(['perl', '-e', PROGRAM]), line => waiting.shift()?.(line));
  const gone = child.ended.then(how => {
    throw new Error(`the sender of packets is gone (${how})`);
  });
  // Whoever asks is told; nobody asking is no error.
  gone.catch(() => {});
  const nextLine = (): Promise<string> =>
    Promise.race([new Promise<string>(resolve => waiting.push(resolve)), gone]);
  const sent: Record<Fate, number> = { kept: 0, translated: 0 };

  await nextLine();
  const exec = execInNamespacesOf(child.pid);
  await must(exec, ['ip', '-batch', '-'], `${LINKS.join('\n')}\n`, signal);
  await must(exec, ['nft', '-f', '-'], COUNTING, signal);
  const names = Object.keys(packets);
  names.forEach((name, i) => {
    for (const destination of packets[name]?.destinations ?? []) child.send(`packet ${i} ${destination}`);
  });
  return {
    exec,
    async send(name, count) {
      const kind = packets[name];
      if (kind === undefined) throw new Error(`there are no packets ${name}`);
      sent[kind.fate] += count + Math.floor(count / 4);
      child.send(`send ${names.indexOf(name)} ${count}`);
      return Number(await nextLine()) / count;
    },
    async checkFates() {
      for (const fate of ['kept', 'translated'] as const) {
        const text = await must(exec, ['nft', 'list', 'counter', 'ip', 'bench', fate], '', signal);
        const seen = Number(/packets (\d+)/.exec(text)?.[1]);
        if (seen !== sent[fate]) {
          throw new Error(`${sent[fate]} packets were to leave with their source ${fate}, and ${seen} did`);
        }
      }
    },
    close: () => child.close(),
  };
}
