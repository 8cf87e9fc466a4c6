// Whatever a person, another program or a crash did to our rules and sets: the next look mends it, and one more look
// finds nothing to do.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { FamilyTables } from '../../src/render/tables.ts';
import { poolTables, rule, tablesOf } from '../unit/kernel-tables.ts';
import { type Bench, ipv4, openBench, writesOf } from './driver-support.ts';

const TABLES: readonly FamilyTables[] = [
  tablesOf(
    4,
    {
      'masq-pools': ['10.244.0.0/16', '!10.244.9.0/24', '10.245.0.0/16'],
      'all-pools': ['10.244.0.0/16', '10.245.0.0/16', '192.0.2.1/32'],
    },
    {
      'masq-POSTROUTING': [
        rule('-m mark --mark 0x4000/0x4000 -j RETURN', 'for kube-proxy'),
        rule(
          '-m set --match-set masq4-masq-pools src -d 198.51.100.0/24 -j NETMAP --to 0.0.0.0/0',
          'keep/first',
        ),
        rule('-j masq-nat-outgoing', 'natOutgoing of IPPools'),
      ],
      'masq-nat-outgoing': [
        rule(
          '-m set --match-set masq4-masq-pools src -m set ! --match-set masq4-all-pools dst -j MASQUERADE --random-fully',
          'natOutgoing of IPPools',
        ),
      ],
    },
  ),
  poolTables(6, ['2001:db8::102:304/128', 'fd00:10::/32'], ['::102:304/128', 'fd00:10::/32']),
];

/** Name, script (with $T for the iptables of the backend), what the repair names. */
const DRIFTS: readonly (readonly [string, string, RegExp])[] = [
  ['the jump is deleted', '$T -t nat -D POSTROUTING 1', /^jump is missing/],
  [
    'a foreign rule is put before the jump',
    '$T -t nat -I POSTROUTING 1 -s 10.0.0.0/8 -j MASQUERADE',
    /^jump is at position 2, below -A POSTROUTING -s 10\.0\.0\.0\/8 -j MASQUERADE/,
  ],
  [
    'the jump is there twice',
    '$T -t nat -S POSTROUTING | sed -n "s/^-A/$T -t nat -A/p" | sh',
    /^jump is there 2 times/,
  ],
  [
    'a jump of another version is there',
    '$T -t nat -I POSTROUTING 1 -m comment --comment "natoutgoing:abc other" -j masq-POSTROUTING',
    /^jump has another jump beside it/,
  ],
  ['a rule is deleted', '$T -t nat -D masq-POSTROUTING 2', /^chain masq-POSTROUTING has 2 rules/],
  [
    'the order of rules is changed',
    '$T -t nat -S masq-POSTROUTING | sed -n "/kube-proxy/s/^-A/$T -t nat -A/p" | sh; $T -t nat -D masq-POSTROUTING 1',
    /^chain masq-POSTROUTING has 3 rules, not the wanted ones/,
  ],
  [
    'a stranger adds a rule to our chain',
    '$T -t nat -A masq-nat-outgoing -j ACCEPT',
    /^chain masq-nat-outgoing/,
  ],
  ['a chain is emptied', '$T -t nat -F masq-nat-outgoing', /^chain masq-nat-outgoing has 0 rules/],
  [
    'a chain is deleted',
    '$T -t nat -D masq-POSTROUTING 3; $T -t nat -F masq-nat-outgoing; $T -t nat -X masq-nat-outgoing',
    /^chain masq-nat-outgoing is missing/,
  ],
  ['the table is flushed', '$T -t nat -F; $T -t nat -X', /^jump is missing/],
  ['a member is removed', 'ipset del masq4-masq-pools 10.245.0.0/16', /lacks 10\.245\.0\.0\/16/],
  ['a member is added', 'ipset add masq4-all-pools 203.0.113.7', /has besides 203\.0\.113\.7\/32/],
  [
    'an exception is turned around',
    'ipset add masq4-masq-pools 10.244.9.0/24 -exist',
    /has with the other nomatch flag 10\.244\.9\.0\/24/,
  ],
  ['a set is emptied', 'ipset flush masq4-masq-pools', /lacks 10\.244\.9\.0\/24 nomatch, 10\.244/],
  ['an IPv6 member is removed', 'ipset del masq6-all-pools ::102:304', /lacks ::102:304\/128/],
  [
    'an IPv6 member that we cannot parse is added',
    'ipset add masq6-all-pools ::ffff:1.2.3.4',
    /^set masq6-all-pools has an entry that is not an address/,
  ],
  [
    'a set is made anew with another limit',
    '$T -t nat -F masq-POSTROUTING; $T -t nat -F masq-nat-outgoing; ipset destroy masq4-all-pools; ipset create masq4-all-pools hash:net maxelem 9 timeout 600',
    /^set masq4-all-pools is hash:net inet maxelem 9 timeout/,
  ],
  [
    'a set of another type has our name and our rule looks into it',
    '$T -t nat -F masq-POSTROUTING; $T -t nat -F masq-nat-outgoing; ipset destroy masq4-all-pools; ipset create masq4-all-pools hash:ip; $T -t nat -A masq-nat-outgoing -m set --match-set masq4-all-pools src -j RETURN',
    /^set masq4-all-pools is of type hash:ip/,
  ],
  [
    'a set of ours that nobody wants is there',
    'ipset create masq4-stray hash:net',
    /^set masq4-stray is there/,
  ],
  [
    'a temporary set is left',
    'ipset create masq4-tmp-all-pools hash:ip',
    /^set masq4-tmp-all-pools is there/,
  ],
  [
    'a chain of ours that nobody wants is there',
    '$T -t nat -N masq-stray; $T -t nat -A masq-stray -j RETURN; $T -t nat -A masq-nat-outgoing -j masq-stray',
    /^chain masq-stray is there/,
  ],
];

