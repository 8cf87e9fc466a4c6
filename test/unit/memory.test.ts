// What was replaced is let go: a run that keeps what the run before kept holds every run that ever was.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import type { IpPool, Snapshot } from '../../src/api/model.ts';
import { type ClusterPlan, planCluster } from '../../src/planner/plan-cluster.ts';
import { type NodePlan, planNode } from '../../src/planner/plan-snapshot.ts';
import { NODE } from '../oracle/arbitraries.ts';
import { createWorld, POD_RULE } from './operator-world.ts';

const ROUNDS = 40;
/** The last ones may live: what is in force, and what the next run compares it with. */
const MAY_LIVE = 4;

const POOL: IpPool = {
  name: 'blue',
  labels: {},
  cidr: { family: 4, base: 0x0af4_0000n, prefix: 16 },
  natOutgoing: true,
  loadBalancerOnly: false,
};

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** How many still live. A WeakRef keeps its object until the job in which it was asked or made has ended. */
async function living(refs: readonly WeakRef<object>[]): Promise<number> {
  await new Promise(resolve => setImmediate(resolve));
  collect();
  return refs.filter(ref => ref.deref() !== undefined).length;
}

describe('after many changes the past is let go', () => {
  it('by the operator', async () => {
    const world = createWorld();
    await world.live(1_000);
    const refs: WeakRef<object>[] = [];
    for (let i = 1; i <= ROUNDS; i += 1) {
      const to = [{ ipBlock: { cidr: `192.0.${i}.0/24` } }];
      world.policy('p', { source: { ipPools: {} }, rules: [{ ...POD_RULE, to }] }, i + 1);
      world.pool('blue', { cidr: '10.244.0.0/16', natOutgoing: i % 2 === 0 });
      for (const object of [world.raw.policies.get('p'), world.raw.pools.get('blue')])
        if (object !== undefined) refs.push(new WeakRef(object));
      await world.live(1_000);
    }
    expect(refs).toHaveLength(2 * ROUNDS);
    expect(JSON.stringify([...world.api.stored.masqplans.values()])).toContain(`192.0.${ROUNDS}.0/24`);
    expect(await living(refs)).toBeLessThanOrEqual(2 * MAY_LIVE);
  });

  const snapshotOf = (i: number): Snapshot => ({
    pools: [{ ...POOL, natOutgoing: i % 2 === 0 }],
    networkSets: [],
    nodes: [{ name: NODE, labels: {}, annotations: {}, addresses: [] }],
    policies: [],
    felixConfigs: [],
  });

  /** Plans a new snapshot again and again, each time with what the last plan kept. */
  const replan = async <T>(step: (snapshot: Snapshot, last: T | undefined) => T): Promise<T | undefined> => {
    const refs: WeakRef<object>[] = [];
    let last: T | undefined;
    for (let i = 1; i <= ROUNDS; i += 1) {
      const snapshot = snapshotOf(i);
      refs.push(new WeakRef(snapshot));
      last = step(snapshot, last);
    }
    expect(await living(refs)).toBeLessThanOrEqual(MAY_LIVE);
    return last;
  };

  it('by the planner of one node', async () => {
    const last = await replan<NodePlan>((snapshot, before) =>
      planNode(snapshot, NODE, undefined, before?.resolver),
    );
    expect(last?.plan.sets.size).toBeGreaterThan(0);
  });

  it('by the planner of all nodes', async () => {
    const last = await replan<ClusterPlan>((snapshot, before) =>
      planCluster(snapshot, undefined, before?.cache),
    );
    expect(last?.groups).toHaveLength(1);
  });
});
