// The applier alone, with plans written by hand as an operator of any version could write them.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEFAULT_OPTIONS } from '../../src/planner/assemble.ts';
import { type MasqPlanSpec, planObjects } from '../../src/planner/plan-objects.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
const IN_LIST = '100.1.2.3';

interface NodeStatus {
  readonly contentHash?: string;
  readonly driftRepairs?: number;
  readonly conditions?: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
  }[];
}

/** The objects of the plan that follows from these manifests. */
const planOf = async (name: string, objects: readonly object[]): Promise<readonly MasqPlanSpec[]> => {
  const text = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects });
  const { snapshot } = await loadManifests(['-'], () => Promise.resolve(text));
  return planObjects(planNode(snapshot, 'worker-1', DEFAULT_OPTIONS).plan, name);
};

describe('an applier', () => {
  let lab: Lab;
  let node: LabNode;
  const signal = new AbortController().signal;
  const POOL = pool('main', '10.244.0.0/16');
  const KEEP = policy('keep', [{ to: [block('8.8.0.0/16')], action: 'Preserve' }]);

  beforeAll(async () => {
    lab = await openLab({}, signal);
    node = await lab.addNode('worker-1');
  });
  afterAll(() => lab?.close());

  const write = async (specs: readonly MasqPlanSpec[]): Promise<void> => {
    for (const spec of specs.toReversed()) {
      const name = spec.part === 0 ? spec.plan : `${spec.plan}-${spec.part}`;
      const metadata = { name, labels: { 'natoutgoing.io/plan': spec.plan } };
      await lab.cluster.apply({ apiVersion: 'natoutgoing.io/v1alpha1', kind: 'MasqPlan', metadata, spec });
    }
  };
  const pointAt = (plan: string): Promise<unknown> =>
    lab.cluster.apply({
      apiVersion: 'natoutgoing.io/v1alpha1',
      kind: 'MasqNode',
      metadata: { name: 'worker-1' },
      spec: { plan },
    });
  /** Waits for a condition of the MasqNode. */
  const says = async (type: string, status: string, reason: string): Promise<NodeStatus> => {
    let last: unknown;
    return waitFor(
      async () => {
        const found = (await lab.cluster.get('MasqNode', 'worker-1')) as unknown as
          | { status?: NodeStatus }
          | undefined;
        last = found?.status;
        const condition = found?.status?.conditions?.find(it => it.type === type);
        return condition?.status === status && condition.reason === reason ? found?.status : undefined;
      },
      { what: `${type}=${status} ${reason}`, limitMs: 20_000, detail: () => JSON.stringify(last) },
    );
  };

  it('does what the plan says, and says so', async () => {
    const specs = await planOf('plan-one', [POOL, KEEP]);
    await write(specs);
    await pointAt('plan-one');
    await node.sees({ source: POD, destination: '9.9.9.9' }, node.address[4]);
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
    expect((await says('Ready', 'True', 'Programmed')).contentHash).toBe(specs[0]?.contentHash);
  });

  it.each([
    ['of a version that it does not know', 'PlanNotUnderstood', { schemaVersion: 2 }],
    ['whose parts do not fit together', 'PlanIncomplete', { kubeMark: 1 }],
    ['of which a part is missing', 'PlanIncomplete', { of: 2 }],
  ])('keeps the last good plan when it gets one %s', async (_, reason, change) => {
    const [spec] = await planOf('plan-one', [POOL]);
    await write([{ ...(spec as MasqPlanSpec), ...change }]);
    const { conditions } = await says('Ready', 'False', reason);
    expect(conditions?.find(({ type }) => type === 'Ready')?.message).toMatch(
      /plan-one.*stays in force as it was/,
    );
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
    await write(await planOf('plan-one', [POOL, KEEP]));
    await says('Ready', 'True', 'Programmed');
  });

  it('keeps the old plan until a new one is whole', async () => {
    await pointAt('plan-two');
    const nets = Array.from(
      { length: 60_000 },
      (_, i) => `100.${(i >> 8) & 255}.${i & 255}.0/${i < 65_536 ? 24 : 25}`,
    );
    const sets = {
      apiVersion: 'crd.projectcalico.org/v1',
      kind: 'GlobalNetworkSet',
      metadata: { name: 'long' },
      spec: { nets },
    };
    const long = policy('long', [{ to: [{ networkSets: { names: ['long'] } }], action: 'Preserve' }]);
    const specs = await planOf('plan-two', [POOL, sets, long]);
    expect(specs.length).toBeGreaterThan(1);
    await write(specs.slice(1));
    await says('Ready', 'False', 'PlanIncomplete');
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
    await write(specs.slice(0, 1));
    await node.sees({ source: POD, destination: IN_LIST }, POD);
    expect(await node.seen({ source: POD, destination: FAR })).toBe(node.address[4]);
    await says('Ready', 'True', 'Programmed');
  });

  it('mends what others change, counts it, and tells of it in an Event', async () => {
    await pointAt('plan-one');
    await node.sees({ source: POD, destination: FAR }, POD);
    const flush = { tool: 'iptables-nft', args: ['-t', 'nat', '-F', 'masq-POSTROUTING'], timeoutMs: 5000 };
    expect((await node.world.exec.run(flush)).code).toBe(0);
    // Looks come 5, 10 and 20 s after a write, then every 30 s.
    await waitFor(
      async () =>
        (await node.seen({ source: POD, destination: '9.9.9.9' })) === node.address[4] ? true : undefined,
      {
        what: 'the rules to be mended',
        limitMs: 40_000,
      },
    );
    const event = await waitFor(
      async () =>
        (await lab.cluster.list('Event')).find(
          it => (it as unknown as { reason: string }).reason === 'DriftRepaired',
        ),
      { what: 'an Event', limitMs: 10_000 },
    );
    expect(event).toMatchObject({ type: 'Warning', regarding: { kind: 'MasqNode', name: 'worker-1' } });
    await waitFor(
      async () => {
        const found = (await lab.cluster.get('MasqNode', 'worker-1')) as unknown as { status: NodeStatus };
        return (found.status.driftRepairs ?? 0) > 0 ? true : undefined;
      },
      { what: 'the repair to be counted', limitMs: 10_000 },
    );
  });

  it('puts the last good plan into an empty kernel before the API answers', async () => {
    await node.applier().end('SIGKILL');
    const cleaned = await node.world.exec.run({
      tool: process.execPath,
      args: [lab.command.path, 'cleanup'],
      timeoutMs: 20_000,
    });
    expect(cleaned.code).toBe(0);
    expect(await node.seen({ source: POD, destination: '9.9.9.9' })).toBe(POD);
    await lab.cluster.server.stop();
    await node.startApplier();
    await node.sees({ source: POD, destination: '9.9.9.9' }, node.address[4]);
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
    await lab.cluster.server.start();
    await says('Ready', 'True', 'Programmed');
  });

  it('tells of a rule of another program that is asked first, though not above its jump', async () => {
    const nft = async (stdin: string): Promise<void> => {
      const result = await node.world.exec.run({ tool: 'nft', args: ['-f', '-'], stdin, timeoutMs: 5000 });
      expect(result).toMatchObject({ code: 0, stderr: '' });
    };
    const restart = async (): Promise<void> => {
      await node.applier().end('SIGTERM');
      await node.startApplier();
    };
    await says('Overruled', 'False', 'NoForeignRule');
    await nft('table ip site {\n chain c {\n type nat hook postrouting priority 90\n masquerade\n }\n}\n');
    expect(await node.seen({ source: POD, destination: FAR })).toBe(node.address[4]);
    await restart();
    const { conditions } = await says('Overruled', 'True', 'ForeignRuleWins');
    expect(conditions?.find(({ type }) => type === 'Overruled')?.message).toContain(
      'ipv4: masquerade (nft ip site c rule 1; wins)',
    );
    expect(conditions?.find(({ type }) => type === 'Ready')?.status).toBe('True');
    await nft('delete table ip site\n');
    await restart();
    await says('Overruled', 'False', 'NoForeignRule');
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
  });

  it('leaves the rules when its MasqNode goes, and when it is told to end', async () => {
    await lab.cluster.remove('MasqNode', 'worker-1');
    await pointAt('plan-one');
    // One that was made anew is told everything again.
    await says('Ready', 'True', 'Programmed');
    await lab.cluster.remove('MasqNode', 'worker-1');
    await node.applier().end('SIGTERM');
    expect(await node.seen({ source: POD, destination: FAR })).toBe(POD);
    expect(await node.seen({ source: POD, destination: '9.9.9.9' })).toBe(node.address[4]);
  });
});
