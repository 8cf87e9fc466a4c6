// The real kube-proxy beside our rules: what it translates stays as it is without us, packet by packet, with one Service
// and with 5,000, in both of its modes and with its mark on another bit.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Observation, Probe } from '../../src/demo/model.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import {
  createServices,
  ENDPOINT_PORT,
  type ProxyMode,
  SERVICE_PORT,
  type ServiceOptions,
  startKubeProxy,
} from './services.ts';
import { waitFor } from './wait.ts';

const MANY = 5_000;
const NODE_NAME = 'worker-a';
const DEFAULT_BIT = 14;
const OTHER_BIT = 15;
const LOCAL = { externalTrafficPolicy: 'Local' };

const NAMES = {
  4: {
    pod: '10.244.1.5',
    /** A pod that is reached by way of the node. */
    peer: '10.245.1.5',
    client: '8.8.4.4',
    /** Endpoints outside of the cluster: what pods send there is the pool default's, or the policy's. */
    far: '8.8.8.8',
    kept: '172.16.5.5',
    clusterIp: (n: number) => `10.96.1.${n}`,
    externalIp: '198.51.100.7',
    snat: '198.51.100.7',
    bank: '203.0.112.9',
  },
  6: {
    pod: 'fd00:244::1:5',
    peer: 'fd00:245::1:5',
    client: '2001:4860::4',
    far: '2001:4860:4860::8888',
    kept: 'fd00:dc::5',
    clusterIp: (n: number) => `fd00:10:96::10${n}`,
    externalIp: '2001:db8:51::7',
    snat: '2001:db8:51::7',
    bank: '2001:db8:77::9',
  },
} as const;
type Family = keyof typeof NAMES;
const FAMILIES = [4, 6] as const;

/** NodePorts; UDP has the port after it. */
const PORT = { cluster: 30_010, local: 30_020, far: 30_030, hairpin: 30_040, kept: 30_050 } as const;

const servicesOf = (family: Family): readonly ServiceOptions[] => {
  const n = NAMES[family];
  const nodePort = (port: number): number => port + (family === 6 ? 1_000 : 0);
  const make = (name: string, number: number, endpoint: string, more: object = {}): ServiceOptions => ({
    name: `${name}-${family}`,
    family,
    clusterIp: n.clusterIp(number),
    endpoint,
    ...more,
  });
  return [
    make('peer', 1, n.peer, { nodePort: nodePort(PORT.cluster), spec: { externalIPs: [n.externalIp] } }),
    make('local', 2, n.pod, { nodePort: nodePort(PORT.local), nodeName: NODE_NAME, spec: LOCAL }),
    make('far', 3, n.far, { nodePort: nodePort(PORT.far) }),
    make('hairpin', 4, n.pod, { nodePort: nodePort(PORT.hairpin), nodeName: NODE_NAME }),
    make('kept', 5, n.kept, { nodePort: nodePort(PORT.kept) }),
    make('bank', 6, n.bank),
  ];
};

interface Case {
  readonly name: string;
  readonly probe: Probe;
  /** What our rules make of it, where kube-proxy leaves the source to others. Absent: what it is without them. */
  readonly ours?: string;
}

/** Every way to a Service, and two ways past them. */
function casesOf(node: LabNode, family: Family): readonly Case[] {
  const n = NAMES[family];
  const address = node.address[family];
  return (['tcp', 'udp'] as const).flatMap((protocol, i): readonly Case[] => {
    const way = (
      name: string,
      from: Probe['from'],
      destination: string,
      port: number,
      endpoint?: string,
      ours?: string,
    ): Case => ({
      name: `IPv${family} ${protocol} ${name}`,
      probe: {
        from,
        source: { pod: n.pod, node: address, outside: n.client }[from],
        destination,
        destinationPort: port,
        protocol,
        ...(endpoint === undefined ? {} : { arrivesAt: { address: endpoint, port: ENDPOINT_PORT } }),
      },
      ...(ours === undefined ? {} : { ours }),
    });
    const nodePort = (port: number): number => port + i + (family === 6 ? 1_000 : 0);
    const cluster = (number: number): readonly [string, number] => [n.clusterIp(number), SERVICE_PORT];
    return [
      way('pod to a ClusterIP', 'pod', ...cluster(1), n.peer),
      way('host to a ClusterIP', 'node', ...cluster(1), n.peer),
      way('outside to a NodePort', 'outside', address, nodePort(PORT.cluster), n.peer),
      way('outside to a NodePort, policy Local', 'outside', address, nodePort(PORT.local), n.pod),
      way('outside to an external IP', 'outside', n.externalIp, SERVICE_PORT, n.peer),
      way('pod to an external IP', 'pod', n.externalIp, SERVICE_PORT, n.peer),
      way('pod to a NodePort of its node', 'pod', address, nodePort(PORT.cluster), n.peer),
      way('pod to itself by a ClusterIP', 'pod', ...cluster(4), n.pod),
      way('pod to itself by a NodePort', 'pod', address, nodePort(PORT.hairpin), n.pod),
      way('outside to a NodePort, endpoint outside', 'outside', address, nodePort(PORT.far), n.far),
      way('pod to a NodePort, endpoint outside', 'pod', address, nodePort(PORT.far), n.far),
      way('pod to a NodePort, endpoint kept', 'pod', address, nodePort(PORT.kept), n.kept),
      way('host to a ClusterIP, endpoint outside', 'node', ...cluster(3), n.far),
      way('pod to a ClusterIP, endpoint outside', 'pod', ...cluster(3), n.far, address),
      way('pod to a ClusterIP, endpoint kept', 'pod', ...cluster(5), n.kept, n.pod),
      way('pod to a ClusterIP, endpoint of SNAT', 'pod', ...cluster(6), n.bank, n.snat),
      way('pod to the outside', 'pod', n.far, 443, undefined, address),
      way('outside to a pod', 'outside', n.pod, 443),
    ];
  });
}

