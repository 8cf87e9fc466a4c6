// Reading a real kernel: languages side by side, what reading leaves behind (nothing), and how long it takes.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import type { World } from '../../src/demo/model.ts';
import type { Command, Exec } from '../../src/kernel/exec.ts';
import { UNKNOWN_ORDER } from '../../src/kernel/foreign/order.ts';
import { judge, nft, packetOf, seen, sh } from './foreign-support.ts';
import { openNamespace } from './namespace.ts';
import { NAMES, openScene } from './scene.ts';

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
