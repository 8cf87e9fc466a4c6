// What shall be in the API for a snapshot: the same bytes for the same snapshot, and what comes back is recognised.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Snapshot } from '../../src/api/model.ts';
import { desiredObjects } from '../../src/operator/desired.ts';
import { createSnapshotReader } from '../../src/operator/snapshot.ts';
import { projectOf } from '../../src/operator/sources.ts';
import { planCluster } from '../../src/planner/plan-cluster.ts';
import { snapshots } from '../oracle/arbitraries.ts';
import { desiredFor } from './operator-hand.ts';
import { plain, rawOf } from './operator-support.ts';

describe('what is desired', () => {
  it('is the same, byte for byte, for equal snapshots', () => {
    fc.assert(
      fc.property(snapshots(), snapshot => {
        const turned = Object.fromEntries(
          Object.entries(snapshot).map(([key, list]) => [key, (list as readonly unknown[]).toReversed()]),
        ) as unknown as Snapshot;
        expect(JSON.stringify(desiredFor(turned))).toBe(JSON.stringify(desiredFor(snapshot)));
      }),
    );
  });

  it('gives what was there already, as it comes back, the digest of the desired', () => {
    fc.assert(
      fc.property(snapshots(), snapshot => {
        const desired = desiredFor(snapshot);
        const back = (body: object) =>
          plain({ ...body, metadata: { ...(body as { metadata: object }).metadata, uid: 'u' } }) as never;
        for (const part of desired.plans.flatMap(({ parts }) => parts))
          expect(projectOf('masqPlans')(back(part.body))['digest']).toBe(part.digest);
        for (const node of desired.nodes)
          expect(projectOf('masqNodes')(back(node.body))['digest']).toBe(node.digest);
      }),
    );
  });

  it('leaves out nodes of Windows, whose addresses count', () => {
    const nodes = [
      { name: 'l', labels: { 'kubernetes.io/os': 'linux' } },
      { name: 'u', labels: {} },
      { name: 'w', labels: { 'kubernetes.io/os': 'windows' } },
    ].map(({ name, labels }, i) => ({
      name,
      labels,
      annotations: {},
      addresses: [
        { type: 'InternalIP' as const, address: { family: 4 as const, value: 0xc0a80101n + BigInt(i) } },
      ],
    }));
    const spec = {
      priority: 500,
      enforcementMode: 'Enforce',
      source: { ipPools: { natOutgoing: 'Any' } },
      rules: [{ name: 'r', to: [{ scope: 'Nodes' }], action: 'Preserve', portAllocation: 'FullyRandom' }],
      defaultAction: 'Continue',
      connectionPolicy: 'Keep',
    } as const;
    const policies = [{ name: 'p', spec }];
    const desired = desiredFor({ pools: [], networkSets: [], nodes, policies, felixConfigs: [] });
    expect(desired.nodes.map(({ name }) => name)).toEqual(['l', 'u']);
    expect(desired.plans.flatMap(plan => plan.nodes)).toEqual(['l', 'u']);
    expect(JSON.stringify(desired.plans.map(({ parts }) => parts))).toContain('192.168.1.3/32');
  });

  it('makes nothing anew for a snapshot that did not change', () => {
    fc.assert(
      fc.property(snapshots(), snapshot => {
        const raw = rawOf(snapshot);
        const read = createSnapshotReader();
        const first = planCluster(read(raw).snapshot);
        const { desired, cache } = desiredObjects(first, raw.nodes);
        const again = desiredObjects(
          planCluster(read(raw).snapshot, undefined, first.cache),
          raw.nodes,
          cache,
        );
        again.desired.plans.forEach((plan, i) => expect(plan.parts).toBe(desired.plans[i]?.parts));
        again.desired.nodes.forEach((node, i) => expect(node).toBe(desired.nodes[i]));
      }),
    );
  });
});
