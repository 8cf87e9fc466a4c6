// What a policy means, in real packets: each case on both backends, for both families. What counts is the source
// address that the receiver saw.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Probe } from '../../src/demo/model.ts';
import type { PlanOptions } from '../../src/planner/assemble.ts';
import {
  block,
  felix,
  NAMES,
  type Names,
  networkSet,
  node,
  openSceneWithDriver,
  policy,
  pool,
  type Scene,
} from './scene.ts';

/** What is sent, and the source address that the receiver shall see. */
type Expectation = readonly [Partial<Probe> & Pick<Probe, 'source' | 'destination'>, string];

interface Case {
  readonly what: string;
  readonly objects: (n: Names) => readonly object[];
  readonly options?: Partial<PlanOptions>;
  readonly packets: (n: Names) => readonly Expectation[];
}

const from = (source: string, destination: string, more: Partial<Probe> = {}): Expectation[0] => ({
  source,
  destination,
  ...more,
});
const client = { from: 'outside' } as const;
const host = { from: 'node' } as const;
const pods = (n: Names, spec: object = {}): object => pool('pods', n.pods, spec);
const rest = { name: 'rest', action: 'Preserve' };

const CASES: readonly Case[] = [
  {
    what: 'natOutgoing masquerades pods to what is in no pool, and nothing else',
    objects: n => [pods(n), pool('others', n.otherPods, { natOutgoing: false })],
    packets: n => [
      ...(['tcp', 'udp', 'icmp', 'sctp'] as const).map(
        (protocol): Expectation => [from(n.pod, n.internet, { protocol }), n.node],
      ),
      [from(n.pod, n.inSecond), n.nodeOnSecond],
      [from(n.pod, n.peer), n.pod],
      [from(n.otherPod, n.internet), n.otherPod],
      [from(n.internet, n.pod, client), n.internet],
      [from(n.node, n.internet, host), n.node],
    ],
  },
  {
    what: 'the first rule that matches decides, in the order of priority; Continue leaves the policy only',
    objects: n => [
      pods(n),
      policy(
        'late',
        [
          { to: [block(n.datacentre)], action: 'Masquerade' },
          { to: [block(n.second)], action: 'Preserve' },
        ],
        {
          priority: 200,
        },
      ),
      policy(
        'early',
        [
          { to: [block(n.hole)], action: 'Continue' },
          { to: [block(n.datacentre)], action: 'Preserve' },
          { to: [block(n.virtual)], action: 'SNAT', snat: { addresses: [n.snat] } },
        ],
        { priority: 100 },
      ),
    ],
    packets: n => [
      [from(n.pod, n.inDatacentre), n.pod],
      [from(n.pod, n.inHole), n.node],
      [from(n.pod, n.inVirtual, { protocol: 'tcp' }), n.snat],
      [from(n.pod, n.inVirtual, { protocol: 'icmp' }), n.snat],
      [from(n.pod, n.inSecond), n.pod],
      [from(n.pod, n.internet), n.node],
    ],
  },
  {
    what: 'except takes addresses out of a block, and only out of that block',
    objects: n => [
      pods(n, { natOutgoing: false }),
      policy('p', [{ to: [block(n.datacentre, n.hole)], action: 'Masquerade' }]),
      policy('q', [{ to: [block(n.hole)], action: 'SNAT', snat: { addresses: [n.snat] } }]),
    ],
    packets: n => [
      [from(n.pod, n.inDatacentre), n.node],
      [from(n.pod, n.inHole), n.snat],
      [from(n.pod, n.internet), n.pod],
    ],
  },
  {
    what: 'ports and protocols: a rule with ports does not match other protocols',
    objects: n => [
      pods(n, { natOutgoing: false }),
      policy('p', [
        {
          ports: [
            { protocol: 'TCP', port: 443 },
            { protocol: 'UDP', port: 1000, endPort: 1999 },
          ],
          action: 'Masquerade',
        },
        { ports: [{ protocol: 'ICMP' }], action: 'SNAT', snat: { addresses: [n.snat] } },
      ]),
    ],
    packets: n => [
      [from(n.pod, n.internet, { protocol: 'tcp' }), n.node],
      [from(n.pod, n.internet, { protocol: 'tcp', destinationPort: 444 }), n.pod],
      [from(n.pod, n.internet, { protocol: 'udp' }), n.pod],
      [from(n.pod, n.internet, { protocol: 'udp', destinationPort: 1000 }), n.node],
      [from(n.pod, n.internet, { protocol: 'udp', destinationPort: 1999 }), n.node],
      [from(n.pod, n.internet, { protocol: 'udp', destinationPort: 2000 }), n.pod],
      [from(n.pod, n.internet, { protocol: 'icmp' }), n.snat],
      [from(n.pod, n.internet, { protocol: 'sctp' }), n.pod],
    ],
  },
  {
    what: 'more ports than one multiport match takes',
    objects: n => [
      pods(n, { natOutgoing: false }),
      policy('p', [
        {
          ports: Array.from({ length: 16 }, (_, i) => ({ protocol: 'TCP', port: 1000 + 10 * i })),
          action: 'Masquerade',
        },
      ]),
    ],
    packets: n => [
      [from(n.pod, n.internet, { protocol: 'tcp', destinationPort: 1000 }), n.node],
      [from(n.pod, n.internet, { protocol: 'tcp', destinationPort: 1150 }), n.node],
      [from(n.pod, n.internet, { protocol: 'tcp', destinationPort: 1151 }), n.pod],
    ],
  },
  {
    what: 'outInterfaces, by name and by prefix',
    objects: n => [
      pods(n, { natOutgoing: false }),
      policy('one', [{ outInterfaces: ['eth1'], action: 'Masquerade' }], { priority: 1 }),
      policy('many', [{ outInterfaces: ['vxlan+', 'et+'], action: 'SNAT', snat: { addresses: [n.snat] } }]),
    ],
    packets: n => [
      [from(n.pod, n.inSecond), n.nodeOnSecond],
      [from(n.pod, n.internet), n.snat],
      [from(n.pod, n.peer), n.pod],
    ],
  },
  {
    what: 'nested pools: the longest prefix decides, as source and as destination',
    objects: n => [
      pods(n),
      pool('inner', n.nested, { natOutgoing: false }),
      policy(
        'p',
        [
          { to: [{ ipPools: { names: ['inner'] } }], action: 'SNAT', snat: { addresses: [n.snat] } },
          { to: [{ ipPools: { names: ['pods'] } }], action: 'Masquerade' },
        ],
        { source: { ipPools: { names: ['pods'] } } },
      ),
    ],
    packets: n => [
      [from(n.pod, n.internet), n.node],
      [from(n.peer, n.internet), n.peer],
      [from(n.pod, n.peer), n.snat],
      [from(n.peer, n.beyondTunnel), n.peer],
      [from(n.pod, n.beyondTunnel), n.tunnel],
    ],
  },
  {
    what: 'a pool for load balancers only is not spared as a destination, and is a source; others are spared',
    objects: n => [
      pods(n, { natOutgoing: true }),
      pool('vips', n.virtual, { natOutgoing: false, allowedUses: ['LoadBalancer'] }),
      pool('lan', n.datacentre, { natOutgoing: false, disabled: true }),
    ],
    packets: n => [
      [from(n.pod, n.inVirtual), n.node],
      [from(n.pod, n.inDatacentre), n.pod],
      [from(n.pod, n.internet), n.node],
    ],
  },
  {
    what: 'pools by selector and by natOutgoing; an unknown name stands for nothing',
    objects: n => [
      pods(n),
      pool('others', n.otherPods, { natOutgoing: false }),
      policy(
        'a',
        [{ to: [{ ipPools: { selector: { matchLabels: { name: 'pods' } } } }], action: 'Masquerade' }],
        {
          source: { ipPools: { natOutgoing: 'Disabled' } },
        },
      ),
      policy('b', [{ to: [{ ipPools: { names: ['nobody'] } }], action: 'Masquerade' }]),
    ],
    packets: n => [
      [from(n.otherPod, n.beyondTunnel), n.tunnel],
      [from(n.pod, n.peer), n.pod],
      [from(n.otherPod, n.internet), n.otherPod],
    ],
  },
  {
    what: 'scopes are live sets',
    objects: n => [
      pods(n),
      node('worker-1', [n.node]),
      node('worker-2', [n.otherNode]),
      policy('p', [
        { to: [{ scope: 'Nodes' }], action: 'Preserve' },
        { to: [{ scope: 'ClusterPods' }], action: 'SNAT', snat: { addresses: [n.snat] } },
        { to: [{ scope: 'PrivateUse' }], action: 'Preserve' },
      ]),
    ],
    packets: n => [
      [from(n.pod, n.otherNode), n.pod],
      [from(n.pod, n.peer), n.snat],
      [from(n.pod, n.inDatacentre), n.pod],
      [from(n.pod, n.internet), n.node],
    ],
  },
  {
    what: 'network sets: long lists, plain addresses, host bits',
    objects: n => [
      pods(n),
      networkSet('partners', [n.inDatacentre, n.second, n.hole]),
      policy('p', [{ to: [{ networkSets: { names: ['partners'] } }], action: 'Preserve' }]),
    ],
    packets: n => [
      [from(n.pod, n.inDatacentre), n.pod],
      [from(n.pod, n.inSecond), n.pod],
      [from(n.pod, n.inHole), n.pod],
      [from(n.pod, n.internet), n.node],
    ],
  },
  {
    what: 'a dry run counts and does nothing; a disabled policy is not there; the default action acts',
    objects: n => [
      pods(n),
      policy('dry', [{ action: 'Preserve' }], {
        enforcementMode: 'DryRun',
        priority: 1,
        defaultAction: 'Preserve',
      }),
      policy('off', [{ action: 'Preserve' }], { enforcementMode: 'Disabled', priority: 2 }),
      policy(
        'default',
        [
          { to: [block(n.second)], action: 'Continue' },
          { to: [block(n.hole)], action: 'Masquerade' },
        ],
        {
          priority: 3,
          defaultAction: 'Preserve',
        },
      ),
    ],
    packets: n => [
      [from(n.pod, n.internet), n.pod],
      [from(n.pod, n.inSecond), n.nodeOnSecond],
      [from(n.pod, n.inHole), n.node],
    ],
  },
  {
    what: 'only the nodes that are selected have the policy; an address comes from the node',
    objects: n => [
      pods(n),
      node('worker-1', [n.node], { egress: n.snat }),
      policy(
        'here',
        [{ to: [block(n.second)], action: 'SNAT', snat: { addressFrom: { nodeAnnotation: 'egress' } } }],
        {
          nodeSelector: { matchLabels: { zone: 'a' } },
        },
      ),
      policy('elsewhere', [{ action: 'Preserve' }], { nodeSelector: { matchLabels: { zone: 'b' } } }),
      policy('type', [
        { to: [block(n.virtual)], action: 'SNAT', snat: { addressFrom: { nodeAddressType: 'InternalIP' } } },
      ]),
      policy(
        'nowhere',
        [
          { to: [block(n.datacentre)], action: 'SNAT', snat: { addressFrom: { nodeAnnotation: 'none' } } },
          rest,
        ],
        {
          source: { ipBlocks: [{ cidr: n.pods }] },
          priority: 900,
        },
      ),
    ],
    packets: n => [
      [from(n.pod, n.inSecond), n.snat],
      [from(n.pod, n.inVirtual), n.node],
      [from(n.pod, n.inDatacentre), n.pod],
    ],
  },
  {
    what: 'the tunnel rule takes host traffic that has not the tunnel’s address, and no pod',
    objects: n => [pods(n, { natOutgoing: false })],
    options: { tunnelInterfaces: ['vxlan.calico'] },
    packets: n => [
      [from(n.node, n.beyondTunnel, host), n.tunnel],
      [from(n.tunnel, n.beyondTunnel, host), n.tunnel],
      [from(n.pod, n.beyondTunnel), n.pod],
      [from(n.node, n.internet, host), n.node],
    ],
  },
  {
    what: 'a /0 as destination is every destination',
    objects: n => [pods(n), policy('p', [{ to: [block(n.everything)], action: 'Preserve' }])],
    packets: n => [
      [from(n.pod, n.internet), n.pod],
      [from(n.pod, n.far), n.pod],
    ],
  },
  {
    what: 'a /0 with exceptions, a /0 as its own exception, a /0 among others',
    objects: n => [
      pods(n),
      policy(
        'none',
        [{ to: [block(n.everything, n.everything)], action: 'SNAT', snat: { addresses: [n.snat] } }],
        { priority: 1 },
      ),
      policy('holes', [{ to: [block(n.everything, n.datacentre)], action: 'Preserve' }], { priority: 2 }),
      policy('among', [
        {
          to: [block(n.hole), block(n.everything), block(n.second)],
          action: 'SNAT',
          snat: { addresses: [n.snat] },
        },
      ]),
    ],
    packets: n => [
      [from(n.pod, n.internet), n.pod],
      [from(n.pod, n.far), n.pod],
      [from(n.pod, n.inDatacentre), n.snat],
    ],
  },
  {
    what: 'a /0 as source block and in a network set',
    objects: n => [
      pods(n, { natOutgoing: false }),
      networkSet('all', [n.everything]),
      policy('p', [{ to: [{ networkSets: { names: ['all'] } }], action: 'Masquerade' }], {
        source: { ipBlocks: [{ cidr: n.everything, except: [n.otherPods] }] },
      }),
    ],
    packets: n => [
      [from(n.pod, n.internet), n.node],
      [from(n.pod, n.far), n.node],
      [from(n.otherPod, n.internet), n.otherPod],
    ],
  },
  {
    what: 'a /0 as IPPool: everything is a pod, so natOutgoing has nothing to do',
    objects: n => [pool('all', n.everything)],
    packets: n => [
      [from(n.pod, n.internet), n.pod],
      [from(n.pod, n.far), n.pod],
      [from(n.internet, n.pod, client), n.internet],
    ],
  },
  {
    what: 'options of FelixConfiguration: node addresses are spared, one interface, a fixed address',
    objects: n => [
      pods(n),
      node('worker-2', [n.otherNode]),
      felix({
        natOutgoingExclusions: 'IPPoolsAndHostIPs',
        iptablesNATOutgoingInterfaceFilter: 'eth0',
        natOutgoingAddress: n.snat,
      }),
    ],
    packets: n => [
      // Felix knows a fixed address for IPv4 only.
      [from(n.pod, n.internet), n.family === 4 ? n.snat : n.node],
      [from(n.pod, n.otherNode), n.pod],
      [from(n.pod, n.inSecond), n.pod],
    ],
  },
];

