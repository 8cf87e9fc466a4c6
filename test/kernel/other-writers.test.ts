// Others that write at the same time as we do, with and without our lock: what is theirs stays as they wrote it, and
// ours ends as it is wanted.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { poolTables } from '../unit/kernel-tables.ts';
import { type Bench, ipv4, openBench } from './driver-support.ts';

const BACKENDS = ['nft', 'legacy'] as const;
const tables = (round: number) => [
  poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16', `10.${round % 200}.0.0/24`]),
];

describe.each(BACKENDS)('iptables-%s', backend => {
  let bench: Bench;
  const t = `iptables-${backend} -t nat`;
  beforeEach(async () => {
    bench = await openBench(backend);
  });
  afterEach(() => bench.ns.close());

  it('an agent with another lock file loses updates and makes us lose them: the next look mends it', async () => {
    const driver = bench.driver();
    await driver.apply(tables(0));
    const rounds = 60;
    const other = bench.ns.sh(
      `export XTABLES_LOCKFILE=/run/other.lock
      for i in $(seq ${rounds}); do
        printf '*nat\\n:OTHER - [0:0]\\n-A OTHER -s 192.0.2.%s/32 -j RETURN\\nCOMMIT\\n' $i | iptables-${backend}-restore --noflush
      done`,
    );
    for (let i = 1; i <= rounds; i++) {
      // A chain of rules that changes, so that each round is a transaction on the table.
      const more = i % 2 === 0 ? poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16']) : tables(i)[0];
      await driver.apply(more === undefined ? [] : [more]);
    }
    await other;
    await driver.apply(tables(7));
    await driver.verify();
    const settled = await driver.verify();
    expect(settled).toMatchObject({ changed: false });
    expect(ipv4(settled)).toMatchObject({ ok: true, jumpPosition: 1 });
    expect(await bench.ns.sh(`${t} -S POSTROUTING | grep -c masq-POSTROUTING`)).toBe('1\n');
    expect(await bench.ns.sh(`ipset list masq4-all-pools | grep -c '^10\\.'`)).toBe('2\n');
  });

  it('sets and chains of others are nobody’s but theirs, however often ours are written', async () => {
    await bench.ns.sh(
      `ipset create cali40all-ipam-pools hash:net
      ipset create istio-inpod-probes-v4 hash:ip
      ipset create KUBE-CLUSTER-IP hash:ip,port
      ${t} -N KUBE-POSTROUTING; ${t} -A POSTROUTING -j KUBE-POSTROUTING
      ${t} -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
      ${t} -N masquerade-of-others; ${t} -A masquerade-of-others -j RETURN`,
    );
    const churn = bench.ns.sh(
      `for i in $(seq 150); do
        ipset add cali40all-ipam-pools 10.1.$i.0/24
        ipset add istio-inpod-probes-v4 192.0.2.$i
        ipset add KUBE-CLUSTER-IP 198.51.100.$i,tcp:80
        test $i -gt 100 && ipset del istio-inpod-probes-v4 192.0.2.$((i - 100)) || true
      done`,
    );
    const driver = bench.driver();
    for (let i = 0; i < 25; i++) {
      await driver.apply(tables(i));
      await bench.ns.sh(i % 2 === 0 ? 'ipset flush masq4-masq-pools' : `${t} -F masq-nat-outgoing`);
      expect(ipv4(await driver.verify())).toMatchObject({ ok: true });
    }
    await churn;
    await driver.remove();
    const count = async (name: string): Promise<number> =>
      Number(await bench.ns.sh(`ipset list ${name} | sed '1,/^Members:/d' | grep -c . || true`));
    expect(await count('cali40all-ipam-pools')).toBe(150);
    expect(await count('istio-inpod-probes-v4')).toBe(100);
    expect(await count('KUBE-CLUSTER-IP')).toBe(150);
    expect(await bench.ns.sh(`${t} -S | grep -v '^-P'`)).toBe(
      '-N KUBE-POSTROUTING\n-N masquerade-of-others\n-A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A masquerade-of-others -j RETURN\n',
    );
  });

  it('two appliers by mistake, with different wishes: no jump doubles, no set is left, the last one wins', async () => {
    const one = bench.driver();
    const two = bench.driver();
    await one.apply(tables(1));
    for (let i = 0; i < 10; i++) {
      await Promise.all([one.apply(tables(1)), two.apply(tables(2))]);
      await Promise.all([one.verify(), two.verify()]);
    }
    expect(ipv4(await two.apply(tables(2)))).toMatchObject({ ok: true });
    expect(ipv4(await two.verify())).toMatchObject({ ok: true, pendingDestroys: [] });
    expect(await two.verify()).toMatchObject({ changed: false });
    expect(await bench.ns.sh(`${t} -S POSTROUTING | grep -c masq-`)).toBe('1\n');
    expect(await bench.ns.sh('ipset list -n')).toBe('masq4-all-pools\nmasq4-masq-pools\n');
    expect(await bench.ns.sh('ipset list masq4-all-pools')).toContain('10.2.0.0/24');
  });
});