/** Beside our own mending, the foreign rule of one drift stays, as it should; it goes before the states are compared. */
const REMOVE_FOREIGN = '$T -t nat -D POSTROUTING -s 10.0.0.0/8 -j MASQUERADE || true';

const script = (backend: string, text: string): string => text.replaceAll('$T', `iptables-${backend}`);

describe.each(['nft', 'legacy'] as const)('%s', backend => {
  let bench: Bench;
  let before: string;

  beforeEach(async () => {
    bench = await openBench(backend);
    await bench.driver().apply(TABLES);
    before = await bench.dump();
  });

  afterEach(() => bench.ns.close());

  it.each(DRIFTS)('%s: the running process mends it', async (_, drift, named) => {
    const driver = bench.driver();
    expect(await driver.apply(TABLES)).toMatchObject({ changed: false });
    await bench.ns.sh(script(backend, drift));
    expect(await bench.dump()).not.toBe(before);
    const report = await driver.verify();
    expect(Object.values(report.families).map(family => family.error)).toEqual([undefined, undefined]);
    const repairs = Object.values(report.families).flatMap(family => family.repairs);
    expect(repairs).toContainEqual(expect.stringMatching(named));
    await bench.ns.sh(script(backend, REMOVE_FOREIGN));
    expect(await bench.dump()).toBe(before);
    bench.commands.length = 0;
    expect(await driver.verify()).toMatchObject({ changed: false });
    expect(writesOf(bench)).toEqual([]);
  });

  it.each(DRIFTS)('%s: a new process mends it', async (_, drift) => {
    await bench.ns.sh(script(backend, drift));
    const report = await bench.driver().apply(TABLES);
    expect(report).toMatchObject({ changed: true, families: { ipv4: { ok: true }, ipv6: { ok: true } } });
    await bench.ns.sh(script(backend, REMOVE_FOREIGN));
    expect(await bench.dump()).toBe(before);
    bench.commands.length = 0;
    expect(await bench.driver().apply(TABLES)).toMatchObject({ changed: false });
    expect(writesOf(bench)).toEqual([]);
  });

  it('finds a left-over chain that nothing leads to when the process starts', async () => {
    await bench.ns.sh(
      `iptables-${backend} -t nat -N masq-old; iptables-${backend} -t nat -A masq-old -j RETURN`,
    );
    expect(await bench.driver().apply(TABLES)).toMatchObject({ changed: true });
    expect(await bench.dump()).toBe(before);
  });

  it('says what differs without writing', async () => {
    await bench.ns.sh('ipset del masq4-masq-pools 10.245.0.0/16');
    bench.commands.length = 0;
    expect((await bench.driver().diff(TABLES)).families).toEqual({
      ipv4: {
        differences: [
          {
            object: 'set masq4-masq-pools',
            is: 'lacks 10.245.0.0/16',
            wanted: '3 entries, hash:net inet maxelem 1024',
          },
        ],
      },
      ipv6: { differences: [] },
    });
    expect(writesOf(bench)).toEqual([]);
  });

  it('keeps a jump below rules that act on marked packets alone, and leaves one made by hand', async () => {
    const t = `iptables-${backend} -t nat`;
    await bench.ns.sh(
      `${t} -N KUBE-POSTROUTING; ${t} -I POSTROUTING 1 -j KUBE-POSTROUTING; ${t} -I POSTROUTING 2 -o eth9 -j masq-POSTROUTING`,
    );
    const report = await bench.driver().apply(TABLES);
    expect(report.changed).toBe(false);
    expect(ipv4(report)).toMatchObject({
      jumpPosition: 3,
      foreignAbove: ['-A POSTROUTING -j KUBE-POSTROUTING'],
    });
  });
});
