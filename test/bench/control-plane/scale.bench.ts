// 5,000 nodes, 200 policies, 50 pools: what one toggle writes, when the last node hears of it, and what the operator
// costs. The nodes are watches in this process, as many as appliers would hold.
import { Agent, get } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { it } from 'vitest';
import { mostWithin } from '../../cluster/audit.ts';
import { OPERATOR } from '../../cluster/cluster.ts';
import { type Lab, openLab } from '../../cluster/lab.ts';
import { waitFor } from '../../cluster/wait.ts';
import { block, policy, pool } from '../../kernel/scene.ts';
import { quantile } from '../measure.ts';
import { publish, usageOf } from './figures.ts';

const NODES = 5_000;
const POLICIES = 200;
const POOLS = 50;
const ZONES = ['a', 'b', 'c', 'd'];
const TOGGLES = 20;
const HEALTHY_MS = 60_000;

interface Plan {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly spec: { readonly plan: string; readonly part: number; readonly contentHash?: string };
}

const now = (): number => performance.timeOrigin + performance.now();

async function inParallel<T>(
  items: readonly T[],
  work: (item: T) => Promise<unknown>,
  lanes = 24,
): Promise<void> {
  const queue = items.values();
  const lane = async (): Promise<void> => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

const names = Array.from({ length: NODES }, (_, i) => `node-${i}`);
const zoneOf = (name: string): string => ZONES[Number(name.slice(5)) % ZONES.length] ?? '';

async function fill({ cluster }: Lab): Promise<void> {
  for (let i = 0; i < POOLS; i++) await cluster.apply(pool(`pool-${i}`, `10.${i}.0.0/16`));
  for (let i = 0; i < POLICIES; i++) {
    const rules = [1, 2, 3].map(n => ({
      to: [block(`172.${16 + (i % 16)}.${i >> 4}.${n * 16}/28`)],
      action: 'Preserve',
    }));
    const nodeSelector =
      i % 2 === 0 ? {} : { nodeSelector: { matchLabels: { zone: ZONES[(i >> 1) % ZONES.length] } } };
    await cluster.apply(policy(`policy-${i}`, rules, nodeSelector));
  }
  await inParallel(names, async name => {
    const i = Number(name.slice(5));
    const addresses = [
      { type: 'InternalIP', address: `100.${64 + (i >> 14)}.${(i >> 6) & 255}.${(i & 63) + 1}` },
    ];
    const metadata = { name, labels: { zone: zoneOf(name), 'kubernetes.io/os': 'linux' } };
    await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata, status: { addresses } });
  });
}

/** Says for every node that its kernel holds what its plan has now. */
async function reportAll({ cluster }: Lab): Promise<void> {
  const plans = (await cluster.list('MasqPlan')) as unknown as readonly Plan[];
  const hashes = new Map(
    plans.flatMap(({ spec }) => (spec.part === 0 ? [[spec.plan, spec.contentHash]] : [])),
  );
  const nodes = (await cluster.list('MasqNode')) as unknown as readonly {
    metadata: { name: string; generation: number };
    spec: { plan: string };
  }[];
  const time = new Date().toISOString().replace(/\.\d+Z$/, 'Z');
  await inParallel(nodes, ({ metadata, spec }) =>
    cluster.patch(
      'MasqNode',
      metadata.name,
      {
        status: {
          observedGeneration: metadata.generation,
          plan: spec.plan,
          contentHash: hashes.get(spec.plan),
          lastVerifiedTime: time,
          conditions: [
            { type: 'Ready', status: 'True', reason: 'Programmed', message: '', lastTransitionTime: time },
          ],
        },
      },
      'status',
    ),
  );
}

const LINE_FEED = 0x0a;

