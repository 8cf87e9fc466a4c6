// The real conntrack: what it lists is read, and a deletion takes exactly what it names.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Family } from '../../src/cidr/address.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type ConntrackEntry, deleteEntries, listEntries } from '../../src/kernel/conntrack.ts';
import type { Exec } from '../../src/kernel/exec.ts';
import { localAddresses, outInterfaces } from '../../src/kernel/routes.ts';
import { type RunContext, runContext } from '../../src/kernel/run.ts';
import { address } from '../oracle/universe.ts';
import { type Namespace, openNamespace } from './namespace.ts';

let namespace: Namespace;
let context: RunContext;
beforeEach(async () => {
  namespace = await openNamespace();
  context = contextOf(namespace.exec);
});
afterEach(() => namespace.close());

const contextOf = (exec: Exec): RunContext => runContext({ exec, clock: systemClock });

/** Arguments of `conntrack -I`: entries that have as much in common as two entries can. */
const V4 = '-t 300 -s 10.244.0.5 -d 198.51.100.1';
const V6 = '-t 300 -s fd00::5 -d 2001:db8::1';
const TO = '-r 198.51.100.1 -q';
const ports = (client: number, server: number): string =>
  `--sport ${client} --dport ${server} --reply-port-src ${server} --reply-port-dst ${client}`;
const ENTRIES: { readonly [F in Family]: readonly string[] } = {
  4: [
    ...['', ' -w 7'].flatMap(zone =>
      [1001, 1002].flatMap(port => [
        `${V4} ${TO} 192.0.2.1${zone} -p udp ${ports(port, 53)}`,
        `${V4} ${TO} 192.0.2.1${zone} -p tcp ${ports(port, 53)} --state ESTABLISHED`,
      ]),
    ),
    `${V4} ${TO} 192.0.2.1 -p udp ${ports(1003, 54)}`,
    `${V4} ${TO} 192.0.2.2 -p udp ${ports(1004, 53)}`,
    `${V4} -p sctp --sport 1001 --dport 53 --orig-vtag 1 --reply-vtag 2 --state ESTABLISHED`,
    ...[77, 78].map(id => `${V4} ${TO} 192.0.2.1 -p icmp --icmp-type 8 --icmp-code 0 --icmp-id ${id}`),
    `${V4} -p udplite --sport 1001 --dport 53`,
    `${V4} -p 99`,
    `${V4} -p gre --srckey 5 --dstkey 6`,
  ],
  6: [
    `${V6} -r 2001:db8::1 -q 2001:db8::2 -p tcp ${ports(1001, 53)} --state ESTABLISHED`,
    ...[77, 78].map(id => `${V6} -p icmpv6 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id ${id}`),
  ],
};
const ALL = [...ENTRIES[4], ...ENTRIES[6]];

const fill = (): Promise<string> =>
  namespace.sh(ALL.map(args => `conntrack -I ${args} >/dev/null 2>&1\n`).join(''));

/** All entries of a family; fails when a line could not be read. */
async function entriesOf(family: Family): Promise<readonly ConntrackEntry[]> {
  const lines = [...(await listEntries(context, family))];
  const entries = lines.filter(entry => entry !== undefined);
  expect(entries).toHaveLength(lines.length);
  return entries;
}

/** By family and id: IPv4 and IPv6 do not know of each other. */
async function ids(): Promise<readonly number[]> {
  const all = [...(await entriesOf(4)), ...(await entriesOf(6))];
  return all.map(({ id }) => id).sort((a, b) => a - b);
}

const without = (all: readonly number[], gone: readonly ConntrackEntry[]): readonly number[] =>
  all.filter(id => !gone.some(entry => entry.id === id));

