// The product is taken off a cluster: every node cleans itself, whoever does not is named, and what comes back works.
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { REMOVE_ANNOTATION } from '../../src/api/own-group.ts';
import { dump } from '../kernel/dump.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { natoutgoing, type Ran } from '../unit/cli-run.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { writeAccount } from './program.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
const SPARED = '8.8.4.4';

describe('cleanup --all-nodes', () => {
  let lab: Lab;
  let operator: LabOperator;
  let nodes: readonly [LabNode, LabNode];
  let before: readonly string[];
  /** Called as the chart's hook calls it, with the rights that this has and no more. */
  let cleanup: (...args: readonly string[]) => Promise<Ran>;
  const { signal } = new AbortController();
  const rulesOf = ([a, b]: readonly [LabNode, LabNode]): Promise<readonly string[]> =>
    Promise.all([dump(a.world.exec, 'nft'), dump(b.world.exec, 'legacy')]);

  beforeAll(async () => {
    lab = await openLab({}, signal);
    operator = await lab.startOperator();
    nodes = [
      await lab.addNode('worker-a', { applier: false }),
      await lab.addNode('worker-b', { backend: 'legacy', applier: false }),
    ];
    before = await rulesOf(nodes);
    for (const node of nodes) await node.startApplier();
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await lab.cluster.apply(policy('keep', [{ to: [block(`${SPARED}/32`)], action: 'Preserve' }]));
    await inForce();
    const { server } = lab.cluster;
    const token = await lab.cluster.token('natoutgoing-removal');
    const account = join(server.folder, 'removal-account');
    await writeAccount(account, { token, ca: server.ca });
    const pod = ['--api-server', server.url, '--service-account', account];
    cleanup = (...args) => natoutgoing('cleanup', '--all-nodes', ...args, ...pod);
  });
  afterAll(() => lab?.close());

  const inForce = async (): Promise<void> => {
    for (const node of nodes) {
      await node.sees({ source: POD, destination: FAR }, node.address[4]);
      await node.sees({ source: POD, destination: SPARED }, POD);
    }
  };
  const isThere = (path: string): Promise<boolean> =>
    access(path).then(
      () => true,
      () => false,
    );
  const readyReason = async (name: string): Promise<string | undefined> => {
    const node = (await lab.cluster.get('MasqNode', name)) as
      | { status?: { conditions?: readonly { type: string; reason: string }[] } }
      | undefined;
    return node?.status?.conditions?.find(({ type }) => type === 'Ready')?.reason;
  };

  it('leaves every node as it was, and of the objects only those that people made', async () => {
    await operator.end('SIGTERM');
    const ran = await cleanup();
    expect(ran).toMatchObject({ code: 0, stdout: 'nothing of ours is left on 2 nodes\n' });
    expect(ran.stderr).toContain('there is no Deployment natoutgoing/natoutgoing-operator');
    expect(ran.stderr).toContain('2 of 2 nodes hold nothing of ours\n');
    expect(await rulesOf(nodes)).toEqual(before);
    for (const { stateFile } of nodes) expect(await isThere(stateFile)).toBe(false);
    for (const kind of ['MasqNode', 'MasqPlan'] as const) expect(await lab.cluster.list(kind)).toEqual([]);
    expect(await lab.cluster.get('MasqPolicy', 'keep')).toBeDefined();
    // Nor does an applier that is started anew bring anything back.
    await nodes[0].applier().end();
    await nodes[0].startApplier();
    await nodes[0].applier().logged('there is no MasqNode of this node', 20_000);
    expect(await rulesOf(nodes)).toEqual(before);
  });

  it('is undone by an operator that comes back, without a restart of the appliers', async () => {
    operator = await lab.startOperator();
    await inForce();
    for (const { stateFile } of nodes) {
      const there = async (): Promise<true | undefined> => ((await isThere(stateFile)) ? true : undefined);
      await waitFor(there, { what: 'the last good plan to be noted', limitMs: 20_000 }, signal);
    }
  });

  it('that was broken off is undone as well', async () => {
    await operator.end('SIGTERM');
    const name = nodes[0].name;
    await lab.cluster.patch('MasqNode', name, { metadata: { annotations: { [REMOVE_ANNOTATION]: 'now' } } });
    const gone = async (): Promise<true | undefined> =>
      (await readyReason(name)) === 'Removed' ? true : undefined;
    await waitFor(gone, { what: `${name} to say that all is removed`, limitMs: 20_000 }, signal);
    expect(await dump(nodes[0].world.exec, 'nft')).toBe(before[0]);
    operator = await lab.startOperator();
    await inForce();
  });

  it('names the node that does not answer, and is not held up by it', async () => {
    await operator.end('SIGTERM');
    // Its Node has no condition Ready, as that of a node whose kubelet never spoke.
    await nodes[1].applier().end('SIGKILL');
    const rules = await dump(nodes[1].world.exec, 'legacy');
    const ran = await cleanup('--time-limit', '5s', '-o', 'json');
    expect(ran.code).toBe(1);
    expect(JSON.parse(ran.stdout)).toEqual({
      removed: ['worker-a'],
      left: [{ name: 'worker-b', reason: 'its Node is not Ready' }],
    });
    expect(await dump(nodes[0].world.exec, 'nft')).toBe(before[0]);
    expect(await dump(nodes[1].world.exec, 'legacy')).toBe(rules);
    expect(await lab.cluster.list('MasqNode')).toEqual([]);
  });

  it('does nothing while another operator leads', async () => {
    operator = await lab.startOperator();
    await nodes[0].sees({ source: POD, destination: FAR }, nodes[0].address[4]);
    const rules = await dump(nodes[0].world.exec, 'nft');
    const ran = await cleanup('--time-limit', '5s');
    expect(ran).toMatchObject({ code: 2, stdout: '' });
    expect(ran.stderr).toContain('another operator leads');
    expect(await dump(nodes[0].world.exec, 'nft')).toBe(rules);
  }, 120_000);
});
