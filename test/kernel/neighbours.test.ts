// Our rules beside those of Felix and kube-proxy, as real nodes show them, above and below our jump.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { block, NAMES, type Names, openSceneWithDriver, policy, pool, type Scene } from './scene.ts';

/** kube-proxy marks what it will masquerade; here by source port, which needs no Services. */
const MARKED_PORT = 61_000;

async function kubeProxy(scene: Scene, n: Names, place: 'above' | 'below'): Promise<void> {
  const nat = (line: string): Promise<void> => scene.iptables(n.family, `-t nat ${line}`);
  await nat('-N KUBE-POSTROUTING');
  await nat('-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN');
  await nat('-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0');
  await nat('-A KUBE-POSTROUTING -j MASQUERADE --random-fully');
  await nat(`${place === 'above' ? '-I' : '-A'} POSTROUTING -j KUBE-POSTROUTING`);
  await scene.iptables(
    n.family,
    `-t mangle -A PREROUTING -p udp --sport ${MARKED_PORT} -j MARK --set-xmark 0x4000/0x4000`,
  );
}

async function felixByIptables(scene: Scene, n: Names, place: 'above' | 'below'): Promise<void> {
  const nat = (line: string): Promise<void> => scene.iptables(n.family, `-t nat ${line}`);
  const sets = [`cali${n.family}0masq-ipam-pools`, `cali${n.family}0network-ip-pools`] as const;
  const family = n.family === 4 ? 'inet' : 'inet6';
  await scene.run(
    'ipset',
    ['restore'],
    sets.map(set => `create ${set} hash:net family ${family}\nadd ${set} ${n.pods}\n`).join(''),
  );
  await nat('-N cali-POSTROUTING');
  await nat('-N cali-nat-outgoing');
  await nat('-A cali-POSTROUTING -j cali-nat-outgoing');
  await nat(
    `-A cali-nat-outgoing -m set --match-set ${sets[0]} src -m set ! --match-set ${sets[1]} dst -j MASQUERADE --random-fully`,
  );
  await nat(`${place === 'above' ? '-I' : '-A'} POSTROUTING -j cali-POSTROUTING`);
}

/** Felix in nftables mode: a table of its own whose chain is asked after iptables' (srcnat + 10). */
async function felixByNftables(scene: Scene, n: Names): Promise<void> {
  const ip = n.family === 4 ? 'ip' : 'ip6';
  const type = n.family === 4 ? 'ipv4_addr' : 'ipv6_addr';
  await scene.run(
    'nft',
    ['-f', '-'],
    `table ${ip} calico {
      set cali${n.family}0masq-ipam-pools { type ${type}; flags interval; elements = { ${n.pods} } }
      set cali${n.family}0network-ip-pools { type ${type}; flags interval; elements = { ${n.pods} } }
      chain nat-POSTROUTING {
        type nat hook postrouting priority srcnat + 10; policy accept;
        jump nat-cali-nat-outgoing
      }
      chain nat-cali-nat-outgoing {
        ${ip} saddr @cali${n.family}0masq-ipam-pools ${ip} daddr != @cali${n.family}0network-ip-pools masquerade fully-random
      }
    }`,
  );
}

/** One policy of each kind, and pools whose natOutgoing is ours, Felix's, or both's. */
const objects = (n: Names, natOutgoing: boolean): readonly object[] => [
  pool('pods', n.pods, { natOutgoing }),
  policy('keep', [{ to: [block(n.datacentre)], action: 'Preserve' }]),
  policy('bank', [{ to: [block(n.virtual)], action: 'SNAT', snat: { addresses: [n.snat] } }]),
  policy('appliance', [{ to: [block(n.nested)], action: 'Masquerade' }]),
  policy('leave', [{ to: [block(n.second)], action: 'Continue' }]),
];

/** What the outside sees of each kind, when natOutgoing is somebody's. */
async function expectRight(scene: Scene, n: Names): Promise<void> {
  const seen = async (destination: string, more: object = {}): Promise<string> =>
    scene.seen({ source: n.pod, destination, ...more });
  expect(await seen(n.inDatacentre)).toBe(n.pod);
  expect(await seen(n.inDatacentre, { protocol: 'tcp' })).toBe(n.pod);
  expect(await seen(n.inDatacentre, { protocol: 'icmp' })).toBe(n.pod);
  expect(await seen(n.inVirtual)).toBe(n.snat);
  expect(await seen(n.internet)).toBe(n.node);
  expect(await seen(n.inSecond)).toBe(n.nodeOnSecond);
  expect(await scene.seen({ source: n.internet, destination: n.pod, from: 'outside' })).toBe(n.internet);
}

describe.each(['nft', 'legacy'] as const)('beside neighbours, on backend %s', backend => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterEach(() => scene.close());

  describe.each([
    { ours: true, felixs: false },
    { ours: false, felixs: true },
    { ours: true, felixs: true },
  ])('natOutgoing ours: $ours, Felix’s: $felixs', ({ ours, felixs }) => {
    it.each(['above', 'below'] as const)('Felix in iptables mode and kube-proxy %s', async place => {
      for (const family of FAMILIES) {
        await kubeProxy(scene, NAMES[family], 'below');
        if (felixs) await felixByIptables(scene, NAMES[family], 'below');
      }
      const both = FAMILIES.flatMap(family => objects(NAMES[family], ours)).map((object, i) =>
        renamed(object as Named, i),
      );
      await scene.apply(both);
      if (place === 'above') {
        for (const family of FAMILIES) {
          await scene.iptables(family, '-t nat -D POSTROUTING -j KUBE-POSTROUTING');
          await scene.iptables(family, '-t nat -I POSTROUTING -j KUBE-POSTROUTING');
          if (!felixs) continue;
          await scene.iptables(family, '-t nat -D POSTROUTING -j cali-POSTROUTING');
          await scene.iptables(family, '-t nat -I POSTROUTING -j cali-POSTROUTING');
        }
      }
      const report = await scene.driver.verify();
      // kube-proxy's rules are guarded by its mark, so it may stand above; Felix may not.
      expect(report.families.ipv4).toMatchObject({
        ok: true,
        jumpPosition: place === 'above' && !felixs ? 2 : 1,
        changed: place === 'above' && felixs,
      });
      for (const family of FAMILIES) {
        await expectRight(scene, NAMES[family]);
        // What kube-proxy marked is kube-proxy's, even where we would preserve.
        const { pod: source, inDatacentre: destination, node } = NAMES[family];
        expect(await scene.seen({ source, destination, sourcePort: MARKED_PORT })).toBe(node);
      }
    });

    it('Felix in nftables mode', async () => {
      if (felixs) for (const family of FAMILIES) await felixByNftables(scene, NAMES[family]);
      await scene.apply(
        FAMILIES.flatMap(family => objects(NAMES[family], ours)).map((object, i) =>
          renamed(object as Named, i),
        ),
      );
      for (const family of FAMILIES) await expectRight(scene, NAMES[family]);
    });
  });
});

interface Named {
  readonly metadata: { readonly name: string };
}

/** Both families' objects in one cluster, with names of their own. */
const renamed = (object: Named, index: number): object => ({
  ...object,
  metadata: { ...object.metadata, name: `${object.metadata.name}-${index}` },
});
