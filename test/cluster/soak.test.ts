// A long time of changes, damage and repairs beside traffic that none of it is about: no packet of that goes wrong, the
// kernel ends as it began, and memory does not grow. SOAK_SECONDS says how long (make soak: 20 minutes).
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Probe, Prober } from '../../src/demo/model.ts';
import { usageOf } from '../bench/control-plane/figures.ts';
import { dump } from '../kernel/dump.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const SECONDS = Number(process.env['SOAK_SECONDS'] ?? 60);
/** Memory is judged by its slope where there was time for one. */
const JUDGED_FROM_SECONDS = 600;
const MOST_MB_AN_HOUR = 30;
const BACKENDS = ['nft', 'legacy'] as const;
const CHURN_NET = (n: number): string => `9.9.${n}.0/24`;

interface Sample {
  readonly at: number;
  readonly operator: number;
  readonly appliers: number;
}

/** By least squares, in MB an hour. */
function slopeOf(samples: readonly Sample[], of: (sample: Sample) => number): number {
  const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
  const [at, value] = [mean(samples.map(it => it.at)), mean(samples.map(of))];
  const above = samples.reduce((sum, it) => sum + (it.at - at) * (of(it) - value), 0);
  const below = samples.reduce((sum, it) => sum + (it.at - at) ** 2, 0);
  return (above / below) * 3_600_000;
}

const anyOf = <T>(items: readonly T[]): T => items[Math.floor(Math.random() * items.length)] as T;