describe.each(['nft', 'legacy'] as const)('on backend %s', backend => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterAll(() => scene.close());

  describe.each([NAMES[4], NAMES[6]])('IPv$family', names => {
    it.each(CASES)('$what', async ({ objects, options, packets }) => {
      await scene.apply(objects(names), options);
      for (const [probe, expected] of packets(names)) {
        expect({ probe, seen: await scene.seen(probe) }).toEqual({ probe, seen: expected });
      }
    });

    it('a port range holds for protocols with ports, others are translated without', async () => {
      const range = { start: 30_000, end: 30_099 };
      await scene.apply([
        pods(names, { natOutgoing: false }),
        policy('p', [
          { to: [block(names.second)], action: 'SNAT', snat: { addresses: [names.snat] }, portRange: range },
          { action: 'Masquerade', portRange: range },
        ]),
      ]);
      for (const destination of [names.inSecond, names.internet]) {
        const expected = destination === names.internet ? names.node : names.snat;
        for (const protocol of ['tcp', 'udp', 'sctp'] as const) {
          for (let i = 0; i < 5; i++) {
            const observed = await scene.world.send({
              from: 'pod',
              source: names.pod,
              destination,
              protocol,
              destinationPort: 443,
            });
            expect(observed).toMatchObject({ arrived: true, address: expected });
            if (!observed.arrived) continue;
            expect(observed.port).toBeGreaterThanOrEqual(range.start);
            expect(observed.port).toBeLessThanOrEqual(range.end);
          }
        }
        expect(await scene.seen({ source: names.pod, destination, protocol: 'icmp' })).toBe(expected);
      }
    });

    it('only the first packet of a connection is asked', async () => {
      await scene.apply([pods(names)]);
      const flow = await scene.world.openFlow({
        from: 'pod',
        source: names.pod,
        destination: names.internet,
        protocol: 'tcp',
        destinationPort: 443,
      });
      expect(await flow.exchange()).toMatchObject({ arrived: true, address: names.node });
      await scene.apply([pods(names), policy('p', [rest])]);
      expect(await flow.exchange()).toMatchObject({ arrived: true, address: names.node });
      expect(await scene.seen({ source: names.pod, destination: names.internet })).toBe(names.pod);
      await flow.close();
    });
  });
});
