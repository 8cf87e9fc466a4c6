// A node in the packet world under our rules: manifests go in as a user writes them, packets tell what became of them.
import { expect } from 'vitest';
import { FAMILIES, type Family } from '../../src/cidr/address.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import type { Observation, Probe, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import type { Backend } from '../../src/kernel/backend.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver, type Driver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { DriverReport } from '../../src/kernel/report.ts';
import { DEFAULT_OPTIONS, type PlanOptions } from '../../src/planner/assemble.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';

export const NODE = 'worker-1';

/** Everything that a case names, once for each family. */
export interface Names {
  readonly family: Family;
  readonly iptables: string;
  readonly everything: string;
  readonly identity: string;
  readonly pods: string;
  readonly pod: string;
  readonly nested: string;
  /** A pod in `nested`, on the other side of the node. */
  readonly peer: string;
  readonly otherPods: string;
  readonly otherPod: string;
  readonly internet: string;
  readonly far: string;
  readonly datacentre: string;
  readonly inDatacentre: string;
  readonly hole: string;
  readonly inHole: string;
  /** Behind eth1. */
  readonly second: string;
  readonly inSecond: string;
  readonly virtual: string;
  readonly inVirtual: string;
  readonly node: string;
  readonly nodeOnSecond: string;
  readonly otherNode: string;
  readonly snat: string;
  readonly tunnel: string;
  /** A pod that the node reaches by the tunnel. */
  readonly beyondTunnel: string;
}

export const NAMES: { readonly [F in Family]: Names } = {
  4: {
    family: 4,
    iptables: 'iptables',
    everything: '0.0.0.0/0',
    identity: '0.0.0.0/0',
    pods: '10.244.0.0/16',
    pod: '10.244.1.5',
    nested: '10.244.9.0/24',
    peer: '10.244.9.9',
    otherPods: '10.245.0.0/16',
    otherPod: '10.245.1.5',
    internet: '8.8.8.8',
    far: '200.1.1.1',
    datacentre: '172.16.0.0/12',
    inDatacentre: '172.16.5.5',
    hole: '172.16.9.0/24',
    inHole: '172.16.9.9',
    second: '192.0.2.0/24',
    inSecond: '192.0.2.5',
    virtual: '203.0.113.0/24',
    inVirtual: '203.0.113.9',
    node: '192.168.50.10',
    nodeOnSecond: '192.168.60.10',
    otherNode: '192.168.50.77',
    snat: '198.51.100.7',
    tunnel: '10.244.0.1',
    beyondTunnel: '10.244.200.9',
  },
  6: {
    family: 6,
    iptables: 'ip6tables',
    everything: '::/0',
    identity: '::/0',
    pods: 'fd00:244::/48',
    pod: 'fd00:244::1:5',
    nested: 'fd00:244:0:9::/64',
    peer: 'fd00:244:0:9::9',
    otherPods: 'fd00:245::/48',
    otherPod: 'fd00:245::1:5',
    internet: '2001:4860:4860::8888',
    far: 'a000::1',
    datacentre: 'fd00:dc::/32',
    inDatacentre: 'fd00:dc::5',
    hole: 'fd00:dc:9::/48',
    inHole: 'fd00:dc:9::9',
    second: '2001:db8:2::/48',
    inSecond: '2001:db8:2::5',
    virtual: '2001:db8:3::/48',
    inVirtual: '2001:db8:3::9',
    node: '2001:db8:50::10',
    nodeOnSecond: '2001:db8:60::10',
    otherNode: '2001:db8:50::77',
    snat: '2001:db8:51::7',
    tunnel: 'fd00:244::1',
    beyondTunnel: 'fd00:244:0:200::9',
  },
};

/** The world in which NAMES are true. */
export const openScene = (): Promise<World> =>
  openWorld(
    {
      links: [
        {
          name: 'eth0',
          addresses: FAMILIES.map(f => `${NAMES[f].node}/${f === 4 ? 24 : 64}`),
          extraAddresses: FAMILIES.map(f => NAMES[f].snat),
        },
        { name: 'eth1', addresses: FAMILIES.map(f => `${NAMES[f].nodeOnSecond}/${f === 4 ? 24 : 64}`) },
        { name: 'vxlan.calico', addresses: FAMILIES.map(f => `${NAMES[f].tunnel}/${f === 4 ? 32 : 128}`) },
      ],
      routes: [
        ...FAMILIES.map(f => ({ cidr: NAMES[f].second, via: 'eth1' })),
        { cidr: '10.244.200.0/24', via: 'vxlan.calico' },
        { cidr: 'fd00:244:0:200::/64', via: 'vxlan.calico' },
      ],
    },
    new AbortController().signal,
  );

