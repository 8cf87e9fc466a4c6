// What cleanup leaves behind: nothing of ours, everything of others.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cleanup, type CleanupReport } from '../../src/kernel/cleanup.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { poolTables } from '../unit/kernel-tables.ts';
import { type Bench, openBench, writesOf } from './driver-support.ts';

const TABLES = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16']), poolTables(6, ['fd00::/64'], ['fd00::/64'])];

/** Rules of others in both backends, so that all tables are there before. */
const OTHERS = ['iptables-nft', 'ip6tables-nft', 'iptables-legacy', 'ip6tables-legacy']
  .map(t => `${t} -t nat -N KUBE-POSTROUTING; ${t} -t nat -A POSTROUTING -j KUBE-POSTROUTING`)
  .concat('ipset create cali40masq-ipam-pools hash:net; ipset add cali40masq-ipam-pools 10.0.0.0/16')
  .join('\n');

const everything = async (bench: Bench): Promise<string> =>
  (
    await bench.ns.sh(
      'for t in iptables ip6tables; do $t-nft-save; $t-legacy-save; done; ipset save; nft list ruleset',
    )
  )
    .split('\n')
    .filter(line => !line.startsWith('#'))
    .map(line =>
      line
        .replace(/\[\d+:\d+\]/, '')
        .replace(/bucketsize.*/, '')
        .replace(/counter packets \d+ bytes \d+/, ''),
    )
    .join('\n');

describe('cleanup', () => {
  let bench: Bench;
  let before: string;

  const clean = (dryRun = false): Promise<CleanupReport> =>
    cleanup({ exec: bench.exec, log: silentLog, dryRun });

  beforeEach(async () => {
    bench = await openBench('nft');
    await bench.ns.sh(OTHERS);
    before = await everything(bench);
    await bench.driver({ backend: 'nft' }).apply(TABLES);
  });

  afterEach(() => bench.ns.close());

  it('leaves everything as it was, and finds nothing the second time', async () => {
    bench.commands.length = 0;
    const dry = await clean(true);
    expect(writesOf(bench)).toEqual([]);
    const report = await clean();
    expect(report).toMatchObject({ ok: true, failed: [] });
    expect(dry.removed).toEqual(report.removed);
    expect(report.removed).toContainEqual({
      family: 'ipv6',
      backend: 'nft',
      object: 'chain masq-nat-outgoing',
    });
    expect(report.removed).toContainEqual({ family: 'ipv4', object: 'set masq4-all-pools' });
    expect(await everything(bench)).toBe(before);
    expect(await clean()).toEqual({ ok: true, removed: [], failed: [] });
    expect(await everything(bench)).toBe(before);
  });

  it('finds the jump where a native rule hides POSTROUTING, and says what it could not see', async () => {
    await bench.ns.sh('nft add set ip nat s { type ipv4_addr . inet_service\\; }');
    await bench.ns.sh('nft add rule ip nat POSTROUTING ip daddr . tcp dport @s masquerade');
    const report = await clean();
    expect(report.failed).toMatchObject([{ family: 'ipv4', object: 'rules' }]);
    expect(report.removed.map(({ object }) => object)).toContain('chain masq-POSTROUTING');
    expect(await bench.ns.sh('nft list ruleset; ipset save')).not.toMatch(/\bmasq[46]?-/);
  });

  it('cleans both backends, left-overs and jumps made by hand', async () => {
    await bench.ns.sh(
      [
        'iptables-legacy -t nat -N masq-POSTROUTING; iptables-legacy -t nat -N masq-old',
        'iptables-legacy -t nat -A masq-old -j masq-POSTROUTING; iptables-legacy -t nat -A POSTROUTING -g masq-old',
        'iptables-legacy -t nat -A masq-old -m set --match-set masq4-masq-pools src -j RETURN',
        'iptables-nft -t nat -N masq-stray; iptables-nft -t nat -A masq-stray -j MASQUERADE',
        'iptables-nft -t nat -I POSTROUTING 1 -s 10.0.0.0/8 ! -o eth+ -m comment --comment "made by hand" -j masq-stray',
        'iptables-nft -t nat -A POSTROUTING -j masq-POSTROUTING',
        'ipset create masq4-tmp-all-pools hash:ip; ipset create masq6-odd list:set',
      ].join('\n'),
    );
    expect(await clean()).toMatchObject({ ok: true, failed: [] });
    expect(await everything(bench)).toBe(before);
  });

  it('ends the work when it was stopped after any of its commands', async () => {
    for (let at = 0; ; at++) {
      await bench.driver({ backend: 'nft' }).apply(TABLES);
      const stop = new AbortController();
      let number = 0;
      bench.spoil = () => {
        if (number++ === at) stop.abort(new Error('stopped'));
        return undefined;
      };
      const whole = await cleanup({ exec: bench.exec, log: silentLog, dryRun: false }, stop.signal).then(
        () => true,
        () => false,
      );
      bench.spoil = () => undefined;
      expect(await clean()).toMatchObject({ ok: true, failed: [] });
      expect(await everything(bench)).toBe(before);
      if (whole) break;
    }
  });

  it('removes all but what a stranger holds, and says so', async () => {
    await bench.ns.sh(
      [
        'iptables-nft -t nat -A KUBE-POSTROUTING -j masq-nat-outgoing',
        'iptables-nft -t nat -A KUBE-POSTROUTING -m set --match-set masq4-all-pools src -j RETURN',
      ].join('\n'),
    );
    const report = await clean();
    expect(report.failed.map(({ object }) => object)).toEqual([
      'chain masq-nat-outgoing',
      'set masq4-all-pools',
    ]);
    await bench.ns.sh('iptables-nft -t nat -F KUBE-POSTROUTING');
    expect(await clean()).toMatchObject({ ok: true });
    expect(await everything(bench)).toBe(before);
  });
});