/** Of an observation, what must not depend on the moment. */
const essence = (observed: Observation): object =>
  observed.arrived
    ? { at: observed.at, source: observed.address, answered: observed.answered }
    : { reason: observed.reason };

describe('the real kube-proxy', () => {
  let lab: Lab;
  let operator: LabOperator;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    lab = await openLab({}, signal);
    operator = await lab.startOperator();
    await createServices(lab.cluster.server.client, FAMILIES.flatMap(servicesOf));
    for (const family of FAMILIES) {
      const n = NAMES[family];
      await lab.cluster.apply(pool(`pods-${family}`, family === 4 ? '10.244.0.0/15' : 'fd00:244::/31'));
      await lab.cluster.apply(
        policy(`all-${family}`, [
          { to: [block(`${n.kept}/${family === 4 ? 32 : 128}`)], action: 'Preserve' },
          {
            to: [block(`${n.bank}/${family === 4 ? 32 : 128}`)],
            action: 'SNAT',
            snat: { addresses: [n.snat] },
          },
        ]),
      );
    }
  });
  afterAll(() => lab?.close());

  const look = async (node: LabNode): Promise<ReadonlyMap<string, object>> => {
    const seen = new Map<string, object>();
    for (const family of FAMILIES)
      for (const { name, probe } of casesOf(node, family))
        seen.set(name, essence(await node.world.send(probe)));
    return seen;
  };

  /** Without our rules, then with them. */
  const compare = async (mode: ProxyMode, bit: number): Promise<void> => {
    const node = await lab.addNode(NODE_NAME, { applier: false });
    try {
      const proxy = await startKubeProxy(node, lab.cluster.server.kubeconfig, mode, bit);
      const cases = FAMILIES.flatMap(family => casesOf(node, family));
      await serves(node, () => JSON.stringify(proxy.log().slice(-20)));
      const without = await look(node);
      // Everything arrives and is answered, or the comparison says nothing.
      for (const [name, seen] of without) expect(seen, name).toMatchObject({ answered: true });
      await node.startApplier();
      const n = NAMES[4];
      await node.sees({ source: n.pod, destination: n.bank }, n.snat);
      await node.sees({ source: NAMES[6].pod, destination: NAMES[6].bank }, NAMES[6].snat);
      const withOurs = await look(node);
      const wanted = new Map(
        cases.map(({ name, ours }) => [
          name,
          ours === undefined ? without.get(name) : { at: 'outside', source: ours, answered: true },
        ]),
      );
      expect(Object.fromEntries(withOurs)).toEqual(Object.fromEntries(wanted));
    } finally {
      await node.close();
    }
  };

  /** Waits until kube-proxy has made the rules of the last Service of each family. */
  const serves = async (node: LabNode, detail: () => string): Promise<void> => {
    for (const family of FAMILIES) {
      const probe = casesOf(node, family).find(({ name }) => name.endsWith('udp pod to a ClusterIP'))?.probe;
      if (probe === undefined) throw new Error('there is no such case');
      await waitFor(
        async () => {
          const seen = await node.world.send({ ...probe, limitMs: 200 });
          return seen.arrived ? true : undefined;
        },
        { what: 'kube-proxy to serve', limitMs: 120_000, detail },
      );
    }
  };

  const MODES = ['iptables', 'nftables'] as const;
  it.each(MODES)('in %s mode translates with our rules as without them', mode => compare(mode, DEFAULT_BIT));

  it.each(MODES)('in %s mode with its mark on another bit', async mode => {
    await operator.end();
    operator = await lab.startOperator({ args: ['--kube-mark', `0x${(2 ** OTHER_BIT).toString(16)}`] });
    await compare(mode, OTHER_BIT);
  });

  it(`with ${MANY} Services more`, { timeout: 300_000 }, async () => {
    await operator.end();
    operator = await lab.startOperator();
    await createServices(
      lab.cluster.server.client,
      Array.from({ length: MANY }, (_, i) => ({
        name: `many-${i}`,
        family: 4 as const,
        clusterIp: `10.96.${16 + (i >> 8)}.${i & 255}`,
        endpoint: `10.244.${16 + (i >> 8)}.${i & 255}`,
      })),
    );
    for (const mode of MODES) await compare(mode, DEFAULT_BIT);
  });
});
