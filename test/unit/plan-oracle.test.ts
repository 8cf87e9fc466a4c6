// The planner and `decide` against a second, naive reading of the same text, on random clusters and packets.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Scope, Snapshot } from '../../src/api/model.ts';
import type { Address } from '../../src/cidr/address.ts';
import { DEFAULT_OPTIONS } from '../../src/planner/assemble.ts';
import { type Decision, decider, type TraceStep } from '../../src/planner/decide.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { planCluster } from '../../src/planner/plan-cluster.ts';
import type { Plan } from '../../src/planner/plan.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { NODE, snapshots } from '../oracle/arbitraries.ts';
import { packetSeeds, packetsOf } from '../oracle/packets.ts';
import { type OracleOptions, oracle } from '../oracle/snapshot-oracle.ts';
import { address, NODES, POD_RANGE, PODS } from '../oracle/universe.ts';

/** The node's own addresses: one that a tunnel has alone, one elsewhere, one on both. */
const localAddresses = [
  { interface: 'eth1', address: address('10.244.0.129') },
  { interface: 'eth0', address: address('192.168.1.10') },
  { interface: 'eth0', address: address('10.244.0.1') },
  { interface: 'eth1', address: address('10.244.0.1') },
  { interface: 'eth1', address: address('fd00:10:244::ff') },
  { interface: 'eth0', address: address('fd00:1::10') },
];

const options: fc.Arbitrary<OracleOptions> = fc.record({
  kubeMark: fc.constantFrom(0x4000, 0x8000, 0x8000_0000),
  tunnelInterfaces: fc.subarray(['eth0', 'eth1']),
  inheritFelix: fc.boolean(),
  localAddresses: fc.constant(localAddresses),
});

const choice = { sendable: false, marks: [0, 0, 0, 0x4000, 0xc001, 0x8000, 0x8000_0000, 0xffff_ffff] };

const plain = { protocol: 'TCP', destinationPort: 80, outInterface: 'eth0', mark: 0 } as const;
const pickVerdict = ({ action, by }: Decision): Pick<Decision, 'action' | 'by'> => ({ action, by });

/** Pods on the pool default but for what goes to the scope. */
const toScope = (scope: Scope): Snapshot => ({
  pools: [POD_RANGE[4], POD_RANGE[6]].map((cidr, i) => ({
    name: `pool-${i}`,
    labels: {},
    cidr,
    natOutgoing: true,
    loadBalancerOnly: false,
  })),
  networkSets: [],
  nodes: [
    {
      name: NODE,
      labels: {},
      annotations: {},
      addresses: NODES[4].map(address => ({ type: 'InternalIP', address })),
    },
  ],
  felixConfigs: [],
  policies: [
    {
      name: 'spare',
      spec: {
        priority: 500,
        enforcementMode: 'Enforce',
        defaultAction: 'Continue',
        connectionPolicy: 'Keep',
        source: { ipPools: { natOutgoing: 'Any' } },
        rules: [{ name: 'scope', to: [{ scope }], action: 'Preserve', portAllocation: 'FullyRandom' }],
      },
    },
  ],
});

/** The last address before, the first and last of, and the first after every range that the text names. */
const scopeEdges: readonly Address[] = `
  9.255.255.255 10.0.0.0 10.255.255.255 11.0.0.0 100.63.255.255 100.64.0.0 100.127.255.255
  100.128.0.0 169.253.255.255 169.254.0.0 169.254.255.255 169.255.0.0 172.15.255.255 172.16.0.0
  172.31.255.255 172.32.0.0 191.255.255.255 192.0.0.0 192.0.0.255 192.0.1.0 192.0.1.255 192.0.2.0
  192.0.2.255 192.0.3.0 192.88.98.255 192.88.99.0 192.88.99.255 192.88.100.0 192.167.255.255
  192.168.0.0 192.168.255.255 192.169.0.0 198.17.255.255 198.18.0.0 198.19.255.255 198.20.0.0
  198.51.99.255 198.51.100.0 198.51.100.255 198.51.101.0 203.0.112.255 203.0.113.0 203.0.113.255
  203.0.114.0 223.255.255.255 224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.255 0.0.0.0
  10.243.255.255 10.244.0.0 10.244.255.255 10.245.0.0 192.168.1.9 192.168.1.10 fbff:ffff:: fc00::
  fdff:ffff:: fe00:: fe7f:: fe80:: febf:ffff:: fec0:: feff:: ff00:: ffff:: :: fd00:10:243:ffff::
  fd00:10:244:: fd00:10:244:ffff:: fd00:10:245::`
  .trim()
  .split(/\s+/)
  .map(address);

