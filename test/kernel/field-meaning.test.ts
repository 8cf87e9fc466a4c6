// Who is translated and who is not, where other tools got it wrong in public: inbound clients, one family without
// natOutgoing, a pool that swallows the local network, sets that grow.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { maxelemFor } from '../../src/render/render.ts';
import { poolTables } from '../unit/kernel-tables.ts';
import { ipv4, openBench } from './driver-support.ts';
import { block, NAMES, openSceneWithDriver, policy, pool, type Scene } from './scene.ts';

const BACKENDS = ['nft', 'legacy'] as const;

describe.each(BACKENDS)('iptables-%s', backend => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterEach(() => scene.close());

  it.each(FAMILIES)(
    'IPv%i: an inbound client keeps its address, also one whose address is in a pool',
    async family => {
      const n = NAMES[family];
      const client = { source: n.internet, destination: n.pod, from: 'outside' } as const;
      const everything = policy('all', [{ action: 'Masquerade' }]);
      await scene.apply([pool('pods', n.pods), everything]);
      expect(await scene.seen(client)).toBe(n.internet);
      const wide = pool('wide', family === 4 ? '8.0.0.0/8' : '2001:4860::/32');
      await scene.apply([pool('pods', n.pods), wide]);
      expect(await scene.seen(client)).toBe(n.internet);
      expect(await scene.seen({ source: n.pod, destination: n.far })).toBe(n.node);
    },
  );

  it.each([
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ])('natOutgoing of IPv4 %s and of IPv6 %s: each family on its own', async (four, six) => {
    const wanted = { 4: four, 6: six };
    await scene.apply(FAMILIES.map(f => pool(`pods${f}`, NAMES[f].pods, { natOutgoing: wanted[f] })));
    for (const family of FAMILIES) {
      const n = NAMES[family];
      expect(await scene.seen({ source: n.pod, destination: n.internet })).toBe(
        wanted[family] ? n.node : n.pod,
      );
    }
  });

  it.each(FAMILIES)(
    'IPv%i: a pool that swallows the local network, and the policy that masquerades to it',
    async family => {
      const n = NAMES[family];
      const wide = pool('wide', family === 4 ? '0.0.0.0/1' : '2000::/3', { natOutgoing: true });
      const both = [pool('pods', n.pods), wide];
      await scene.apply(both);
      expect(await scene.seen({ source: n.pod, destination: n.internet })).toBe(n.pod);
      await scene.apply([
        ...both,
        policy('local', [{ to: [block(`${n.internet}/${family === 4 ? 32 : 128}`)], action: 'Masquerade' }]),
      ]);
      expect(await scene.seen({ source: n.pod, destination: n.internet })).toBe(n.node);
    },
  );
});

describe.each(BACKENDS)('a set that grows in use, iptables-%s', backend => {
  it('from 10 entries past the default limit of 65,536 and on', { timeout: 120_000 }, async () => {
    const bench = await openBench(backend);
    const driver = bench.driver();
    const sized = (count: number) => {
      const cidrs = Array.from(
        { length: count },
        (_, i) => `100.${(i >> 14) & 127}.${(i >> 6) & 255}.${(i & 63) << 2}/30`,
      );
      const made = poolTables(4, ['10.0.0.0/16'], cidrs);
      return [{ ...made, sets: made.sets.map(set => ({ ...set, maxelem: maxelemFor(count) })) }];
    };
    for (const count of [10, 65_536, 65_537, 200_000, 70_000]) {
      expect(ipv4(await driver.apply(sized(count)))).toMatchObject({ ok: true });
      const listed = await bench.ns.sh(`ipset list -t masq4-all-pools | sed -n 's/^Number of entries: //p'`);
      expect(Number(listed)).toBe(count);
    }
    expect(await bench.ns.sh('ipset list -n')).toBe('masq4-all-pools\nmasq4-masq-pools\n');
    await bench.ns.close();
  });
});
