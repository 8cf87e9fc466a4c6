// Least privilege, on a real API server: what the chart's roles let the two accounts do, and that they let them do
// nothing else.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ApiClient } from './client.ts';
import { APPLIER, type Cluster, OPERATOR, startCluster } from './cluster.ts';
import { create, refusalOf } from './objects.ts';
import { grantsOf, type Grants, without } from './grants.ts';
import { requestToken } from './tokens.ts';
import { waitFor } from './wait.ts';

const OURS = '/apis/natoutgoing.io/v1alpha1';
const POOLS = ['crd.projectcalico.org/v1', 'projectcalico.org/v3'].map(group => `/apis/${group}/ippools`);
const LEASES = '/apis/coordination.k8s.io/v1/namespaces/natoutgoing/leases';
const NAMESPACES = ['natoutgoing', 'default', 'kube-system'] as const;

describe('the roles of the chart', () => {
  let cluster: Cluster;
  let operator: ApiClient;
  let applier: ApiClient;
  let nobody: ApiClient;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    cluster = await startCluster({ calico: ['v1', 'v3'] }, signal);
    for (const name of ['worker-1', 'worker-2']) {
      await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
      await cluster.apply(masqNode(name));
    }
    await cluster.apply({
      apiVersion: 'crd.projectcalico.org/v1',
      kind: 'IPPool',
      metadata: { name: 'main' },
      spec: { cidr: '10.244.0.0/16' },
    });
    const { server } = cluster;
    operator = server.clientWith(await cluster.token('natoutgoing-operator'));
    applier = server.clientWith(await cluster.token('natoutgoing-applier', { node: 'worker-1' }));
    nobody = server.clientWith(await requestToken(server, await otherAccount('nobody')));
    // Roles are in force a moment after they were made.
    for (const [client, path] of [
      [operator, `${OURS}/masqpolicies`],
      [applier, `${OURS}/masqnodes`],
    ] as const)
      await waitFor(async () => ((await client.request('GET', path)).status === 200 ? true : undefined), {
        what: `${path} to be allowed`,
        limitMs: 10_000,
      });
  });
  afterAll(() => cluster?.close());

  const masqNode = (name: string): object => ({
    apiVersion: 'natoutgoing.io/v1alpha1',
    kind: 'MasqNode',
    metadata: { name },
    spec: { plan: 'masq-1' },
  });

  const otherAccount = async (name: string): Promise<{ namespace: string; name: string }> => {
    const path = '/api/v1/namespaces/natoutgoing/serviceaccounts';
    expect((await create(cluster.server.client, path, { metadata: { name } })).status).toBe(201);
    return { namespace: 'natoutgoing', name };
  };

  describe('say exactly what', () => {
    /** What the account has over one that nobody gave anything, in three namespaces. */
    const granted = async (client: ApiClient): Promise<Readonly<Record<string, Grants>>> => {
      const all: Record<string, Grants> = {};
      for (const namespace of NAMESPACES)
        all[namespace] = without(await grantsOf(client, namespace), await grantsOf(nobody, namespace));
      return all;
    };

    it('the operator may do', async () => {
      const everywhere: Grants = {
        'crd.projectcalico.org/felixconfigurations': ['list', 'watch'],
        'crd.projectcalico.org/globalnetworksets': ['list', 'watch'],
        'crd.projectcalico.org/ippools': ['list', 'watch'],
        'projectcalico.org/felixconfigurations': ['list', 'watch'],
        'projectcalico.org/globalnetworksets': ['list', 'watch'],
        'projectcalico.org/ippools': ['list', 'watch'],
        'migration.projectcalico.org/datastoremigrations': ['list', 'watch'],
        '/nodes': ['list', 'watch'],
        'apiextensions.k8s.io/customresourcedefinitions': ['get'],
        'apiregistration.k8s.io/apiservices': ['get'],
        'natoutgoing.io/masqpolicies': ['list', 'watch'],
        'natoutgoing.io/masqpolicies/status': ['patch'],
        'natoutgoing.io/masqplans': ['create', 'delete', 'list', 'patch', 'watch'],
        'natoutgoing.io/masqnodes': ['create', 'delete', 'list', 'patch', 'watch'],
        'events.k8s.io/events': ['create', 'patch'],
      };
      const own: Grants = {
        ...everywhere,
        'coordination.k8s.io/leases': ['create'],
        'coordination.k8s.io/leases natoutgoing-operator': ['get', 'update'],
      };
      const wanted = { natoutgoing: own, default: everywhere, 'kube-system': everywhere };
      expect(await granted(operator)).toEqual(wanted);
    });

    it('an applier may do', async () => {
      const everywhere: Grants = {
        'natoutgoing.io/masqplans': ['list', 'watch'],
        'natoutgoing.io/masqnodes': ['list', 'watch'],
        'natoutgoing.io/masqnodes/status': ['patch'],
        'events.k8s.io/events': ['create', 'patch'],
      };
      const wanted = { natoutgoing: everywhere, default: everywhere, 'kube-system': everywhere };
      expect(await granted(applier)).toEqual(wanted);
    });

    it('the hook of helm uninstall may do', async () => {
      const everywhere: Grants = {
        '/nodes': ['list'],
        'natoutgoing.io/masqplans': ['delete', 'list'],
        'natoutgoing.io/masqnodes': ['delete', 'list', 'patch'],
      };
      const own: Grants = {
        ...everywhere,
        'apps/deployments/scale natoutgoing-operator': ['patch'],
        'coordination.k8s.io/leases': ['create'],
        'coordination.k8s.io/leases natoutgoing-operator': ['get', 'update'],
      };
      const client = cluster.server.clientWith(await cluster.token('natoutgoing-removal'));
      const wanted = { natoutgoing: own, default: everywhere, 'kube-system': everywhere };
      expect(await granted(client)).toEqual(wanted);
    });

    it('helm test may do', async () => {
      const everywhere: Grants = {
        '/nodes': ['list'],
        'crd.projectcalico.org/ippools': ['list'],
        'projectcalico.org/ippools': ['list'],
        'natoutgoing.io/masqpolicies': ['list'],
        'natoutgoing.io/masqplans': ['list'],
        'natoutgoing.io/masqnodes': ['list'],
      };
      const own: Grants = { ...everywhere, 'coordination.k8s.io/leases natoutgoing-operator': ['get'] };
      const client = cluster.server.clientWith(await cluster.token('natoutgoing-test'));
      const wanted = { natoutgoing: own, default: everywhere, 'kube-system': everywhere };
      expect(await granted(client)).toEqual(wanted);
    });
  });

  describe('hold in real requests:', () => {
    const forbidden = async (client: ApiClient, user: string, method: string, path: string) => {
      const body = { metadata: { name: 'main' }, spec: {} };
      const sent =
        method === 'PATCH'
          ? { body, contentType: 'application/merge-patch+json' }
          : method === 'POST'
            ? { body }
            : {};
      const answer = await client.request(method, path, sent);
      expect(answer.status, JSON.stringify(answer.body)).toBe(403);
      expect(refusalOf(answer).message).toContain(`User "${user}" cannot`);
    };

    it.each([
      ...POOLS.flatMap(path => [
        ['POST', path],
        ['PATCH', `${path}/main`],
        ['DELETE', `${path}/main`],
        ['DELETE', path],
      ]),
      ['PATCH', '/apis/crd.projectcalico.org/v1/felixconfigurations/default'],
      ['PATCH', '/apis/crd.projectcalico.org/v1/globalnetworksets/main'],
      ['PATCH', '/api/v1/nodes/worker-1'],
      ['PATCH', '/api/v1/nodes/worker-1/status'],
      ['DELETE', '/api/v1/nodes/worker-1'],
      ['GET', '/api/v1/secrets'],
      ['GET', '/api/v1/namespaces/natoutgoing/secrets'],
      ['GET', '/api/v1/pods'],
      ['POST', `${OURS}/masqpolicies`],
      ['PATCH', `${OURS}/masqpolicies/main`],
      ['DELETE', `${OURS}/masqplans`],
      ['DELETE', `${OURS}/masqnodes`],
      ['PATCH', `${OURS}/masqnodes/worker-1/status`],
      ['GET', `${LEASES}/another`],
      ['GET', LEASES],
      ['DELETE', `${LEASES}/natoutgoing-operator`],
      ['POST', '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases'],
      ['GET', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'],
      ['PATCH', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/masqplans.natoutgoing.io'],
      ['POST', '/api/v1/namespaces/natoutgoing/serviceaccounts/natoutgoing-applier/token'],
    ])('the operator is refused %s %s', async (method, path) =>
      forbidden(operator, OPERATOR, method ?? '', path ?? ''),
    );

    it.each([
      ['POST', `${OURS}/masqnodes`],
      ['PATCH', `${OURS}/masqnodes/worker-1`],
      ['DELETE', `${OURS}/masqnodes/worker-1`],
      ['DELETE', `${OURS}/masqnodes`],
      ['PUT', `${OURS}/masqnodes/worker-1/status`],
      ['POST', `${OURS}/masqplans`],
      ['PATCH', `${OURS}/masqplans/masq-1`],
      ['DELETE', `${OURS}/masqplans/masq-1`],
      ['GET', `${OURS}/masqpolicies`],
      ['PATCH', `${OURS}/masqpolicies/main`],
      ['PATCH', `${OURS}/masqpolicies/main/status`],
      ...POOLS.map(path => ['GET', path]),
      ['GET', '/api/v1/nodes/worker-1'],
      ['GET', '/api/v1/secrets'],
      ['GET', '/api/v1/namespaces/natoutgoing/pods'],
      ['GET', LEASES],
      ['POST', '/api/v1/namespaces/natoutgoing/serviceaccounts/natoutgoing-applier/token'],
    ])('an applier is refused %s %s', async (method, path) =>
      forbidden(applier, APPLIER, method ?? '', path ?? ''),
    );

    it.each([
      ['the operator', () => operator],
      ['an applier', () => applier],
    ])('%s records an Event and counts it', async (_, client) => {
      const events = '/apis/events.k8s.io/v1/namespaces/default/events';
      const now = new Date().toISOString().replace('Z', '000Z');
      const made = await create(client(), events, {
        metadata: { generateName: 'worker-1-' },
        regarding: {
          apiVersion: 'natoutgoing.io/v1alpha1',
          kind: 'MasqNode',
          name: 'worker-1',
          namespace: '',
        },
        type: 'Normal',
        reason: 'Tried',
        action: 'Try',
        note: 'a test',
        eventTime: now,
        reportingController: 'natoutgoing.io/test',
        reportingInstance: 'test',
      });
      expect(made.status, JSON.stringify(made.body)).toBe(201);
      const { metadata } = made.body as { metadata: { name: string } };
      const counted = await client().request('PATCH', `${events}/${metadata.name}`, {
        body: { series: { count: 2, lastObservedTime: now } },
        contentType: 'application/merge-patch+json',
      });
      expect(counted.status, JSON.stringify(counted.body)).toBe(200);
    });
  });
});
