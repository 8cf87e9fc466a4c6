// Rules of others that are asked before ours, wherever they stand: what is said of them, and what the outside sees.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { setOf } from '../../src/cidr/address-set.ts';
import type { World } from '../../src/demo/model.ts';
import { readRivals } from '../../src/kernel/foreign/rivals.ts';
import { commandBlocks } from '../documents.ts';
import { cidr, nft, seen, sh } from './foreign-support.ts';
import { NAMES, openScene } from './scene.ts';

const CASES = (['nft', 'legacy'] as const).flatMap(backend => FAMILIES.map(family => ({ backend, family })));

describe.each(CASES)('ours in iptables-$backend, IPv$family', ({ backend, family }) => {
  const n = NAMES[family];
  const nat = `${n.iptables}-${backend} -t nat`;
  const otherBackend = backend === 'nft' ? 'legacy' : 'nft';
  const other = `${n.iptables}-${otherBackend} -t nat`;
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
  const rivals = async (...pods: readonly string[]) => {
    const found = await readRivals(
      world.exec,
      setOf(family, (pods.length === 0 ? [n.pods] : pods).map(cidr)),
    );
    expect(found.gaps).toEqual([]);
    return found.rules;
  };

  it('ip-masq-agent left over in the other backend may win: of equal priority the younger is asked first', async () => {
    await sh(
      world,
      `${other} -N IP-MASQ-AGENT
      ${other} -A IP-MASQ-AGENT -d ${n.datacentre} -j RETURN
      ${other} -A IP-MASQ-AGENT -j MASQUERADE
      ${other} -A POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT`,
    );
    expect(await rivals()).toMatchObject([
      {
        certainty: 'may win',
        program: 'ip-masq-agent',
        effect: 'masquerades',
        place: `${n.iptables}-${otherBackend} nat POSTROUTING rule 1 -> chain IP-MASQ-AGENT rule 2`,
      },
    ]);
    // It is the younger here.
    expect(await seen(world, n)).toBe(n.node);
  });

  it('the commands of docs/migration.md take the chain of ip-masq-agent away', async () => {
    await sh(
      world,
      `${nat} -N IP-MASQ-AGENT
      ${nat} -A IP-MASQ-AGENT -d ${n.datacentre} -m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE" -j RETURN
      ${nat} -A IP-MASQ-AGENT -m comment --comment "ip-masq-agent: outbound traffic (must be last in chain)" -j MASQUERADE
      ${nat} -I POSTROUTING -m comment --comment "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL traffic to our chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT`,
    );
    expect(await rivals()).toMatchObject([{ certainty: 'may win', program: 'ip-masq-agent' }]);
    expect(await seen(world, n)).toBe(n.node);
    const script = commandBlocks('docs/migration.md').at(-1)?.script ?? '';
    expect(script).toContain('-X IP-MASQ-AGENT');
    await sh(world, script.replaceAll(/\biptables\b/g, `${n.iptables}-${backend}`));
    expect(await rivals()).toEqual([]);
    expect(await seen(world, n)).toBe(n.snat);
    const left = await world.exec.run({
      tool: `${n.iptables}-${backend}-save`,
      args: ['-t', 'nat'],
      timeoutMs: 10_000,
    });
    expect(left.stdout).not.toContain('IP-MASQ-AGENT');
  });

  it('a chain of nft at an earlier priority wins for the pods that it is about', async () => {
    await nft(
      world,
      `table inet early {
        chain c {
          type nat hook postrouting priority 90
          ${ip} saddr ${n.pods} masquerade
        }
      }
`,
    );
    const rule = { program: undefined, effect: 'masquerades', place: 'nft inet early c rule 1' };
    expect(await rivals()).toMatchObject([{ certainty: 'wins', place: rule.place }]);
    expect(await rivals(n.pods, n.otherPods)).toMatchObject([
      { certainty: 'may win', doubts: [expect.stringContaining('it depends on the source')] },
    ]);
    expect(await rivals(n.otherPods)).toEqual([]);
    expect(await seen(world, n)).toBe(n.node);
  });

  it('ACCEPT above our jump keeps us from being asked', async () => {
    await sh(world, `${nat} -I POSTROUTING -o eth+ -j ACCEPT`);
    expect(await rivals()).toMatchObject([{ effect: 'accepts', certainty: 'may win' }]);
    expect(await seen(world, n)).toBe(n.pod);
  });

  it('Felix in eBPF mode above us may win: its own programs set the mark that it asks for', async () => {
    await sh(
      world,
      `${nat} -N cali-POSTROUTING
      ${nat} -A cali-POSTROUTING -m mark --mark 0xc3800000/0xf3800000 -j MASQUERADE
      ${nat} -I POSTROUTING -j cali-POSTROUTING`,
    );
    expect(await rivals()).toMatchObject([
      {
        certainty: 'may win',
        program: "Calico's Felix",
        doubts: [expect.stringContaining('the mark is not known')],
      },
    ]);
    expect(await seen(world, n)).toBe(n.snat);
    await sh(
      world,
      `${n.iptables}-${backend} -t mangle -A PREROUTING -s ${n.pod} -j MARK --set-mark 0xc3800000`,
    );
    expect(await seen(world, n)).toBe(n.node);
  });

  it('what acts on its own marks, sources or later than we do is none', async () => {
    for (const tool of [nat, other]) {
      await sh(
        world,
        `${tool} -N KUBE-POSTROUTING
        ${tool} -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
        ${tool} -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
        ${tool} -A KUBE-POSTROUTING -j MASQUERADE --random-fully
        ${tool} -I POSTROUTING -j KUBE-POSTROUTING
        ${tool} -N CNI-HOSTPORT-MASQ
        ${tool} -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
        ${tool} -I POSTROUTING -j CNI-HOSTPORT-MASQ
        ${tool} -N ts-postrouting
        ${tool} -A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
        ${tool} -I POSTROUTING -j ts-postrouting
        ${tool} -I POSTROUTING -s ${n.otherPods} ! -o docker0 -j MASQUERADE`,
      );
    }
    await nft(
      world,
      `table ${ip} kube-proxy {
        chain masquerading {
          meta mark & 0x4000 == 0 return
          meta mark set meta mark ^ 0x4000
          masquerade fully-random
        }
        chain nat-postrouting {
          type nat hook postrouting priority srcnat
          jump masquerading
        }
      }
      table inet firewalld {
        chain nat_POSTROUTING {
          type nat hook postrouting priority srcnat + 10
          oifname "eth0" masquerade
        }
      }
`,
    );
    await sh(world, `${nat} -A POSTROUTING -s ${n.pods} ! -d ${n.pods} -j MASQUERADE`);
    expect(await rivals()).toEqual([]);
    expect(await seen(world, n)).toBe(n.snat);
  });
});
