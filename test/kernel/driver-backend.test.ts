// Which backend is used, and what becomes of rules in the other one; places, contention, and what is held by others.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { detectBackend, probe } from '../../src/kernel/backend.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { RunContext } from '../../src/kernel/run.ts';
import { poolTables } from '../unit/kernel-tables.ts';
import { type Bench, ipv4, openBench, writesOf } from './driver-support.ts';

const TABLES = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16']), poolTables(6, ['fd00::/64'], ['fd00::/64'])];
const WITHOUT_SPARED = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16'])].map(tables => ({
  ...tables,
  sets: tables.sets.filter(set => set.name !== 'masq4-all-pools'),
  chains: tables.chains
    .filter(({ name }) => name === 'masq-POSTROUTING')
    .map(chain => ({ ...chain, rules: chain.rules.slice(0, 1) })),
}));

const contextOf = (bench: Bench): RunContext => ({
  exec: bench.exec,
  clock: systemClock,
  lockWaitMs: 1000,
  childTimeoutMs: 30_000,
});

/** The help page of an ip6tables that says this of MASQUERADE, and refuses what it does not know. */
const help =
  (text: string): Bench['spoil'] =>
  command => {
    if (!command.tool.startsWith('ip6tables')) return undefined;
    if (command.args.includes('--help')) {
      return Promise.resolve({ code: 0, stdout: text, stderr: '', timedOut: false });
    }
    if (!command.stdin?.includes('--random-fully')) return undefined;
    const stderr = 'unknown option "--random-fully"';
    return Promise.resolve({ code: 2, stdout: '', stderr, timedOut: false });
  };

const LOADED = 'cat /proc/net/ip_tables_names /proc/net/ip6_tables_names';

