// What the demo sends, and what must become of it under the manifests of manifests.ts. The expectations are written by
// hand from the meaning of the policies, not computed by the planner that they are to check.
import type { Family } from '../cidr/address.ts';
import type { Probe, ProbeProtocol, WorldOptions } from './model.ts';

/** The world that the manifests describe. */
export const DEMO_WORLD: WorldOptions = {
  links: [
    {
      name: 'eth0',
      addresses: ['192.168.50.10/24', '2001:db8:50::10/64'],
      extraAddresses: ['198.51.100.7', '2001:db8:51::7'],
    },
    { name: 'eth1', addresses: ['192.168.60.10/24', '2001:db8:60::10/64'] },
  ],
  podRanges: ['10.244.0.0/16', '10.245.0.0/16', 'fd00:244::/48', 'fd00:245::/48'],
  routes: [
    { cidr: '10.245.7.0/24', via: 'eth0' },
    { cidr: 'fd00:245:0:7::/64', via: 'eth0' },
    { cidr: '192.0.2.0/24', via: 'eth1' },
    { cidr: '2001:db8:2::/48', via: 'eth1' },
  ],
};

export interface DemoCase {
  /** What the packet stands for. */
  readonly about: string;
  readonly probe: Probe;
  /** The node's interface by which it leaves. */
  readonly outInterface: string;
  /** The source address that the receiver must see. */
  readonly address: string;
  /** The source port must be one of these. */
  readonly ports?: { readonly start: number; readonly end: number };
  /** Who must decide: POLICY/RULE, `IPPool NAME`, or `nobody` when the packet is left as it is. */
  readonly by: string;
}

const POD = { 4: '10.244.1.5', 6: 'fd00:244::1:5' } as const;
const PLAIN_POD = { 4: '10.245.1.5', 6: 'fd00:245::1:5' } as const;
const NODE = { 4: '192.168.50.10', 6: '2001:db8:50::10' } as const;
const BANK_SEES = { 4: '198.51.100.7', 6: '2001:db8:51::7' } as const;
const INTERNET = { 4: '8.8.8.8', 6: '2001:4860:4860::8888' } as const;

type Sample = Omit<DemoCase, 'probe' | 'outInterface'> & {
  readonly from?: Probe['from'];
  readonly source?: string;
  readonly to: string;
  /** PROTOCOL or PROTOCOL/PORT. */
  readonly means: readonly string[];
  readonly outInterface?: string;
};

const ALL = ['tcp/443', 'udp/443', 'icmp'];

const samples = (family: Family): readonly Sample[] => {
  const v = (four: string, six: string): string => (family === 4 ? four : six);
  const [pod, node, internet] = [POD[family], NODE[family], INTERNET[family]];
  const poolDefault = `IPPool nat-v${family}`;
  const exempt = 'datacentre/keep-pod-address';
  return [
    { about: 'the Internet', to: internet, means: ALL, address: node, by: poolDefault },
    { about: 'the datacentre', to: v('172.16.5.5', 'fd00:dc::5'), means: ALL, address: pod, by: exempt },
    {
      about: 'its old network',
      to: v('172.16.9.9', 'fd00:dc:9::9'),
      means: ['tcp/22', 'icmp'],
      address: node,
      by: poolDefault,
    },
    {
      about: 'the bank',
      to: v('203.0.113.5', '2001:db8:ba::5'),
      means: ['tcp/443', 'udp/443'],
      address: BANK_SEES[family],
      ports: { start: 20_000, end: 29_999 },
      by: 'bank/settlement',
    },
    {
      about: 'the bank, another port',
      to: v('203.0.113.5', '2001:db8:ba::5'),
      means: ['tcp/80', 'icmp'],
      address: node,
      by: poolDefault,
    },
    {
      about: 'the appliance',
      to: v('10.245.7.7', 'fd00:245:0:7::7'),
      means: ALL,
      address: node,
      by: 'appliance/no-route-to-pods',
    },
    {
      about: 'by the leased line',
      to: v('192.0.2.5', '2001:db8:2::5'),
      means: ALL,
      outInterface: 'eth1',
      address: pod,
      by: 'leased-line/second-uplink',
    },
    {
      about: 'pod to pod',
      to: v('10.244.9.9', 'fd00:244::9:9'),
      means: ALL,
      outInterface: 'calipeer',
      address: pod,
      by: 'nobody',
    },
    {
      about: 'from a pool without natOutgoing',
      source: PLAIN_POD[family],
      to: internet,
      means: ALL,
      address: PLAIN_POD[family],
      by: 'nobody',
    },
    {
      about: 'a client from outside',
      from: 'outside',
      source: internet,
      to: pod,
      means: ALL,
      outInterface: 'calipod',
      address: internet,
      by: 'nobody',
    },
    {
      about: 'the node itself',
      from: 'node',
      source: node,
      to: internet,
      means: ['tcp/443'],
      address: node,
      by: 'nobody',
    },
  ];
};

const casesOf = (family: Family): readonly DemoCase[] =>
  samples(family).flatMap(({ means, from, source, to, outInterface, ...expected }) =>
    means.map(text => {
      const [protocol, port] = text.split('/') as [ProbeProtocol, string | undefined];
      return {
        ...expected,
        outInterface: outInterface ?? 'eth0',
        probe: {
          from: from ?? 'pod',
          source: source ?? POD[family],
          destination: to,
          protocol,
          ...(port === undefined ? {} : { destinationPort: Number(port) }),
        },
      };
    }),
  );

export const DEMO_CASES: readonly DemoCase[] = [...casesOf(4), ...casesOf(6)];
