// Rules that other programs are known to make, above and below our jump, on a real kernel: how they are named and
// judged, and that the outside sees just that.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES, parseAddress } from '../../src/cidr/address.ts';
import type { World } from '../../src/demo/model.ts';
import type { Command, Exec } from '../../src/kernel/exec.ts';
import { type Judgement, judgeForeign, readForeignFacts, readNatRules } from '../../src/kernel/foreign.ts';
import { UNKNOWN_ORDER } from '../../src/kernel/foreign-order.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { openNamespace } from './namespace.ts';
import { addressOf, NAMES, type Names, openScene } from './scene.ts';

const PORT = 443;
const CASES = (['nft', 'legacy'] as const).flatMap(backend => FAMILIES.map(family => ({ backend, family })));

const address = (text: string): Packet['source'] => {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
};

/** From a pod to the internet. */
const packetOf = (n: Names): Packet => ({
  source: address(n.pod),
  destination: address(n.internet),
  protocol: 'UDP',
  destinationPort: PORT,
  outInterface: 'eth0',
});

async function judge(exec: Exec, packet: Packet): Promise<Judgement> {
  const rules = await readNatRules(exec, packet.source.family);
  expect(rules.gaps).toEqual([]);
  return judgeForeign(rules, packet, await readForeignFacts(exec, rules, packet));
}

/** What the outside sees of the packet. */
const seen = async (world: World, n: Names): Promise<string> =>
  addressOf(
    await world.send({
      from: 'pod',
      source: n.pod,
      destination: n.internet,
      protocol: 'udp',
      destinationPort: PORT,
    }),
  );

async function sh(world: World, script: string): Promise<void> {
  const result = await world.exec.run({ tool: 'sh', args: ['-e'], stdin: script, timeoutMs: 20_000 });
  if (result.code !== 0) throw new Error(`${script}\n${result.stderr}`);
}

async function nft(world: World, input: string): Promise<void> {
  const result = await world.exec.run({ tool: 'nft', args: ['-f', '-'], stdin: input, timeoutMs: 20_000 });
  if (result.code !== 0) throw new Error(`${input}\n${result.stderr}`);
}

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

describe.each(FAMILIES)('rules of two languages in one place, IPv%i', family => {
  const n = NAMES[family];
  const ip = family === 4 ? 'ip' : 'ip6';
  let world: World;
  beforeEach(async () => {
    world = await openScene();
  });
  afterEach(() => world.close());

  const JUMP = `${n.iptables}-nft -t nat -N masq-POSTROUTING; ${n.iptables}-nft -t nat -A POSTROUTING -j masq-POSTROUTING`;
  const LEGACY = `${n.iptables}-legacy -t nat -A POSTROUTING -j SNAT --to-source ${n.snat}`;
  const BELOW = `${n.iptables}-nft -t nat -A POSTROUTING -j SNAT --to-source ${n.nodeOnSecond}`;

  it.each([
    { order: 'legacy loaded last', script: [JUMP, BELOW, LEGACY], first: n.snat },
    { order: 'nft loaded last', script: [LEGACY, JUMP, BELOW], first: n.nodeOnSecond },
  ])('of both backends the order is not known: $order', async ({ script, first }) => {
    await sh(world, script.join('\n'));
    const { before, after } = await judge(world.exec, packetOf(n));
    expect(before).toMatchObject([{ certainty: 'may win', doubts: [UNKNOWN_ORDER], address: n.snat }]);
    expect(after).toMatchObject([{ certainty: 'wins', address: n.nodeOnSecond }]);
    expect(await seen(world, n)).toBe(first);
  });

  it("a rule of nft in iptables' POSTROUTING is read by nft", async () => {
    await sh(
      world,
      `${JUMP}
      ${n.iptables}-nft -t nat -A POSTROUTING -m statistic --mode random --probability 0 -j SNAT --to-source ${n.snat}
      nft add rule ${ip} nat POSTROUTING ct mark 5 masquerade
      nft add rule ${ip} nat POSTROUTING ${ip} daddr ${n.internet} masquerade`,
    );
    const { jump, before, after } = await judge(world.exec, packetOf(n));
    expect({ jump, before }).toEqual({ jump: true, before: [] });
    expect(after).toMatchObject([
      { certainty: 'may win', effect: 'SNATs', doubts: ['not understood: -m statistic'] },
      { certainty: 'may win', effect: 'masquerades', doubts: ['not understood: ct mark'] },
      { certainty: 'wins', effect: 'masquerades', place: `nft ${ip} nat POSTROUTING rule 4` },
    ]);
    expect(await seen(world, n)).toBe(n.node);
  });

  it('of chains in one table the younger is asked first', async () => {
    await nft(
      world,
      `
      table inet two {
        chain a {
          type nat hook postrouting priority 120
          ${ip} saddr ${n.pods} snat ${ip} to ${n.snat}
        }
        chain b {
          type nat hook postrouting priority 120
          ${ip} saddr ${n.pods} snat ${ip} to ${n.nodeOnSecond}
        }
      }
`,
    );
    const { jump, after } = await judge(world.exec, packetOf(n));
    expect(jump).toBe(false);
    expect(after).toMatchObject([{ certainty: 'wins', address: n.nodeOnSecond }]);
    expect(await seen(world, n)).toBe(n.nodeOnSecond);
  });
});

describe('reading', () => {
  it('makes nothing exist', async () => {
    const namespace = await openNamespace();
    try {
      const state = (): Promise<string> =>
        namespace.sh(
          'nft list ruleset; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names; ipset list',
        );
      const empty = await state();
      for (const family of FAMILIES) {
        const packet = packetOf(NAMES[family]);
        expect(await judge(namespace.exec, packet)).toEqual({ jump: false, before: [], after: [] });
      }
      expect(await state()).toBe(empty);
      expect(empty).toBe('');
    } finally {
      await namespace.close();
    }
  });

  it('is quick beside 25,000 service rules', async () => {
    const namespace = await openNamespace();
    try {
      const chains = Array.from({ length: 5000 }, (_, i) => `KUBE-SVC-${i}`);
      const lines = [
        '*nat',
        ...chains.map(chain => `:${chain} - [0:0]`),
        ...chains.flatMap((chain, i) =>
          Array.from({ length: 5 }, (_, j) => `-A ${chain} -s 10.96.${i % 256}.${j}/32 -j ACCEPT`),
        ),
        '-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE',
        'COMMIT',
      ];
      for (const tool of ['iptables-nft-restore', 'iptables-legacy-restore']) {
        const restored = await namespace.exec.run({
          tool,
          args: [],
          stdin: `${lines.join('\n')}\n`,
          timeoutMs: 30_000,
        });
        expect(restored).toMatchObject({ code: 0 });
      }
      const ran: Command[] = [];
      const exec: Exec = {
        run: (command, signal) => {
          ran.push(command);
          return namespace.exec.run(command, signal);
        },
      };
      const start = performance.now();
      const { after } = await judge(exec, packetOf(NAMES[4]));
      const took = performance.now() - start;
      expect(after).toHaveLength(2);
      const listed = ran.filter(({ tool, args }) => tool === 'iptables-nft' && args.includes('-S'));
      expect(listed.map(({ args }) => args.slice(-2))).toEqual([['-S', 'POSTROUTING']]);
      // 0.6 s on two busy cores; a dump of the whole table by nft would take longer than that alone.
      expect(took).toBeLessThan(3000);
    } finally {
      await namespace.close();
    }
  });
});