describe('choosing a backend', () => {
  let bench: Bench;

  beforeEach(async () => {
    bench = await openBench('nft');
  });

  afterEach(() => bench.ns.close());

  it.each([
    ['nothing', '', 'nft', /no neighbour/],
    ['a hint in nft', 'iptables-nft -t mangle -N KUBE-IPTABLES-HINT', 'nft', /KUBE-IPTABLES-HINT/],
    ['a hint in legacy', 'iptables-legacy -t mangle -N KUBE-KUBELET-CANARY', 'legacy', /KUBE-KUBELET-CANARY/],
    [
      'an IPv6 hint alone',
      'ip6tables-legacy -t mangle -N KUBE-IPTABLES-HINT',
      'legacy',
      /KUBE-IPTABLES-HINT/,
    ],
    ['Felix in legacy', 'iptables-legacy -t nat -N cali-POSTROUTING', 'legacy', /cali-POSTROUTING/],
    [
      'a hint in legacy and more chains in nft',
      'iptables-legacy -t mangle -N KUBE-IPTABLES-HINT; iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -N KUBE-POSTROUTING',
      'legacy',
      /KUBE-IPTABLES-HINT/,
    ],
    [
      'more chains in nft',
      'iptables-legacy -t nat -N KUBE-SERVICES; iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -N KUBE-POSTROUTING',
      'nft',
      /KUBE-POSTROUTING/,
    ],
  ])('%s', async (_, setup, backend, why) => {
    await bench.ns.sh(setup);
    const loaded = await bench.ns.sh(LOADED);
    const detection = await detectBackend(contextOf(bench));
    expect(detection).toMatchObject({ tools: { backend }, why: expect.stringMatching(why) });
    expect(await bench.ns.sh(LOADED)).toBe(loaded);
  });

  it('uses the plain names when there are no others', async () => {
    bench.spoil = ({ tool }) =>
      /-(nft|legacy)/.test(tool)
        ? Promise.resolve({ code: null, stdout: '', stderr: '', timedOut: false, spawnError: 'ENOENT' })
        : undefined;
    const report = await bench.driver({ backend: 'auto' }).apply(TABLES);
    expect(report).toMatchObject({ backend: 'nft', families: { ipv4: { ok: true }, ipv6: { ok: true } } });
  });

  it('says what is missing when there is no iptables at all', async () => {
    bench.spoil = ({ tool }) =>
      /tables/.test(tool)
        ? Promise.resolve({ code: null, stdout: '', stderr: '', timedOut: false, spawnError: 'ENOENT' })
        : undefined;
    const report = await bench.driver({ backend: 'auto' }).apply(TABLES);
    expect(report.families.ipv4?.error).toMatchObject({ kind: 'not-found' });
    expect(report.families.ipv6?.error?.message).toMatch(/^iptables is not installed/);
  });

  it('never loads a legacy table while nft is used', async () => {
    const driver = bench.driver({ backend: 'auto' });
    await driver.apply(TABLES);
    await driver.verify();
    expect((await bench.ns.sh(LOADED)).trim()).toBe('');
  });

  it('removes rules of its own from the other backend, and follows a change of backend', async () => {
    await bench.driver({ backend: 'legacy' }).apply(TABLES);
    const driver = bench.driver({ backend: 'auto' });
    const count = async (backend: string): Promise<string> =>
      (await bench.ns.sh(`iptables-${backend}-save | grep -c masq- || true`)).trim();
    expect(await driver.apply(TABLES)).toMatchObject({ backend: 'nft', changed: true });
    expect(await count('legacy')).toBe('0');
    const inUse = await count('nft');
    await bench.ns.sh('iptables-legacy -t mangle -N KUBE-IPTABLES-HINT');
    expect(await driver.verify()).toMatchObject({ backend: 'nft', changed: false });
    bench.clock.forward(300_000);
    const moved = await driver.verify();
    expect(moved).toMatchObject({ backend: 'legacy', changed: true });
    expect(moved.families).toMatchObject({ ipv4: { ok: true, warnings: [] }, ipv6: { ok: true } });
    expect([await count('nft'), await count('legacy')]).toEqual(['0', inUse]);
    expect(await driver.verify()).toMatchObject({ backend: 'legacy', changed: false });
  });

  it('asks whether --random-fully is known', async () => {
    const tools = { backend: 'nft', suffix: '-nft' } as const;
    expect(await probe(contextOf(bench), tools, 6)).toEqual({ randomFully: true });
    bench.spoil = help('MASQUERADE target options:\n --to-ports <port>[-<port>]\n --random\n');
    expect(await probe(contextOf(bench), tools, 6)).toEqual({ randomFully: false });
    bench.spoil = () => Promise.resolve({ code: 3, stdout: '', stderr: 'you must be root', timedOut: false });
    await expect(probe(contextOf(bench), tools, 6)).rejects.toMatchObject({ kind: 'permission' });
  });

  it('uses --random for the one family whose iptables does not know better, and stays with it', async () => {
    bench.spoil = help('MASQUERADE target options:\n --random\n');
    const warnings = [expect.stringContaining('--random is used')];
    const first = await bench.driver().apply(TABLES);
    expect(first.families).toMatchObject({ ipv4: { ok: true, warnings: [] }, ipv6: { ok: true, warnings } });
    expect(await bench.ns.sh('iptables-nft -t nat -S masq-nat-outgoing')).toContain('--random-fully');
    const rules = await bench.ns.sh('ip6tables-nft -t nat -S masq-nat-outgoing');
    expect(rules).toMatch(/-j MASQUERADE --random\n/);
    const next = bench.driver();
    expect(await next.apply(TABLES)).toMatchObject({
      changed: false,
      families: { ipv6: { ok: true, warnings } },
    });
    expect(await next.verify()).toMatchObject({ changed: false, families: { ipv6: { ok: true, warnings } } });
  });
});