describe('the table', () => {
  it('is read whole, family by family', async () => {
    await fill();
    const v4 = await entriesOf(4);
    const v6 = await entriesOf(6);
    expect(v4).toHaveLength(ENTRIES[4].length);
    expect(v6).toHaveLength(ENTRIES[6].length);
    expect(new Set(await ids()).size).toBe(ALL.length);
    const count = (protocol: number): number => v4.filter(entry => entry.protocol === protocol).length;
    expect([17, 6, 132, 1, 136, 99, 47].map(count)).toEqual([6, 4, 1, 2, 1, 1, 1]);
    expect(v4.filter(({ zone }) => zone === 7)).toHaveLength(4);
    expect(v6.find(({ protocol }) => protocol === 6)).toMatchObject({
      original: { source: address('fd00::5'), sourcePort: 1001 },
      reply: { source: address('2001:db8::1'), destination: address('2001:db8::2') },
    });
  });

  it('loses each entry alone, and knows when it is gone', async () => {
    await fill();
    for (const family of [4, 6] as const) {
      for (const entry of await entriesOf(family)) {
        const before = await ids();
        const gone = await deleteEntries(context, entry);
        expect(gone.map(({ id }) => id)).toEqual([entry.id]);
        expect(await ids()).toEqual(without(before, gone));
        expect(await deleteEntries(context, entry)).toEqual([]);
      }
    }
    expect(await ids()).toEqual([]);
  });

  it('loses all clients of one service at once, by a filter without their ports', async () => {
    await fill();
    const before = await ids();
    const isWanted = (entry: ConntrackEntry): boolean =>
      entry.protocol === 17 &&
      entry.zone === 0 &&
      entry.original.destinationPort === 53 &&
      entry.reply.destination.value === address('192.0.2.1').value;
    const wanted = (await entriesOf(4)).filter(isWanted);
    expect(wanted).toHaveLength(2);
    const { original, reply, ...rest } = wanted[0] as ConntrackEntry;
    const { sourcePort: _, ...fromAny } = original;
    const { destinationPort: __, ...toAny } = reply;
    const gone = await deleteEntries(context, { ...rest, original: fromAny, reply: toAny });
    expect(new Set(gone.map(({ id }) => id))).toEqual(new Set(wanted.map(({ id }) => id)));
    expect(await ids()).toEqual(without(before, wanted));
  });
});

describe('an error', () => {
  it('is clear when the tool is missing', async () => {
    const exec: Exec = {
      run: command => namespace.exec.run({ ...command, tool: 'no-such-conntrack' }),
    };
    await expect(listEntries(contextOf(exec), 4)).rejects.toMatchObject({
      kind: 'not-found',
      message: 'conntrack is not installed or not in PATH',
    });
  });

  it('is clear when the right is missing', async () => {
    const exec: Exec = {
      run: ({ tool, args, ...rest }) =>
        namespace.exec.run({ ...rest, tool: 'setpriv', args: ['--reuid', '65534', tool, ...args] }),
    };
    await expect(listEntries(contextOf(exec), 4)).rejects.toMatchObject({ kind: 'permission' });
  });
});

describe('routing', () => {
  it('says by which interface a packet of a pod leaves, where it leaves', async () => {
    await namespace.sh(`
      echo 1 > /proc/sys/net/ipv4/ip_forward
      echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
      for link in cali1 eth0 eth1; do ip link add $link type veth peer name $link.far; ip link set $link up; ip link set $link.far up; done
      ip address add 192.168.50.10/24 dev eth0
      ip address add 192.168.60.10/24 dev eth1
      ip -6 address add 2001:db8:50::10/64 dev eth0 nodad
      ip route add 10.244.0.5 dev cali1
      ip -6 route add fd00:244::5 dev cali1
      ip route add 8.8.8.0/24 via 192.168.50.1
      ip route add 192.0.2.0/24 via 192.168.60.1
      ip -6 route add 2001:db8:2::/48 via 2001:db8:50::1
      ip route add prohibit 203.0.113.0/24`);
    const pod = { 4: address('10.244.0.5'), 6: address('fd00:244::5') };
    const cases = [
      ['8.8.8.8', 'eth0'],
      ['192.0.2.7', 'eth1'],
      ['2001:db8:2::7', 'eth0'],
      ['192.168.50.10', undefined],
      ['2001:db8:50::10', undefined],
      ['203.0.113.1', undefined],
      ['9.9.9.9', undefined],
      ['192.0.2.7', 'eth1'],
    ] as const;
    const paths = cases.map(([text]) => {
      const destination = address(text);
      return { source: pod[destination.family], destination };
    });
    expect(await outInterfaces(context, paths)).toEqual(cases.map(([, name]) => name));
    const nowhere = { source: address('10.99.0.1'), destination: address('8.8.8.8') };
    expect(await outInterfaces(context, [nowhere])).toEqual([undefined]);
    expect(await outInterfaces(context, [])).toEqual([]);
  });

  it("knows the node's own addresses, with their interfaces", async () => {
    await namespace.sh(`
      ip link set lo up
      ip link add eth0 type veth peer name eth1
      ip address add 192.168.50.10/24 dev eth0
      ip address add 198.51.100.7/32 dev eth0
      ip -6 address add 2001:db8:50::10/64 dev eth0`);
    expect(await localAddresses(context)).toEqual(
      expect.arrayContaining([
        { interface: 'lo', address: address('127.0.0.1') },
        { interface: 'eth0', address: address('192.168.50.10') },
        { interface: 'eth0', address: address('198.51.100.7') },
        { interface: 'eth0', address: address('2001:db8:50::10') },
      ]),
    );
  });
});
