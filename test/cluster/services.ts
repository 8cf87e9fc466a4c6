// Services of a test's cluster, their endpoints made by hand, and the real kube-proxy on a node of the laboratory.
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'vitest';
import { systemExec } from '../../src/kernel/exec.ts';
import type { ApiClient } from './client.ts';
import { component } from './components.ts';
import type { LabNode } from './lab.ts';
import { refusalOf } from './objects.ts';
import { follow, type Program } from './program.ts';

export type ProxyMode = 'iptables' | 'nftables';

/** A Service for TCP and UDP port 80 whose one endpoint listens on port 8080. */
export interface ServiceOptions {
  readonly name: string;
  readonly family: 4 | 6;
  readonly clusterIp: string;
  readonly endpoint: string;
  /** The node whose pod the endpoint is. */
  readonly nodeName?: string;
  /** Makes it a NodePort Service; UDP has the port after it. */
  readonly nodePort?: number;
  readonly spec?: object;
}

export const SERVICE_PORT = 80;
export const ENDPOINT_PORT = 8080;
const PROTOCOLS = ['TCP', 'UDP'] as const;
const POOL_OF_REQUESTS = 40;

const serviceOf = ({ name, family, clusterIp, nodePort, spec }: ServiceOptions): object => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: {
    type: nodePort === undefined ? 'ClusterIP' : 'NodePort',
    clusterIP: clusterIp,
    ipFamilies: [`IPv${family}`],
    ports: PROTOCOLS.map((protocol, i) => ({
      name: protocol.toLowerCase(),
      protocol,
      port: SERVICE_PORT,
      ...(nodePort === undefined ? {} : { nodePort: nodePort + i }),
    })),
    ...spec,
  },
});

const sliceOf = ({ name, family, endpoint, nodeName }: ServiceOptions): object => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: { name, labels: { 'kubernetes.io/service-name': name } },
  addressType: `IPv${family}`,
  ports: PROTOCOLS.map(protocol => ({ name: protocol.toLowerCase(), protocol, port: ENDPOINT_PORT })),
  endpoints: [
    { addresses: [endpoint], conditions: { ready: true }, ...(nodeName === undefined ? {} : { nodeName }) },
  ],
});

/** Creates them in namespace default; fails on a refusal. */
export async function createServices(client: ApiClient, services: readonly ServiceOptions[]): Promise<void> {
  const waiting = services.flatMap(service => [
    { path: '/api/v1/namespaces/default/services', body: serviceOf(service) },
    { path: '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices', body: sliceOf(service) },
  ]);
  const work = async (): Promise<void> => {
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const answer = await client.request('POST', next.path, { body: next.body });
      expect(answer.status, refusalOf(answer).message).toBe(201);
    }
  };
  await Promise.all(Array.from({ length: POOL_OF_REQUESTS }, work));
}

/** Starts kube-proxy in the node's namespaces, as the cluster's administrator. It dies with the node. */
export async function startKubeProxy(
  node: LabNode,
  kubeconfig: string,
  mode: ProxyMode,
  masqueradeBit: number,
): Promise<Program> {
  const log = (line: string): void => console.error(line);
  const path = await component('kube-proxy', { exec: systemExec, env: process.env, log });
  const config = join(dirname(node.account), 'kube-proxy.json');
  await writeFile(
    config,
    JSON.stringify({
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      clientConnection: { kubeconfig },
      mode,
      hostnameOverride: node.name,
      clusterCIDR: '10.244.0.0/15,fd00:244::/31',
      iptables: { masqueradeBit },
      nftables: { masqueradeBit },
      // Its own ports are among those that probes are sent from.
      healthzBindAddress: '127.0.0.1:9256',
      metricsBindAddress: '127.0.0.1:9249',
      // Zeros keep it from settings of the whole machine.
      conntrack: { maxPerCore: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
    }),
  );
  return follow(node.world.spawnInNode([path, `--config=${config}`]), `kube-proxy of ${node.name}`);
}