describe.each(['nft', 'legacy'] as const)('neighbours, %s', backend => {
  let bench: Bench;
  const t = `iptables-${backend} -t nat`;

  beforeEach(async () => {
    bench = await openBench(backend);
  });

  afterEach(() => bench.ns.close());

  it('gives up the first place after a few moves, says for whom, and keeps the rest right', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES);
    const insert = `${t} -D POSTROUTING -j MASQUERADE || true; ${t} -I POSTROUTING 1 -j MASQUERADE`;
    for (let i = 0; i < 5; i++) {
      await bench.ns.sh(insert);
      expect(ipv4(await driver.verify())).toMatchObject({ ok: true, changed: true, jumpPosition: 1 });
    }
    await bench.ns.sh(`${insert}; ipset flush masq4-all-pools`);
    expect(ipv4(await driver.verify())).toMatchObject({
      ok: true,
      repairs: [expect.stringMatching(/^set masq4-all-pools lacks/)],
      jumpPosition: 2,
      foreignAbove: ['-A POSTROUTING -j MASQUERADE'],
      contended: { foreign: '-A POSTROUTING -j MASQUERADE' },
    });
    expect(await driver.verify()).toMatchObject({ changed: false });
    bench.clock.forward(600_000);
    expect(ipv4(await driver.verify())).toMatchObject({ ok: true, changed: true, jumpPosition: 1 });
    expect(ipv4(await driver.verify()).contended).toBeUndefined();
  });

  it('waits for a set and a chain that a stranger holds, and blocks nothing meanwhile', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES.slice(0, 1));
    await bench.ns.sh(
      `${t} -N OTHER; ${t} -A POSTROUTING -j OTHER; ${t} -A OTHER -m set --match-set masq4-all-pools src -j RETURN; ${t} -A OTHER -j masq-nat-outgoing`,
    );
    const report = ipv4(await driver.apply(WITHOUT_SPARED));
    expect(report).toMatchObject({ ok: true, pendingDestroys: ['masq-nat-outgoing', 'masq4-all-pools'] });
    expect(await driver.verify()).toMatchObject({ changed: false });
    expect(await bench.ns.sh(`${t} -S masq-nat-outgoing; ipset list -n`)).toBe(
      '-N masq-nat-outgoing\nmasq4-all-pools\nmasq4-masq-pools\n',
    );
    await bench.ns.sh(`${t} -F OTHER`);
    bench.clock.forward(10_000);
    expect(ipv4(await driver.verify())).toMatchObject({ ok: true, changed: true, pendingDestroys: [] });
    expect(await bench.ns.sh('ipset list -n')).toBe('masq4-masq-pools\n');
  });

  it('takes back a held set that is wanted again', async () => {
    const driver = bench.driver();
    await driver.apply(TABLES.slice(0, 1));
    const before = await bench.dump();
    await bench.ns.sh(`${t} -A INPUT -m set --match-set masq4-all-pools src -j RETURN`);
    await driver.apply(WITHOUT_SPARED);
    await bench.ns.sh('ipset flush masq4-all-pools');
    expect(ipv4(await driver.apply(TABLES.slice(0, 1)))).toMatchObject({ ok: true, pendingDestroys: [] });
    await bench.ns.sh(`${t} -F INPUT`);
    expect(await bench.dump()).toBe(before);
  });

  it('counts large sets, and looks into them now and then', async () => {
    const cidrs = Array.from({ length: 5000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`);
    const large = [poolTables(4, ['10.0.0.0/16'], cidrs)].map(tables => ({
      ...tables,
      sets: tables.sets.map(set => ({ ...set, maxelem: 65_536 })),
    }));
    const driver = bench.driver();
    await driver.apply(large);
    await driver.verify();
    await bench.ns.sh('ipset del masq4-all-pools 10.0.7.0/24');
    expect(ipv4(await driver.verify()).repairs).toEqual([expect.stringMatching(/has 4999 entries/)]);
    await bench.ns.sh('ipset del masq4-all-pools 10.0.7.0/24; ipset add masq4-all-pools 192.0.2.0/24');
    const repairs: string[] = [];
    for (let i = 0; i < 10; i++) repairs.push(...ipv4(await driver.verify()).repairs);
    expect(repairs).toEqual([expect.stringMatching(/lacks 10\.0\.7\.0\/24; has besides 192\.0\.2\.0\/24/)]);
  });
});

describe('native nftables rules in table nat', () => {
  it('do not make the driver pile up jumps or give up its own chains', async () => {
    const bench = await openBench('nft');
    await bench.ns.sh(
      [
        "nft 'add table ip nat'",
        "nft 'add chain ip nat POSTROUTING { type nat hook postrouting priority srcnat; }'",
        "nft 'add set ip nat s { type ipv4_addr . inet_service; }'",
        "nft 'add rule ip nat POSTROUTING ip daddr . tcp dport @s masquerade'",
      ].join('\n'),
    );
    const driver = bench.driver();
    expect(ipv4(await driver.apply(TABLES))).toMatchObject({
      ok: true,
      changed: true,
      warnings: [expect.stringMatching(/POSTROUTING holds native nftables rules/)],
    });
    bench.commands.length = 0;
    expect(await bench.driver().apply(TABLES)).toMatchObject({ changed: false });
    expect(await driver.verify()).toMatchObject({ changed: false });
    expect(writesOf(bench)).toEqual([]);
    expect(await bench.ns.sh('nft list chain ip nat POSTROUTING | grep -c "jump masq-POSTROUTING"')).toBe(
      '1\n',
    );
    await bench.ns.close();
  });
});
