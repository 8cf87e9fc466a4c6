// A look asks, and writes nothing: no rule, no counter, no table that was not there, whatever it finds or cannot see.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Family } from '../../src/cidr/address.ts';
import type { Backend } from '../../src/kernel/backend.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { Listing } from '../../src/kernel/iptables.ts';
import { followChains, listTable } from '../../src/kernel/list-chains.ts';
import { runContext } from '../../src/kernel/run.ts';
import { poolTables } from '../unit/kernel-tables.ts';
import { type Bench, ipv4, openBench, writesOf } from './driver-support.ts';

const TABLES = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16']), poolTables(6, ['fd00::/64'], ['fd00::/64'])];
const OWN = ['masq-POSTROUTING', 'masq-nat-outgoing'];

/** A rule that iptables-nft cannot show. */
const nativeRule = (chain: string): string =>
  `nft "add set ip nat s { type ipv4_addr . inet_service; }"; nft add rule ip nat ${chain} ip daddr . tcp dport @s masquerade`;

const namesOf = (listing: Listing): readonly string[] => [...listing.keys()].sort();

/**
 * What `nft monitor` hears between two tables that are made for it to hear, with the kernel's generations from 0: a
 * transaction that changes nothing that is told would still raise them.
 */
async function heard(bench: Bench, work: () => Promise<void>): Promise<string> {
  await bench.ns.sh('nft monitor >/run/heard 2>&1 </dev/null & echo $! >/run/monitor');
  try {
    // It listens when it has heard something.
    const until = (script: string): string =>
      `for i in $(seq 200); do ${script} && exit 0; sleep 0.05; done; exit 1`;
    await bench.ns.sh(
      until('nft "add table ip t; delete table ip t" && sleep 0.05 && grep -q "table ip t" /run/heard'),
    );
    await bench.ns.sh('nft add table ip begin');
    await work();
    await bench.ns.sh('nft add table ip end');
    await bench.ns.sh(until('grep -A1 "table ip end" /run/heard | grep -q generation'));
    const text = (await bench.ns.sh('cat /run/heard; nft delete table ip begin; nft delete table ip end'))
      .replace(/^[^]*(?=add table ip begin)/, '')
      .replaceAll(/ by process.*/g, '');
    const first = Number(/new generation (\d+)/.exec(text)?.[1]);
    return text.replaceAll(/(?<=generation )\d+/g, generation => String(Number(generation) - first));
  } finally {
    await bench.ns.sh('kill $(cat /run/monitor)');
  }
}

const NOTHING = 'add table ip begin\n# new generation 0\nadd table ip end\n# new generation 1\n';

const everything = (bench: Bench, backend: Backend): Promise<string> =>
  bench.ns.sh(
    `iptables-${backend}-save -c | grep -v "^#"; ip6tables-${backend}-save -c | grep -v "^#"; ipset save`,
  );

const contextOf = (bench: Bench) => runContext({ exec: bench.exec, clock: systemClock });

const follow = (bench: Bench, backend: Backend, names: readonly string[], family: Family = 4) =>
  followChains(contextOf(bench), { backend, suffix: `-${backend}` }, family, names);

describe.each(['nft', 'legacy'] as const)('a look, %s', backend => {
  let bench: Bench;
  const t = `iptables-${backend} -t nat`;

  beforeEach(async () => {
    bench = await openBench(backend);
  });

  afterEach(() => bench.ns.close());

  it('at correct rules is one process for all chains of a family, and changes nothing', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES);
    await driver.verify();
    await bench.ns.sh('ip link set lo up; bash -c "echo >/dev/udp/127.0.0.1/9; echo >/dev/udp/::1/9"');
    const before = await everything(bench, backend);
    expect(before).toMatch(/^\[[1-9]\d*:[1-9]\d*\] -A POSTROUTING .*-j masq-POSTROUTING$/m);
    bench.commands.length = 0;
    const monitored = await heard(bench, async () => {
      // One in ten looks at more.
      for (let i = 0; i < 10; i++) expect(await driver.verify()).toMatchObject({ changed: false });
    });
    expect(monitored).toBe(NOTHING);
    expect(writesOf(bench)).toEqual([]);
    const tools = bench.commands.map(({ tool }) => tool).filter(tool => tool !== 'ipset');
    expect(new Set(tools)).toEqual(new Set([`iptables-${backend}-restore`, `ip6tables-${backend}-restore`]));
    expect(tools).toHaveLength(20);
    expect(await everything(bench, backend)).toBe(before);
  });

  it('counts as no write; a change in the same words does', async () => {
    const restore = { tool: `iptables-${backend}-restore`, args: ['--noflush'], timeoutMs: 10_000 };
    await bench.exec.run({ ...restore, stdin: '*nat\n-S POSTROUTING\nCOMMIT\n' });
    expect(writesOf(bench)).toEqual([]);
    await bench.exec.run({ ...restore, stdin: '*nat\n-S POSTROUTING\n-N masq-a\nCOMMIT\n' });
    expect(writesOf(bench)).toHaveLength(1);
    expect(await bench.ns.sh(`${t} -S masq-a`)).toBe('-N masq-a\n');
  });

  it('makes nothing where there is nothing', async () => {
    const monitored = await heard(bench, async () => {
      for (const family of [4, 6] as const) {
        expect(namesOf(await follow(bench, backend, OWN, family))).toEqual(['POSTROUTING']);
        expect(
          (await listTable(contextOf(bench), { backend, suffix: `-${backend}` }, family))?.get('POSTROUTING'),
        ).toEqual([]);
      }
      expect((await bench.driver().diff(TABLES)).families.ipv4?.error).toBeUndefined();
    });
    expect(monitored).toBe(NOTHING);
    expect(writesOf(bench)).toEqual([]);
    expect(await bench.ns.sh('nft list ruleset; ipset save')).toBe('');
    // legacy loads the table that it reads; there is no more in it than the kernel puts there.
    expect(await bench.ns.sh('iptables-legacy-save | grep -c "^-A" || true')).toBe('0\n');
  });

  it.each([
    ['first', ['masq-x', ...OWN]],
    ['in the middle', [...OWN.slice(0, 1), 'masq-x', ...OWN.slice(1)]],
    ['last', [...OWN, 'masq-x']],
    ['several', ['masq-x', 'masq-y', ...OWN, 'masq-z']],
  ])('sees the other chains beside missing ones: %s', async (_, names) => {
    await bench.driver().apply(TABLES);
    const there = await follow(bench, backend, OWN);
    const before = await everything(bench, backend);
    expect(namesOf(there)).toEqual(['POSTROUTING', ...OWN]);
    expect(await follow(bench, backend, names)).toEqual(there);
    expect(await everything(bench, backend)).toBe(before);
  });

  it('finds chains of ours that only rules lead to', async () => {
    await bench.driver().apply(TABLES);
    expect(namesOf(await follow(bench, backend, []))).toEqual(['POSTROUTING', ...OWN]);
  });

  it('does not read the chains of others', async () => {
    await bench.driver().apply(TABLES);
    await bench.ns.sh(`${t} -N KUBE-POSTROUTING; ${t} -A POSTROUTING -j KUBE-POSTROUTING`);
    expect(namesOf(await follow(bench, backend, []))).toEqual(['POSTROUTING', ...OWN]);
  });
});