export const pool = (name: string, cidr: string, spec: object = {}): object => ({
  apiVersion: 'crd.projectcalico.org/v1',
  kind: 'IPPool',
  metadata: { name, labels: { name } },
  spec: { cidr, natOutgoing: true, ...spec },
});

export const networkSet = (name: string, nets: readonly string[]): object => ({
  apiVersion: 'crd.projectcalico.org/v1',
  kind: 'GlobalNetworkSet',
  metadata: { name },
  spec: { nets },
});

export const node = (name: string, addresses: readonly string[], annotations: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, labels: { zone: 'a' }, annotations },
  status: { addresses: addresses.map(address => ({ type: 'InternalIP', address })) },
});

export const felix = (spec: object): object => ({
  apiVersion: 'crd.projectcalico.org/v1',
  kind: 'FelixConfiguration',
  metadata: { name: 'default' },
  spec,
});

/** A policy about the pods of every pool, unless the spec says otherwise. */
export const policy = (name: string, rules: readonly object[], spec: object = {}): object => ({
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind: 'MasqPolicy',
  metadata: { name },
  spec: { source: { ipPools: {} }, rules: rules.map((rule, i) => ({ name: `rule-${i}`, ...rule })), ...spec },
});

export const block = (cidr: string, ...except: string[]): object => ({
  ipBlock: { cidr, ...(except.length === 0 ? {} : { except }) },
});

export interface Scene {
  readonly world: World;
  readonly driver: Driver;
  /**
   * Puts the rules of these objects into the kernel, by the scene's driver unless another is given; fails when an
   * object is refused or a family fails.
   */
  apply(objects: readonly object[], options?: Partial<PlanOptions>, by?: Driver): Promise<DriverReport>;
  /** The source address that the receiver saw. */
  seen(probe: Partial<Probe> & Pick<Probe, 'source' | 'destination'>): Promise<string>;
  /** Runs an iptables command line of the backend on the node, for neighbours' rules. */
  iptables(family: Family, line: string): Promise<void>;
  /** Runs a program on the node. */
  run(tool: string, args: readonly string[], stdin?: string): Promise<string>;
  close(): Promise<void>;
}

export async function openSceneWithDriver(backend: Backend): Promise<Scene> {
  const world = await openScene();
  const driver = createDriver({ exec: world.exec, clock: systemClock, backend, log: silentLog });
  const run = async (tool: string, args: readonly string[], stdin = ''): Promise<string> => {
    const result = await world.exec.run({ tool, args, stdin, timeoutMs: 20_000 });
    if (result.code !== 0)
      throw new Error(`${tool} ${args.join(' ')}: ${result.spawnError ?? result.stderr}`);
    return result.stdout;
  };
  return {
    world,
    driver,
    run,
    async apply(objects, options = {}, by = driver) {
      const text = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects });
      const manifests = await loadManifests(['-'], () => Promise.resolve(text));
      expect(manifests.problems).toEqual([]);
      expect(manifests.verdicts.filter(({ verdict }) => verdict !== 'ok')).toEqual([]);
      const { plan, values } = planNode(manifests.snapshot, NODE, { ...DEFAULT_OPTIONS, ...options });
      const report = await by.apply(FAMILIES.map(family => renderFamily(plan, values, family)));
      for (const family of Object.values(report.families)) expect(family).toMatchObject({ ok: true });
      return report;
    },
    async seen(probe) {
      const full: Probe = {
        from: 'pod',
        protocol: 'udp',
        ...(probe.protocol === 'icmp' ? {} : { destinationPort: 443 }),
        ...probe,
      };
      return addressOf(await world.send(full));
    },
    async iptables(family, line) {
      await run(`${NAMES[family].iptables}-${backend}`, line.split(' '));
    },
    close: () => world.close(),
  };
}

export const addressOf = (observed: Observation): string =>
  observed.arrived ? observed.address : `nothing (${observed.reason})`;
