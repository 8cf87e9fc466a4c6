// Snapshots in which most packets meet a rule: the policies of several random snapshots over pools that hold the pods.
import fc from 'fast-check';
import type { IpPool, MasqPolicy, Snapshot } from '../../src/api/model.ts';
import { FAMILIES } from '../../src/cidr/address.ts';
import { SMALL, type SnapshotSize, snapshots } from './arbitraries.ts';
import { POD_RANGE } from './universe.ts';

/** Pods of both families are in a pool; random pools nest in it. */
const poolsOfPods = (natOutgoing: boolean): readonly IpPool[] =>
  FAMILIES.map(family => ({
    name: `pods-${family}`,
    labels: { tier: 'x' },
    cidr: POD_RANGE[family],
    natOutgoing,
    loadBalancerOnly: false,
  }));

/** The policies of `parts` random snapshots in one; only some keep their nodeSelector. */
export const busySnapshots = (parts: number, size: SnapshotSize = SMALL): fc.Arbitrary<Snapshot> =>
  fc
    .tuple(fc.array(snapshots(size), { minLength: parts, maxLength: parts }), fc.boolean())
    .map(([all, natOutgoing]) => {
      const [first] = all as [Snapshot, ...Snapshot[]];
      return {
        ...first,
        pools: [...first.pools, ...poolsOfPods(natOutgoing)],
        policies: all.flatMap((one, i) =>
          one.policies.map((policy, k) => relieved(policy, `${policy.name}-${i}`, k)),
        ),
      };
    });

function relieved(policy: MasqPolicy, name: string, index: number): MasqPolicy {
  const { nodeSelector, ...spec } = policy.spec;
  const kept = index % 3 === 2 && nodeSelector !== undefined ? { nodeSelector } : {};
  return { ...policy, name, spec: { ...spec, ...kept } };
}