/** One watch for each node; `heard` is called with the name of the plan. */
async function watchAll({ cluster }: Lab, heard: (plan: string) => void): Promise<() => void> {
  const { url, ca, token } = cluster.server;
  const nodes = (await cluster.list('MasqNode')) as unknown as readonly { spec: { plan: string } }[];
  const plans = (await cluster.list('MasqPlan')) as unknown as readonly Plan[];
  const version = String(Math.max(...plans.map(({ metadata }) => Number(metadata.resourceVersion))));
  const agent = new Agent({ ca, keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });
  await inParallel(
    nodes,
    ({ spec }) =>
      new Promise<void>((resolve, reject) => {
        const query = new URLSearchParams({
          watch: '1',
          labelSelector: `natoutgoing.io/plan=${spec.plan}`,
          resourceVersion: version,
        });
        const path = `/apis/natoutgoing.io/v1alpha1/masqplans?${query.toString()}`;
        get(new URL(path, url), { agent, headers: { authorization: `Bearer ${token}` } }, response => {
          // An event is a line, and may come in several pieces.
          response.on('data', (chunk: Buffer) => {
            for (let at = chunk.indexOf(LINE_FEED); at >= 0; at = chunk.indexOf(LINE_FEED, at + 1))
              heard(spec.plan);
          });
          response.on('error', () => {});
          resolve();
        }).on('error', reject);
      }),
    64,
  );
  return () => agent.destroy();
}

it('5,000 nodes', async () => {
  const lab = await openLab(
    { flags: ['--max-requests-inflight=3000', '--max-mutating-requests-inflight=1000'] },
    new AbortController().signal,
  );
  try {
    const operator = await lab.startOperator();
    const begun = now();
    await fill(lab);
    await waitFor(async () => ((await lab.cluster.list('MasqNode')).length === NODES ? true : undefined), {
      what: 'all MasqNodes',
      limitMs: 300_000,
      intervalMs: 1000,
    });
    console.log(`filled in ${((now() - begun) / 1000).toFixed(0)} s`);
    const reporting = Date.now();
    await reportAll(lab);
    await waitFor(
      async () => {
        const policies = (await lab.cluster.list('MasqPolicy')) as unknown as readonly {
          status?: { conditions?: readonly { type: string; status: string }[] };
        }[];
        return policies.every(({ status }) =>
          status?.conditions?.some(({ type, status: is }) => type === 'Programmed' && is === 'True'),
        )
          ? true
          : undefined;
      },
      { what: 'all policies to be programmed', limitMs: 120_000, intervalMs: 1000 },
    );
    const statusWrites = async (from: number): Promise<number> =>
      (await lab.cluster.audit()).filter(
        ({ user, resource, verb, at }) =>
          user === OPERATOR && resource === 'masqpolicies' && verb === 'patch' && at >= from,
      ).length;
    const duringReports = await statusWrites(reporting);
    const healthy = Date.now();
    await sleep(HEALTHY_MS);
    const healthyWrites = await statusWrites(healthy);

    let waiting = 0;
    let done = (): void => {};
    const close = await watchAll(lab, () => {
      waiting -= 1;
      if (waiting === 0) done();
    });
    const groups = new Set((await lab.cluster.list('MasqPlan')).map(({ metadata }) => metadata.name)).size;
    const times: number[] = [];
    const toggling = Date.now();
    for (let i = 0; i < TOGGLES; i++) {
      waiting = NODES;
      const all = new Promise<void>(resolve => (done = resolve));
      await lab.cluster.patch('IPPool/v1', 'pool-7', { spec: { natOutgoing: i % 2 === 1 } });
      const answered = now();
      await all;
      times.push(now() - answered);
      await sleep(500);
    }
    const ofOperator = (await lab.cluster.audit()).filter(
      ({ user, at }) => user === OPERATOR && at >= toggling,
    );
    const planWrites = ofOperator.filter(
      ({ resource, verb }) => resource === 'masqplans' && verb !== 'list' && verb !== 'watch',
    ).length;
    close();
    const usage = await usageOf(operator.pid);
    await publish('scale', [
      {
        what: 'plan writes of a toggle, for each group of nodes',
        value: planWrites / TOGGLES / groups,
        unit: '',
        atMost: 1,
      },
      { what: 'groups of nodes', value: groups, unit: '' },
      {
        what: 'API call answered → last of 5,000 watches heard, median',
        value: quantile(times, 0.5),
        unit: 'ms',
      },
      { what: 'the same, worst of 20', value: Math.max(...times), unit: 'ms' },
      { what: 'status writes while 5,000 nodes report (200 policies)', value: duringReports, unit: '' },
      { what: 'status writes in a healthy minute', value: healthyWrites, unit: '', atMost: 5 },
      {
        what: 'requests of the operator within a second, at most',
        value: mostWithin(ofOperator, 1000),
        unit: '',
      },
      { what: 'operator, resident', value: usage.rss, unit: 'MB', atMost: 200 },
      { what: 'operator, anonymous', value: usage.anonymous, unit: 'MB' },
    ]);
  } finally {
    await lab.close();
  }
});
