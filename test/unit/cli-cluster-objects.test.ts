// What the commands read of a cluster: everything once, of the group that counts, and never "none" for "not known".
import { describe, expect, it } from 'vitest';
import { ApiError } from '../../src/cluster/api.ts';
import { calicoPools, clusterManifests } from '../../src/cli/cluster-objects.ts';
import { clusterFake, nodeObject, policyObject, poolObject, type Served } from './cli-cluster-fake.ts';
import { noAnswer, refusal, thing } from './cluster-fake.ts';

const { signal } = new AbortController();
const POOLS_V1 = '/apis/crd.projectcalico.org/v1/ippools';
const POOLS_V3 = '/apis/projectcalico.org/v3/ippools';
const MIGRATIONS = '/apis/migration.projectcalico.org/v1beta1/datastoremigrations';

const CLUSTER: Served = {
  policies: [policyObject('one')],
  nodes: [nodeObject('a'), nodeObject('b'), nodeObject('c'), nodeObject('d'), nodeObject('e')],
  v1: [poolObject('main', '10.244.0.0/16')],
};

const converged = thing('v1-to-v3', 1, { status: { phase: 'Converged' } });
const running = thing('v1-to-v3', 1, { status: { phase: 'Migrating' } });

describe('the objects of a cluster', () => {
  it('are read page by page, as objects of their kinds', async () => {
    const api = clusterFake(CLUSTER);
    const { snapshot, verdicts, problems } = await clusterManifests(api, signal);
    expect(problems).toEqual([]);
    expect(snapshot.nodes.map(({ name }) => name)).toEqual(['a', 'b', 'c', 'd', 'e']);
    expect(snapshot.policies.map(({ name }) => name)).toEqual(['one']);
    expect(snapshot.pools.map(({ name }) => name)).toEqual(['main']);
    expect(verdicts).toHaveLength(7);
    expect(verdicts.every(({ file, verdict }) => file === 'cluster' && verdict === 'ok')).toBe(true);
    expect(api.requests.filter(({ path }) => path.startsWith('/api/v1/nodes'))).toHaveLength(3);
    expect(api.requests.every(({ method }) => method === 'GET')).toBe(true);
  });

  it('are judged as those of files are', async () => {
    const bad = policyObject('bad', [], { spec: { source: { ipPools: {} }, rules: [] } });
    const { snapshot, verdicts } = await clusterManifests(
      clusterFake({ ...CLUSTER, policies: [...(CLUSTER.policies ?? []), bad] }),
      signal,
    );
    expect(snapshot.policies.map(({ name }) => name)).toEqual(['one']);
    expect(verdicts.find(({ name }) => name === 'bad')).toMatchObject({
      kind: 'MasqPolicy',
      verdict: 'refused',
      faults: [{ field: 'spec.rules' }],
    });
  });

  it('lists anew what the server has forgotten between two pages, and not for ever', async () => {
    let refusals = 1;
    const forgetful = (path: string) =>
      path === '/api/v1/nodes' && refusals-- > 0 ? refusal(410, 'Expired') : undefined;
    const { snapshot } = await clusterManifests(clusterFake(CLUSTER, forgetful), signal);
    expect(snapshot.nodes).toHaveLength(5);

    refusals = 1000;
    const api = clusterFake(CLUSTER, forgetful);
    await expect(clusterManifests(api, signal)).rejects.toThrow(/GET \/api\/v1\/nodes: 410/);
    expect(api.requests.filter(({ path }) => path.startsWith('/api/v1/nodes'))).toHaveLength(3);
  });

  it.each([
    ['MasqPolicies', '/apis/natoutgoing.io/v1alpha1/masqpolicies', 'masqpolicies.natoutgoing.io'],
    ['Nodes', '/api/v1/nodes', 'nodes'],
    ['IPPools', POOLS_V1, 'ippools.crd.projectcalico.org'],
    [
      'network sets',
      '/apis/crd.projectcalico.org/v1/globalnetworksets',
      'globalnetworksets.crd.projectcalico.org',
    ],
    [
      'FelixConfigurations',
      '/apis/crd.projectcalico.org/v1/felixconfigurations',
      'felixconfigurations.crd.projectcalico.org',
    ],
  ])('%s that may not be listed are an error that names the right', async (_, path, resource) => {
    const forbidden = clusterFake(CLUSTER, asked => (asked === path ? refusal(403, 'Forbidden') : undefined));
    await expect(clusterManifests(forbidden, signal)).rejects.toThrow(
      `GET ${path}: 403: the server says 403 (its account needs the verb list on ${resource})`,
    );
  });

  it('says what is not served', async () => {
    const without = (served: Served, key: keyof Served): Served =>
      Object.fromEntries(Object.entries(served).filter(([name]) => name !== key));
    await expect(clusterManifests(clusterFake(without(CLUSTER, 'policies')), signal)).rejects.toThrow(
      'the cluster has no MasqPolicies: the CustomResourceDefinitions of natoutgoing.io are not installed',
    );
    await expect(clusterManifests(clusterFake(without(CLUSTER, 'nodes')), signal)).rejects.toThrow(
      'the cluster has no Nodes: they are not served',
    );
    await expect(clusterManifests(clusterFake(without(CLUSTER, 'v1')), signal)).rejects.toThrow(
      'the cluster has no IPPools: neither',
    );
  });
});