describe(`${SECONDS} seconds of everything`, () => {
  let lab: Lab;
  let operator: LabOperator;
  let nodes: readonly LabNode[];
  let before: readonly string[];
  const dumps = (): Promise<readonly string[]> =>
    Promise.all(nodes.map((node, i) => dump(node.world.exec, BACKENDS[i] ?? 'nft')));

  beforeAll(async () => {
    lab = await openLab({}, new AbortController().signal);
    operator = await lab.startOperator();
    nodes = [
      await lab.addNode('worker-a', { labels: { zone: 'a' }, backend: BACKENDS[0] }),
      await lab.addNode('worker-b', { labels: { zone: 'b' }, backend: BACKENDS[1] }),
    ];
    for (const [name, cidr] of [
      ['steady', '10.244.0.0/16'],
      ['steady6', 'fd00:244::/48'],
    ] as const) {
      await lab.cluster.apply(pool(name, cidr));
    }
    const rules = [
      { to: [block('8.8.0.0/16')], action: 'Preserve' },
      { to: [block('8.9.0.0/16')], action: 'SNAT', snat: { addresses: ['198.51.100.7'] } },
      { to: [block('2001:db8:ffff::/48')], action: 'Preserve' },
    ];
    await lab.cluster.apply(policy('steady', rules, { priority: 1 }));
    for (const node of nodes) {
      await node.sees({ source: '10.244.1.5', destination: '8.8.8.8' }, '10.244.1.5');
      await node.sees({ source: '10.244.1.5', destination: '1.1.1.1' }, node.address[4]);
    }
    before = await dumps();
  });
  afterAll(() => lab?.close());

  /** What no change and no damage is about, by each protocol and family, and what the outside must see of it. */
  const steady = (node: LabNode): readonly (readonly [Probe, string])[] => {
    const flow = (source: string, destination: string, protocol: Probe['protocol']): Probe => ({
      from: 'pod',
      source,
      destination,
      protocol,
      ...(protocol === 'icmp' ? {} : { destinationPort: 443 }),
    });
    return [
      ...(['udp', 'tcp', 'icmp'] as const).flatMap((protocol): (readonly [Probe, string])[] => [
        [flow('10.244.1.5', '8.8.8.8', protocol), '10.244.1.5'],
        [flow('10.244.1.5', '8.9.1.1', protocol), '198.51.100.7'],
        [flow('10.244.1.5', '1.1.1.1', protocol), node.address[4]],
      ]),
      [flow('fd00:244::1:5', '2001:db8:ffff::1', 'udp'), 'fd00:244::1:5'],
      [flow('fd00:244::1:5', '2001:4860::8', 'tcp'), node.address[6]],
    ];
  };

  const change = async (): Promise<void> => {
    const { cluster } = lab;
    const n = anyOf([1, 2, 3, 4, 5, 6]);
    const nets = Array.from({ length: anyOf([1, 3, 40]) }, (_, i) => block(`9.9.${n}.${i * 4}/30`));
    const rules = [{ to: nets, action: anyOf(['Preserve', 'Masquerade', 'Continue']) }];
    const zone = { nodeSelector: { matchLabels: { zone: anyOf(['a', 'b']) } } };
    await anyOf([
      () => cluster.apply(policy(`churn-${n}`, rules, anyOf([{}, { priority: 100 * n }, zone]))),
      () => cluster.remove('MasqPolicy', `churn-${n}`),
      () => cluster.apply(pool('churn', '10.250.0.0/16', { natOutgoing: anyOf([true, false]) })),
      () => cluster.remove('IPPool/v1', 'churn'),
    ])();
  };

  /** Others that damage what churning policies have in the kernel. */
  const damage = async (): Promise<void> => {
    const [node, backend] = anyOf(nodes.map((it, i) => [it, BACKENDS[i] ?? 'nft'] as const));
    const script = `
      chain=$(iptables-${backend} -t nat -S | sed -n 's/^-N \\(masq-p-churn[^ ]*\\)$/\\1/p' | head -1)
      if [ -n "$chain" ]; then iptables-${backend} -w 5 -t nat -F "$chain"; fi
      for set in $(ipset -n list | grep '^masq4-' | head -40); do ipset -q del "$set" ${CHURN_NET(anyOf([1, 2, 3]))}; done
      ipset create masq4-left-over hash:ip 2>/dev/null
      true`;
    await node.world.exec.run({ tool: 'sh', args: ['-c', script], timeoutMs: 20_000 });
  };

  it('no packet is wrong, nothing is left, memory is flat', {
    timeout: SECONDS * 1000 + 180_000,
  }, async () => {
    const probers: Prober[] = [];
    for (const node of nodes) {
      const probes = steady(node).map(([probe]) => probe);
      probers.push(await node.world.startProbing(probes, { perSecond: 55 }));
    }
    const began = Date.now();
    const samples: Sample[] = [];
    while (Date.now() - began < SECONDS * 1000) {
      await change();
      if (Math.random() < 0.1) await damage();
      if (Date.now() - began > samples.length * 5_000) {
        const of = async (pid: number): Promise<number> => (await usageOf(pid)).rss;
        const appliers = await Promise.all(nodes.map(node => of(node.applier().pid)));
        const sum = appliers.reduce((a, b) => a + b, 0);
        samples.push({
          at: Date.now() - began,
          operator: await of(operator.pid),
          appliers: sum / nodes.length,
        });
      }
      await sleep(Math.random() * 150);
    }
    for (const n of [1, 2, 3, 4, 5, 6]) await lab.cluster.remove('MasqPolicy', `churn-${n}`);
    await lab.cluster.remove('IPPool/v1', 'churn');
    // The left-over set was never ours to use; a look of the running applier takes it away.
    await waitFor(async () => (JSON.stringify(await dumps()) === JSON.stringify(before) ? true : undefined), {
      what: 'both kernels to be as before',
      limitMs: 90_000,
      intervalMs: 500,
      detail: () => before.join('\n'),
    });
    for (const [i, node] of nodes.entries()) {
      const seen = (await probers[i]?.stop()) ?? [];
      const wanted = steady(node);
      expect(seen).toHaveLength(wanted.length);
      for (const [j, [probe, address]] of wanted.entries()) {
        const what = `${node.name}: ${probe.protocol} to ${probe.destination}`;
        expect([...(seen[j]?.seen.keys() ?? [])], what).toEqual([address]);
        expect(seen[j]?.sent, what).toBeGreaterThan(SECONDS);
      }
    }
    expect([operator.ended(), ...nodes.map(node => node.applier().ended())]).toEqual([false, false, false]);
    // What a program makes once, in its first minutes, is no growth.
    const later = samples.slice(Math.floor(samples.length / 2));
    for (const [what, of] of [
      ['operator', (it: Sample) => it.operator],
      ['applier', (it: Sample) => it.appliers],
    ] as const) {
      const [first, last] = [later[0], later.at(-1)].map(it => (it === undefined ? 0 : of(it)).toFixed(1));
      const slope = slopeOf(later, of);
      console.log(`${what}: ${first} to ${last} MB in the second half, ${slope.toFixed(1)} MB an hour`);
      if (SECONDS >= JUDGED_FROM_SECONDS) expect(slope, what).toBeLessThan(MOST_MB_AN_HOUR);
    }
  });
});