describe('a look at native nftables rules', () => {
  let bench: Bench;

  beforeEach(async () => {
    bench = await openBench('nft');
  });

  afterEach(() => bench.ns.close());

  it('in a chain of ours leaves that chain out, and it is written again', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES);
    const before = await bench.dump();
    await bench.ns.sh(nativeRule('masq-nat-outgoing'));
    const ruleset = await bench.ns.sh('nft list ruleset');
    expect(namesOf(await follow(bench, 'nft', OWN))).toEqual(['POSTROUTING', 'masq-POSTROUTING']);
    expect(await bench.ns.sh('nft list ruleset')).toBe(ruleset);
    expect(ipv4(await driver.verify())).toMatchObject({
      ok: true,
      changed: true,
      repairs: [expect.stringMatching(/^chain masq-nat-outgoing/)],
    });
    expect(await bench.dump()).toBe(before);
    expect(await driver.verify()).toMatchObject({ changed: false });
  });

  it('in POSTROUTING is three processes for the chains, one for the jump, and no write', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES.slice(0, 1));
    await bench.ns.sh(nativeRule('POSTROUTING'));
    expect(namesOf(await follow(bench, 'nft', OWN))).toEqual(OWN);
    bench.commands.length = 0;
    const monitored = await heard(bench, async () => {
      expect(ipv4(await driver.verify())).toMatchObject({
        ok: true,
        changed: false,
        warnings: [expect.stringMatching(/POSTROUTING holds native nftables rules/)],
      });
    });
    expect(monitored).toBe(NOTHING);
    expect(bench.commands.map(({ tool }) => tool).filter(tool => tool !== 'ipset')).toEqual([
      'iptables-nft-restore',
      'iptables-nft',
      'iptables-nft-restore',
      'iptables-nft',
    ]);
  });

  it('in a chain of others disturbs it only in finding chains that nothing leads to', async () => {
    await bench.driver().apply(TABLES);
    await bench.ns.sh(`nft add chain ip nat OTHER; ${nativeRule('OTHER')}; iptables-nft -t nat -N masq-old`);
    const tools = { backend: 'nft', suffix: '-nft' } as const;
    expect(await listTable(contextOf(bench), tools, 4)).toBeUndefined();
    expect(namesOf(await follow(bench, 'nft', OWN))).toEqual(['POSTROUTING', ...OWN]);
    expect(await bench.driver().apply(TABLES)).toMatchObject({
      changed: false,
      families: { ipv4: { ok: true } },
    });
  });

  it('makes none of the base chains that a table of its own making lacks', async () => {
    await bench.ns.sh(
      'nft "table ip nat { chain POSTROUTING { type nat hook postrouting priority srcnat; }; }"',
    );
    const ruleset = await bench.ns.sh('nft list ruleset');
    expect(ruleset).not.toMatch(/PREROUTING|INPUT|OUTPUT/);
    expect(namesOf(await follow(bench, 'nft', OWN))).toEqual(['POSTROUTING']);
    expect((await bench.driver().diff(TABLES)).families.ipv4?.error).toBeUndefined();
    expect(await bench.ns.sh('nft list ruleset')).toBe(ruleset);
    await bench.ns.sh(nativeRule('POSTROUTING'));
    const withRule = await bench.ns.sh('nft list ruleset');
    expect(namesOf(await follow(bench, 'nft', OWN))).toEqual([]);
    expect((await bench.driver().diff(TABLES)).families.ipv4?.error).toBeUndefined();
    expect(await bench.ns.sh('nft list ruleset')).toBe(withRule);
  });
});