describe('decide on the plan of a snapshot', () => {
  it('says what the text says, whatever the cluster and the packet', { timeout: 120_000 }, () => {
    fc.assert(
      fc.property(
        snapshots(),
        fc.array(packetSeeds, { minLength: 1, maxLength: 40 }),
        options,
        (snapshot, seeds, chosen) => {
          const { plan, values } = planNode(snapshot, NODE, chosen);
          const decideHere = decider(plan, { values, localAddresses });
          for (const packet of packetsOf(snapshot, seeds, choice)) {
            const { portAllocation, uncertain, ...decision } = decideHere(packet);
            expect(decision).toEqual(oracle(snapshot, NODE, chosen, packet));
            expect(uncertain).toEqual([]);
            expect(portAllocation !== undefined).toBe(
              decision.action === 'Masquerade' || decision.action === 'SNAT',
            );
          }
        },
      ),
      { numRuns: 3000 },
    );
  });

  it('says the same on the plans of all nodes at once, also where it takes over parts of an earlier state', {
    timeout: 120_000,
  }, () => {
    // Mostly the policies stay, and what they select changes.
    const parts = fc
      .tuple(fc.subarray(['pools', 'networkSets', 'nodes', 'felixConfigs']), fc.constantFrom(0, 1, 1, 1))
      .map(([kept, policies]) => (policies === 1 ? [...kept, 'policies'] : kept) as (keyof Snapshot)[]);
    fc.assert(
      fc.property(
        snapshots(),
        snapshots(),
        parts,
        fc.array(packetSeeds, { minLength: 30, maxLength: 40 }),
        options,
        (before, after, kept, seeds, chosen) => {
          const snapshot = { ...after, ...Object.fromEntries(kept.map(name => [name, before[name]])) };
          const { cache } = planCluster(before, chosen);
          const { groups, values } = planCluster(snapshot, chosen, cache);
          const packets = packetsOf(snapshot, seeds, choice);
          for (const { name } of snapshot.nodes) {
            const plans = groups.filter(group => group.nodes.includes(name)).map(group => group.plan);
            expect(plans).toHaveLength(1);
            const node = { values: values.get(name) ?? new Map(), localAddresses };
            const decideThere = decider(plans[0] as Plan, node);
            for (const packet of packets) {
              const { portAllocation: _, uncertain: __, ...decision } = decideThere(packet);
              expect(decision).toEqual(oracle(snapshot, name, chosen, packet));
            }
          }
        },
      ),
      { numRuns: 1000 },
    );
  });

  it.each(['ClusterPods', 'Nodes', 'LinkLocal', 'Multicast', 'PrivateUse', 'Reserved'] as const)(
    'knows where %s begins and ends',
    scope => {
      const snapshot = toScope(scope);
      const { plan, values } = planNode(snapshot, NODE);
      const decideHere = decider(plan, { values });
      const all = scopeEdges.map(destination => {
        const source = PODS[destination.family][0] as Address;
        return { ...plain, source, destination };
      });
      for (const packet of all) {
        const { action, by } = oracle(snapshot, NODE, { ...DEFAULT_OPTIONS, localAddresses }, packet);
        expect({ packet, ...pickVerdict(decideHere(packet)) }).toEqual({ packet, action, by });
      }
      const spared = all.filter(packet => decideHere(packet).action === 'Preserve').length;
      expect(spared).toBeGreaterThan(0);
      expect(spared).toBeLessThan(all.length);
    },
  );

  it('says the same about a packet of which less is known, up to the first rule that it calls uncertain', {
    timeout: 120_000,
  }, () => {
    fc.assert(
      fc.property(
        snapshots(),
        fc.array(packetSeeds, { minLength: 1, maxLength: 20 }),
        options,
        fc.constantFrom('protocol' as const, 'destinationPort' as const, 'outInterface' as const),
        (snapshot, seeds, chosen, hidden) => {
          const { plan, values } = planNode(snapshot, NODE, chosen);
          const decideHere = decider(plan, { values, localAddresses });
          const steps = (packet: Packet): readonly Pick<TraceStep, 'asked' | 'outcome'>[] =>
            (decideHere(packet, { trace: true }).trace ?? []).map(({ asked, outcome }) => ({
              asked,
              outcome,
            }));
          for (const packet of packetsOf(snapshot, seeds, choice)) {
            const { [hidden]: _, ...partial } = packet;
            const known = steps(partial);
            const first = known.findIndex(step => step.outcome === 'uncertain');
            const whole = steps(packet);
            if (first < 0) {
              expect(known).toEqual(whole);
            } else {
              expect(known.slice(0, first)).toEqual(whole.slice(0, first));
              expect(known[first]?.asked).toEqual(whole[first]?.asked);
              expect(decideHere(partial).uncertain[0]).toEqual(known[first]?.asked);
            }
          }
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('is asked about every kind of decision by the random clusters', () => {
    const seen = new Set<string>();
    for (const [snapshot, seeds, chosen] of fc.sample(
      fc.tuple(snapshots(), fc.array(packetSeeds, { minLength: 20, maxLength: 20 }), options),
      { numRuns: 500, seed: 1 },
    )) {
      const { plan, values } = planNode(snapshot, NODE, chosen);
      const decideHere = decider(plan, { values, localAddresses });
      for (const packet of packetsOf(snapshot, seeds, choice)) {
        const { action, by, counted, portRange } = decideHere(packet);
        seen.add(`${action} by ${by === null ? 'nobody' : Object.keys(by).join()}`);
        if (counted.length > 0) seen.add('counted');
        if (portRange !== undefined) seen.add('port range');
      }
    }
    expect([...seen].sort()).toEqual([
      'Masquerade by policy,default',
      'Masquerade by policy,rule',
      'Masquerade by poolDefault',
      'Masquerade by tunnel',
      'None by mark',
      'None by nobody',
      'Preserve by policy,default',
      'Preserve by policy,rule',
      'SNAT by policy,rule',
      'SNAT by poolDefault',
      'counted',
      'port range',
    ]);
  });
});
