// The chart's admission policy, on a real API server: an applier's token says on which node it is, and it writes the
// status of that node's MasqNode only.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ApiClient } from './client.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { create, refusalOf } from './objects.ts';
import { type BoundTo, requestToken, shortened } from './tokens.ts';
import { waitFor } from './wait.ts';

const MASQ_NODES = '/apis/natoutgoing.io/v1alpha1/masqnodes';
const PODS = '/api/v1/namespaces/natoutgoing/pods';
const ACCOUNT = { namespace: 'natoutgoing', name: 'natoutgoing-applier' };

describe('an applier', () => {
  let cluster: Cluster;
  let applier: ApiClient;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    cluster = await startCluster({}, signal);
    for (const name of ['worker-1', 'worker-2']) {
      await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
      await cluster.apply({ ...masqNode(name), spec: { plan: 'masq-1' } });
    }
    applier = cluster.server.clientWith(await cluster.token('natoutgoing-applier', { node: 'worker-1' }));
    // A role is in force a moment after it was made, an admission policy up to some seconds after.
    await waitFor(async () => ((await patchStatus(applier, 'worker-1')) === 'done' ? true : undefined), {
      what: 'the role to be in force',
      limitMs: 10_000,
    });
    await waitFor(async () => ((await patchStatus(applier, 'worker-2')) !== 'done' ? true : undefined), {
      what: 'the admission policy to be in force',
      limitMs: 20_000,
    });
  });
  afterAll(() => cluster?.close());

  const masqNode = (name: string): object => ({
    apiVersion: 'natoutgoing.io/v1alpha1',
    kind: 'MasqNode',
    metadata: { name },
  });

  /** 'done', or the status and the server's words. */
  const patchStatus = async (client: ApiClient, node: string): Promise<string> => {
    const query = '?fieldManager=natoutgoing-applier&force=true';
    const answer = await client.request('PATCH', `${MASQ_NODES}/${node}/status${query}`, {
      body: { ...masqNode(node), status: { backend: 'nft' } },
      contentType: 'application/apply-patch+yaml',
    });
    return answer.status === 200 ? 'done' : `${answer.status} ${refusalOf(answer).message}`;
  };

  const refusal = (node: string): unknown =>
    expect.stringMatching(`^403 .*an applier may write only the MasqNode of its own node, not ${node}$`);

  it('writes its own with a token bound to the node, and no other', async () => {
    expect(await patchStatus(applier, 'worker-1')).toBe('done');
    expect(await patchStatus(applier, 'worker-2')).toEqual(refusal('worker-2'));
    // Nor makes one.
    expect(await patchStatus(applier, 'worker-3')).toMatch(/^404 /);
    expect(await cluster.get('MasqNode', 'worker-3')).toBeUndefined();
  });

  it('writes its own with a token bound to a pod on the node, as kubelet gives them, and no other', async () => {
    const pod = await podOn('worker-2');
    const token = await requestToken(cluster.server, ACCOUNT, { boundTo: pod });
    const client = cluster.server.clientWith(token);
    expect(await patchStatus(client, 'worker-2')).toBe('done');
    expect(await patchStatus(client, 'worker-1')).toEqual(refusal('worker-1'));

    const node = (await cluster.get('Node', 'worker-2'))?.metadata as { uid?: string } | undefined;
    // What the server makes of both kinds of token: the same extra names the node.
    const ofNode = {
      'authentication.kubernetes.io/credential-id': [expect.stringMatching(/^JTI=/)],
      'authentication.kubernetes.io/node-name': ['worker-2'],
      'authentication.kubernetes.io/node-uid': [node?.uid],
    };
    expect(await extraOf(token)).toEqual({
      ...ofNode,
      'authentication.kubernetes.io/pod-name': [pod.name],
      'authentication.kubernetes.io/pod-uid': [pod.uid],
    });
    expect(await extraOf(await cluster.token('natoutgoing-applier', { node: 'worker-2' }))).toEqual(ofNode);

    // It ends with its pod; one that the server took within the last ten seconds is taken for so long.
    const unused = await requestToken(cluster.server, ACCOUNT, { boundTo: pod });
    const gone = await cluster.server.client.request('DELETE', `${PODS}/${pod.name}`, {
      body: { gracePeriodSeconds: 0 },
    });
    expect(gone.status).toBe(200);
    await refusedSoon(cluster.server.clientWith(unused));
  });

  it('writes nothing with a token that is bound to no node', async () => {
    const token = await cluster.token('natoutgoing-applier');
    const client = cluster.server.clientWith(token);
    expect((await client.request('GET', MASQ_NODES)).status).toBe(200);
    expect(await patchStatus(client, 'worker-1')).toEqual(refusal('worker-1'));
    // A pod that waits for its node has none yet.
    const boundTo = await podOn(undefined);
    const waiting = cluster.server.clientWith(await requestToken(cluster.server, ACCOUNT, { boundTo }));
    expect(await patchStatus(waiting, 'worker-1')).toEqual(refusal('worker-1'));
  });

  it('is refused once its token has ended', async () => {
    const longer = await cluster.token('natoutgoing-applier', { node: 'worker-1', seconds: 120 });
    expect(await patchStatus(cluster.server.clientWith(longer), 'worker-1')).toBe('done');
    const ended = await shortened(cluster.server, longer, 0);
    expect(await patchStatus(cluster.server.clientWith(ended), 'worker-1')).toMatch(/^401 /);
  });

  it('alone is held to that', async () => {
    const account = { namespace: 'natoutgoing', name: 'other' };
    const made = [
      await create(cluster.server.client, '/api/v1/namespaces/natoutgoing/serviceaccounts', {
        metadata: { name: account.name },
      }),
      await create(cluster.server.client, '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
        metadata: { name: account.name },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'natoutgoing-applier' },
        subjects: [{ kind: 'ServiceAccount', ...account }],
      }),
    ];
    expect(made.map(({ status }) => status)).toEqual([201, 201]);
    const other = cluster.server.clientWith(await requestToken(cluster.server, account));
    await waitFor(async () => ((await patchStatus(other, 'worker-1')) === 'done' ? true : undefined), {
      what: 'another account with the same role to write',
      limitMs: 10_000,
    });
    expect(await patchStatus(cluster.server.client, 'worker-2')).toBe('done');
  });

  const refusedSoon = (client: ApiClient): Promise<true> => {
    let last = '';
    const look = async (): Promise<true | undefined> => {
      last = await patchStatus(client, 'worker-1');
      return last.startsWith('401 ') ? true : undefined;
    };
    return waitFor(look, { what: 'the token to be refused', limitMs: 20_000, detail: () => last });
  };

  const podOn = async (nodeName: string | undefined): Promise<BoundTo> => {
    const made = await create(cluster.server.client, PODS, {
      metadata: { generateName: 'applier-' },
      spec: {
        ...(nodeName === undefined ? {} : { nodeName }),
        serviceAccountName: ACCOUNT.name,
        containers: [{ name: 'applier', image: 'none' }],
      },
    });
    expect(made.status, JSON.stringify(made.body)).toBe(201);
    const { metadata } = made.body as { metadata: { name: string; uid: string } };
    return { kind: 'Pod', name: metadata.name, uid: metadata.uid };
  };

  const extraOf = async (token: string): Promise<unknown> => {
    const path = '/apis/authentication.k8s.io/v1/tokenreviews';
    const { body } = await create(cluster.server.client, path, { spec: { token } });
    return (body as { status: { user?: { extra?: unknown } } }).status.user?.extra;
  };
});
