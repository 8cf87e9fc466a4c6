// Rules that other programs are known to make, above and below our jump, on a real kernel: how they are named and
// judged, and that the outside sees just that.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import type { World } from '../../src/demo/model.ts';
import { address, judge, nft, packetOf, seen, sh } from './foreign-support.ts';
import { NAMES, openScene } from './scene.ts';

const CASES = (['nft', 'legacy'] as const).flatMap(backend => FAMILIES.map(family => ({ backend, family })));

describe.each(CASES)('rules of others, ours in iptables-$backend, IPv$family', ({ backend, family }) => {
  const n = NAMES[family];
  const nat = `${n.iptables}-${backend} -t nat`;
  const top = `${n.iptables}-${backend} nat POSTROUTING`;
  const ip = family === 4 ? 'ip' : 'ip6';
  let world: World;
  beforeEach(async () => {
    world = await openScene();
    // Ours gives every packet an address of its own, so that the outside tells who translated it.
    await sh(
      world,
      `${nat} -N masq-POSTROUTING
      ${nat} -A masq-POSTROUTING -s ${n.pods} -j SNAT --to-source ${n.snat}
      ${nat} -A POSTROUTING -j masq-POSTROUTING`,
    );
  });
  afterEach(() => world.close());
  const oursDoesNothing = (): Promise<void> => sh(world, `${nat} -F masq-POSTROUTING`);

  it('ip-masq-agent above wins, and says where', async () => {
    await sh(
      world,
      `${nat} -N IP-MASQ-AGENT
      ${nat} -A IP-MASQ-AGENT -d ${n.datacentre} -m comment --comment "local traffic" -j RETURN
      ${nat} -A IP-MASQ-AGENT -j MASQUERADE
      ${nat} -I POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT`,
    );
    expect(await judge(world.exec, packetOf(n))).toEqual({
      jump: true,
      before: [
        {
          certainty: 'wins',
          doubts: [],
          rule: '-A IP-MASQ-AGENT -j MASQUERADE',
          place: `${top} rule 1 -> chain IP-MASQ-AGENT rule 2`,
          program: 'ip-masq-agent',
          effect: 'masquerades',
          sentence: "It masquerades the packet: it leaves with the node's address.",
        },
      ],
      after: [],
    });
    expect(await seen(world, n)).toBe(n.node);
    const spared = { ...packetOf(n), destination: address(n.inDatacentre) };
    expect(await judge(world.exec, spared)).toEqual({ jump: true, before: [], after: [] });
  });

  it('kube-proxy above wins for packets with its mark alone', async () => {
    await sh(
      world,
      `${nat} -N KUBE-POSTROUTING
      ${nat} -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
      ${nat} -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
      ${nat} -A KUBE-POSTROUTING -j MASQUERADE --random-fully
      ${nat} -I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
    );
    expect(await judge(world.exec, packetOf(n))).toEqual({ jump: true, before: [], after: [] });
    expect(await seen(world, n)).toBe(n.snat);
    const { before } = await judge(world.exec, { ...packetOf(n), mark: 0x4001 });
    expect(before).toMatchObject([
      { certainty: 'wins', program: 'kube-proxy', place: `${top} rule 1 -> chain KUBE-POSTROUTING rule 3` },
    ]);
    await sh(world, `${n.iptables}-${backend} -t mangle -A PREROUTING -s ${n.pod} -j MARK --set-mark 0x4001`);
    expect(await seen(world, n)).toBe(n.node);
  });

  it('what stands below is what comes after us', async () => {
    await sh(
      world,
      `${nat} -A POSTROUTING -s ${n.pods} ! -o docker0 -j MASQUERADE
      ${nat} -A POSTROUTING -j ACCEPT`,
    );
    const judgement = await judge(world.exec, packetOf(n));
    expect(judgement.before).toEqual([]);
    expect(judgement.after).toMatchObject([
      { certainty: 'wins', effect: 'masquerades', program: 'Docker', place: `${top} rule 2` },
    ]);
    expect(await seen(world, n)).toBe(n.snat);
    await oursDoesNothing();
    expect(await seen(world, n)).toBe(n.node);
  });

  it('ACCEPT above keeps us from being asked, and a later chain is asked all the same', async () => {
    await sh(world, `${nat} -I POSTROUTING -o eth+ -j ACCEPT`);
    await nft(
      world,
      `table ${ip} late {
        chain c {
          type nat hook postrouting priority 110
          masquerade
        }
      }
`,
    );
    const { before, after } = await judge(world.exec, packetOf(n));
    expect(before).toMatchObject([{ certainty: 'wins', effect: 'accepts', place: `${top} rule 1` }]);
    expect(after).toMatchObject([
      { certainty: 'wins', effect: 'masquerades', place: `nft ${ip} late c rule 1` },
    ]);
    expect(await seen(world, n)).toBe(n.node);
  });

  it('an identity above binds the own address', async () => {
    await sh(world, `${nat} -I POSTROUTING -j NETMAP --to ${n.identity}`);
    const { before } = await judge(world.exec, packetOf(n));
    expect(before).toMatchObject([{ certainty: 'wins', effect: 'keeps', address: n.pod }]);
    expect(await seen(world, n)).toBe(n.pod);
  });

  it('a chain of nft at an earlier priority wins', async () => {
    await nft(
      world,
      `
      table inet early {
        chain c {
          type nat hook postrouting priority 90
          ${ip} saddr ${n.otherPods} accept
          meta nfproto ipv${family} oifname "eth*" snat ${ip} to ${n.nodeOnSecond} comment "x"
        }
      }
`,
    );
    const { before, after } = await judge(world.exec, packetOf(n));
    expect(before).toMatchObject([
      { certainty: 'wins', effect: 'SNATs', address: n.nodeOnSecond, place: 'nft inet early c rule 2' },
    ]);
    expect(before[0]?.rule).toContain('oifname "eth*" snat');
    expect(after).toEqual([]);
    expect(await seen(world, n)).toBe(n.nodeOnSecond);
  });

  it('Felix in nftables mode comes after us, by its sets', async () => {
    const type = family === 4 ? 'ipv4_addr' : 'ipv6_addr';
    await nft(
      world,
      `
      table ${ip} calico {
        set cali${family}0masq-ipam-pools {
          type ${type}; flags interval; elements = { ${n.pods} }
        }
        set cali${family}0network-ip-pools {
          type ${type}; flags interval; elements = { ${n.pods} }
        }
        chain nat-cali-nat-outgoing {
          ${ip} saddr @cali${family}0masq-ipam-pools ${ip} daddr != @cali${family}0network-ip-pools counter masquerade fully-random
        }
        chain nat-cali-POSTROUTING {
          counter jump nat-cali-nat-outgoing
        }
        chain nat-POSTROUTING {
          type nat hook postrouting priority srcnat + 10; policy accept
          counter jump nat-cali-POSTROUTING
        }
      }
`,
    );
    const { before, after } = await judge(world.exec, packetOf(n));
    expect(before).toEqual([]);
    expect(after).toMatchObject([
      {
        certainty: 'wins',
        program: "Calico's Felix",
        place: `nft ${ip} calico nat-POSTROUTING rule 1 -> chain nat-cali-POSTROUTING rule 1 -> chain nat-cali-nat-outgoing rule 1`,
      },
    ]);
    const toPod = { ...packetOf(n), destination: address(n.peer) };
    expect(await judge(world.exec, toPod)).toEqual({ jump: true, before: [], after: [] });
    expect(await seen(world, n)).toBe(n.snat);
    await oursDoesNothing();
    expect(await seen(world, n)).toBe(n.node);
  });

  it('a match that is not understood makes a rule possible, not certain', async () => {
    await sh(world, `${nat} -I POSTROUTING -m statistic --mode nth --every 1 --packet 0 -j MASQUERADE`);
    const { before, after } = await judge(world.exec, packetOf(n));
    expect(before).toMatchObject([
      {
        certainty: 'may win',
        doubts: ['not understood: -m statistic --mode nth --every 1 --packet 0'],
      },
    ]);
    expect(after).toEqual([]);
    expect(await seen(world, n)).toBe(n.node);
  });

  it('a comment plays no rule', async () => {
    await sh(
      world,
      `${nat} -A POSTROUTING -p sctp -m comment --comment 'a
-A POSTROUTING -j MASQUERADE
-A POSTROUTING -j "x' -j MASQUERADE`,
    );
    expect(await judge(world.exec, packetOf(n))).toEqual({ jump: true, before: [], after: [] });
    await oursDoesNothing();
    expect(await seen(world, n)).toBe(n.pod);
  });
});