describe("Calico's group", () => {
  const groupOf = async (served: Served, wrong?: Parameters<typeof clusterFake>[1]) =>
    (await calicoPools(clusterFake(served, wrong), signal))?.group;
  const v1 = [poolObject('old', '10.1.0.0/16')];
  const v3 = [poolObject('new', '10.2.0.0/16'), poolObject('newer', '10.3.0.0/16')];

  it.each([
    ['v1 alone', { v1 }, 'v1'],
    ['v3 alone', { v3 }, 'v3'],
    ['both', { v1, v3 }, 'v1'],
    ['both, empty', { v1: [], v3: [] }, 'v1'],
    ['both, on the way', { v1, v3, migrations: [running] }, 'v1'],
    ['both, migrated', { v1, v3, migrations: [converged] }, 'v3'],
    ['none', {}, undefined],
  ] as const)('%s', async (_, served, group) => {
    expect(await groupOf(served)).toBe(group);
  });

  it('gives its own pools and no others, each once', async () => {
    const pools = async (served: Served) =>
      (await clusterManifests(clusterFake({ ...CLUSTER, ...served }), signal)).snapshot.pools;
    expect((await pools({ v1, v3 })).map(({ name }) => name)).toEqual(['old']);
    expect((await pools({ v1, v3, migrations: [converged] })).map(({ name }) => name)).toEqual([
      'new',
      'newer',
    ]);
  });

  it('is told as long as what fails has no say', async () => {
    expect(await groupOf({ v1 }, path => (path === POOLS_V3 ? refusal(503) : undefined))).toBe('v1');
    expect(await groupOf({ v1 }, path => (path === MIGRATIONS ? refusal(403) : undefined))).toBe('v1');
  });

  it.each([
    ['v1', POOLS_V1, { v3 }],
    ['v3, when it may be all there is', POOLS_V3, {}],
    ['v3, when it may be the one that counts', POOLS_V3, { v1, migrations: [converged] }],
    ['the migration, when it decides', MIGRATIONS, { v1, v3 }],
  ] as const)('is an error when it depends on what fails: %s', async (_, path, served) => {
    const asked = groupOf(served, at => (at === path ? refusal(503) : undefined));
    await expect(asked).rejects.toThrow(ApiError);
    await expect(asked).rejects.toThrow(`GET ${path}: 503`);
    const silent = (at: string): never | undefined => {
      if (at === path) throw noAnswer();
      return undefined;
    };
    await expect(groupOf(served, silent)).rejects.toThrow('connection refused');
  });
});
