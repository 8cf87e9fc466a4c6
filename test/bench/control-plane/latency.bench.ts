// From the answer of the API call to the change in the kernel: operator and applier as they run, one node. And what the
// applier costs when nothing happens.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { openLab } from '../../cluster/lab.ts';
import { pool } from '../../kernel/scene.ts';
import { quantile } from '../measure.ts';
import { publish, usageOf } from './figures.ts';

const TOGGLES = 200;
const IDLE_MS = 60_000;

// Asks every millisecond or two: that much the figures can be too high. One address of the toggled pool.
const WATCH_SET = `
state=
while :; do
  if ipset -q test masq4-masq-pools 10.244.1.5; then now=in; else now=out; fi
  if [ "$now" != "$state" ]; then echo "$now $EPOCHREALTIME"; state=$now; fi
  read -t 0.0005 <> <(:) || :
done`;

const now = (): number => performance.timeOrigin + performance.now();

it('a toggle of natOutgoing, and an idle applier', async () => {
  const lab = await openLab({}, new AbortController().signal);
  try {
    const operator = await lab.startOperator();
    const node = await lab.addNode('worker-1');
    await lab.cluster.apply(pool('always', '10.200.0.0/16'));
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await node.sees({ source: '10.244.1.5', destination: '8.8.8.8' }, node.address[4]);

    const watcher = node.world.spawnInNode(['bash', '-c', WATCH_SET]);
    const lines = createInterface({ input: watcher.stdout })[Symbol.asyncIterator]();
    const nextFlip = async (): Promise<number> => {
      const { value } = await lines.next();
      return Number(String(value).split(' ')[1]) * 1000;
    };
    await nextFlip();
    const times: number[] = [];
    for (let i = 0; i < TOGGLES; i++) {
      const flipped = nextFlip();
      await lab.cluster.patch('IPPool/v1', 'main', { spec: { natOutgoing: i % 2 === 1 } });
      const answered = now();
      times.push((await flipped) - answered);
      await sleep(50 + Math.random() * 100);
    }
    watcher.kill('SIGKILL');
    expect(times.length).toBe(TOGGLES);

    await sleep(10_000);
    const before = await usageOf(node.applier().pid);
    await sleep(IDLE_MS);
    const after = await usageOf(node.applier().pid);
    const ofOperator = await usageOf(operator.pid);
    await publish('latency', [
      {
        what: 'API call answered → set changed, median of 200 toggles',
        value: quantile(times, 0.5),
        unit: 'ms',
        atMost: 20,
      },
      { what: 'the same, 99 of 100', value: quantile(times, 0.99), unit: 'ms', atMost: 80 },
      { what: 'the same, worst', value: Math.max(...times), unit: 'ms' },
      { what: 'applier idle, resident', value: after.rss, unit: 'MB', atMost: 50 },
      { what: 'applier idle, anonymous', value: after.anonymous, unit: 'MB', atMost: 20 },
      {
        what: 'applier idle, of one core',
        value: ((after.cpu - before.cpu) / IDLE_MS) * 100_000,
        unit: '%',
        atMost: 0.2,
      },
      { what: 'operator, resident', value: ofOperator.rss, unit: 'MB', atMost: 200 },
    ]);
  } finally {
    await lab.close();
  }
});
