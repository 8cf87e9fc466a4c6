// Calico's two API groups: one, the other, both, and the way from one to the other, with packets all the while.
import { afterEach, describe, expect, it } from 'vitest';
import type { Prober } from '../../src/demo/model.ts';
import { block, policy, pool } from '../kernel/scene.ts';
import type { CalicoGroupName } from './cluster.ts';
import { type Lab, type LabNode, type LabOperator, openLab } from './lab.ts';
import { installCrds, type KubeObject } from './objects.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const KEPT = '10.244.9.9';
const OTHER = '10.245.1.5';
const FAR = '8.8.8.8';
const VERSIONS = { v1: 'crd.projectcalico.org/v1', v3: 'projectcalico.org/v3' } as const;

const poolIn = (group: CalicoGroupName, name: string, cidr: string, natOutgoing: boolean): object => ({
  ...pool(name, cidr, { natOutgoing }),
  apiVersion: VERSIONS[group],
});

const POOLS = [
  ['main', '10.244.0.0/16', true],
  ['kept', '10.244.9.0/24', false],
  ['other', '10.245.0.0/16', true],
] as const;

/** The part of Calico's own CRD that says how far a migration is. */
const MIGRATIONS: KubeObject = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'datastoremigrations.migration.projectcalico.org' },
  spec: {
    group: 'migration.projectcalico.org',
    scope: 'Cluster',
    names: { kind: 'DatastoreMigration', plural: 'datastoremigrations', singular: 'datastoremigration' },
    versions: [
      {
        name: 'v1beta1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
} as KubeObject;

describe('the API groups of Calico', () => {
  let lab: Lab;
  let node: LabNode;
  let operator: LabOperator;
  const signal = new AbortController().signal;
  afterEach(() => lab?.close());

  const open = async (calico: readonly CalicoGroupName[]): Promise<void> => {
    lab = await openLab({ calico }, signal);
    operator = await lab.startOperator();
    node = await lab.addNode('worker-1');
    for (const group of calico) await addPools(group);
    if (calico.length > 0) await node.sees({ source: OTHER, destination: FAR }, node.address[4]);
  };
  const addPools = async (group: CalicoGroupName): Promise<void> => {
    for (const [name, cidr, nat] of POOLS) await lab.cluster.apply(poolIn(group, name, cidr, nat));
  };
  const toggle = (group: CalicoGroupName, natOutgoing: boolean): Promise<unknown> =>
    lab.cluster.patch(`IPPool/${group}`, 'other', { spec: { natOutgoing } });
  const probing = (): Promise<Prober> =>
    node.world.startProbing(
      [POD, KEPT].map(source => ({
        from: 'pod',
        source,
        destination: FAR,
        protocol: 'udp',
        destinationPort: 443,
      })),
      { perSecond: 200 },
    );
  const allRight = async (prober: Prober): Promise<void> => {
    const [masqueraded, kept] = await prober.stop();
    expect([...(masqueraded?.seen.keys() ?? [])]).toEqual([node.address[4]]);
    expect([...(kept?.seen.keys() ?? [])]).toEqual([KEPT]);
    expect(masqueraded?.sent).toBeGreaterThan(100);
  };
  /** Waits until the policy is degraded, and says so of what cannot be read: a write may fail for a moment before. */
  const degraded = (): Promise<{ readonly reason: string; readonly message: string }> =>
    waitFor(
      async () => {
        const found = (await lab.cluster.get('MasqPolicy', 'watcher')) as unknown as {
          status?: {
            conditions?: readonly { type: string; status: string; reason: string; message: string }[];
          };
        };
        const condition = found.status?.conditions?.find(({ type }) => type === 'Degraded');
        return condition?.status === 'True' && condition.message.includes('IPPools') ? condition : undefined;
      },
      { what: 'the policy to be degraded', limitMs: 45_000 },
    );
  const removeCrds = async (group: CalicoGroupName): Promise<void> => {
    const end = `.${VERSIONS[group].split('/')[0]}`;
    for (const kind of ['ippools', 'globalnetworksets', 'felixconfigurations']) {
      await lab.cluster.remove('CustomResourceDefinition', `${kind}${end}`);
    }
    await waitFor(
      async () =>
        (await lab.cluster.get('CustomResourceDefinition', `ippools${end}`)) === undefined ? true : undefined,
      { what: 'the CRD to go', limitMs: 20_000 },
    );
  };

  it('v3 alone is read', async () => {
    await open(['v3']);
    await toggle('v3', false);
    await node.sees({ source: OTHER, destination: FAR }, OTHER);
    expect(await node.seen({ source: KEPT, destination: FAR })).toBe(KEPT);
  });

  it('where both are served, v1 counts, and no pool twice', async () => {
    await open(['v1', 'v3']);
    await lab.cluster.apply(policy('count', [{ to: [block('9.9.9.0/24')], action: 'Preserve' }]));
    const object = await waitFor(
      async () => {
        const found = (await lab.cluster.get('MasqPolicy', 'count')) as unknown as {
          status?: { resolved?: object };
        };
        return found.status?.resolved === undefined ? undefined : found;
      },
      { what: 'a status', limitMs: 10_000 },
    );
    expect(object.status?.resolved).toMatchObject({ ipPools: POOLS.length });
    await toggle('v3', false);
    await toggle('v1', false);
    await node.sees({ source: OTHER, destination: FAR }, OTHER);
    await toggle('v1', true);
    await node.sees({ source: OTHER, destination: FAR }, node.address[4]);
  });

  it('a migration from v1 to v3 is followed without one wrong packet', async () => {
    await open(['v1']);
    const prober = await probing();
    await lab.cluster.installCalico('v3');
    await addPools('v3');
    await installCrds(lab.cluster.server.client, [MIGRATIONS], signal);
    const { client } = lab.cluster.server;
    const migrations = '/apis/migration.projectcalico.org/v1beta1/datastoremigrations';
    const made = await client.request('POST', migrations, {
      body: {
        apiVersion: 'migration.projectcalico.org/v1beta1',
        kind: 'DatastoreMigration',
        metadata: { name: 'v1-to-v3' },
      },
    });
    expect(made.status).toBe(201);
    // Until it has converged Calico reads v1, and so do we.
    await toggle('v1', false);
    await node.sees({ source: OTHER, destination: FAR }, OTHER);
    await toggle('v1', true);
    await node.sees({ source: OTHER, destination: FAR }, node.address[4]);
    const converged = await client.request('PATCH', `${migrations}/v1-to-v3/status`, {
      body: { status: { phase: 'Converged' } },
      contentType: 'application/merge-patch+json',
    });
    expect(converged.status).toBe(200);
    await toggle('v3', false);
    // The group that was not served before is looked for every half minute at most.
    await waitFor(
      async () => ((await node.seen({ source: OTHER, destination: FAR })) === OTHER ? true : undefined),
      {
        what: 'v3 to be read',
        limitMs: 60_000,
      },
    );
    await removeCrds('v1');
    await toggle('v3', true);
    await node.sees({ source: OTHER, destination: FAR }, node.address[4]);
    await allRight(prober);
  });

  it('a list that is forbidden leaves what was known in force, and policies say since when', async () => {
    await open(['v1']);
    await lab.cluster.apply(policy('watcher', [{ to: [block('9.9.9.0/24')], action: 'Preserve' }]));
    const role = '/apis/rbac.authorization.k8s.io/v1/clusterroles/natoutgoing-operator';
    const { client } = lab.cluster.server;
    const { rules } = (await client.request('GET', role)).body as {
      rules: readonly { apiGroups: readonly string[] }[];
    };
    const setRules = async (to: readonly object[]): Promise<void> => {
      const answer = await client.request('PATCH', role, {
        body: { rules: to },
        contentType: 'application/merge-patch+json',
      });
      expect(answer.status).toBe(200);
    };
    const prober = await probing();
    await setRules(rules.filter(({ apiGroups }) => !apiGroups.includes('crd.projectcalico.org')));
    // A watch that is open is not asked for its rights again.
    operator.relay.cut();
    expect((await degraded()).message).toMatch(/IPPools .* cannot be read since \d{4}-.*forbidden/);
    await allRight(prober);
    await setRules(rules);
    await toggle('v1', false);
    await node.sees({ source: OTHER, destination: FAR }, OTHER);
  });

  it('a group that vanishes leaves what was known in force, and policies say since when', async () => {
    await open(['v1']);
    await lab.cluster.apply(policy('watcher', [{ to: [block('9.9.9.0/24')], action: 'Preserve' }]));
    const prober = await probing();
    await removeCrds('v1');
    expect(await degraded()).toMatchObject({
      reason: 'SourceUnavailable',
      message: expect.stringMatching(/IPPools .* cannot be read since \d{4}-/),
    });
    await allRight(prober);
    // Served again and empty: now there really is none.
    await lab.cluster.installCalico('v1');
    await waitFor(
      async () => ((await node.seen({ source: POD, destination: FAR })) === POD ? true : undefined),
      {
        what: 'no pool to be known',
        limitMs: 60_000,
      },
    );
  });
});
