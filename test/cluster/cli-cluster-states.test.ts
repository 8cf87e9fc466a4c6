// The commands on a bare API server: kinds that are not there, Calico's newer group alone, statuses as an operator and
// appliers could have written them, and accounts with few rights.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { networkSet, policy, pool } from '../kernel/scene.ts';
import { natoutgoing, type Ran } from '../unit/cli-run.ts';
import { type ApiServer, kubeconfigText, startApiServer } from './api-server.ts';
import { condition, PLAN, putOn, renewed, tellOn } from './cli-hand-written.ts';
import { type Crd, installCrds, readObjects } from './objects.ts';
import { requestToken } from './tokens.ts';
import { waitFor } from './wait.ts';

const OURS = '/apis/natoutgoing.io/v1alpha1';
const V3 = '/apis/projectcalico.org/v3';
const RBAC = '/apis/rbac.authorization.k8s.io/v1';
const PACKET = ['--node', 'worker-1', '--src', '10.244.1.5', '--dst', '192.0.2.9', '--no-kernel'];

interface Status {
  readonly healthy: boolean;
  readonly problems: readonly string[];
  readonly operator: object;
  readonly totals: object;
  readonly nodes: readonly object[];
}

interface Judged {
  readonly objects: readonly Readonly<Record<string, unknown>>[];
}

describe('commands against a bare API server', () => {
  let server: ApiServer;
  const { signal } = new AbortController();
  const inV3 = (object: object): object => ({ ...object, apiVersion: 'projectcalico.org/v3' });
  const node = {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'worker-1', labels: { zone: 'a' } },
  };
  const good = policy('partners', [
    { to: [{ networkSets: { names: ['partners'] } }], action: 'Preserve' },
    { to: [{ networkSets: { names: ['partners'] } }], action: 'Masquerade' },
  ]);
  const objects = [
    inV3(pool('main', '10.244.0.0/16')),
    inV3(networkSet('partners', ['192.0.2.0/24'])),
    good,
    node,
  ];

  beforeAll(async () => {
    server = await startApiServer({}, signal);
  });
  afterAll(() => server?.close());

  const inCluster = (...args: readonly string[]): Promise<Ran> =>
    natoutgoing(...args, '--kubeconfig', server.kubeconfig);
  const status = async (code: number): Promise<Status> => {
    const ran = await inCluster('status', '--all-nodes', '-o', 'json');
    expect(ran).toMatchObject({ code, stderr: '' });
    return JSON.parse(ran.stdout) as Status;
  };
  const put = (resource: string, object: object): Promise<void> => putOn(server, resource, object);
  const tell = (path: string, said: object): Promise<void> => tellOn(server, path, said);

  it('without our kinds, and without Calico’s', async () => {
    for (const args of [['check'], ['explain', ...PACKET], ['status']]) {
      expect(await inCluster(...args)).toMatchObject({ code: 2, stdout: '' });
      expect((await inCluster(...args)).stderr).toMatch(
        /^error: the cluster has no Masq\w+: the CustomResourceDefinitions of natoutgoing\.io are not installed\n$/,
      );
    }
    await installCrds(server.client, await readObjects('crds'), signal);
    expect((await inCluster('check')).stderr).toMatch(/^error: the cluster has no IPPools: neither /);
    expect((await status(1)).problems).toEqual([
      expect.stringMatching(/^no operator leads/),
      expect.stringMatching(/^Calico's IPPools are not served/),
    ]);
    const v3 = (await readObjects('test/fixtures/calico')).filter(
      object => (object as Crd).spec?.group === 'projectcalico.org',
    );
    await installCrds(server.client, v3, signal);
  });

  it('an empty one', async () => {
    expect(await inCluster('check')).toEqual({ code: 0, stdout: 'FILE  KIND  NAME  VERDICT\n', stderr: '' });
    expect(await inCluster('explain', ...PACKET)).toMatchObject({
      code: 2,
      stderr: 'error: the cluster has no Node "worker-1"\n',
    });
    const { stdout } = await inCluster('status');
    expect(stdout).toMatch(/^1 problem:\n {2}no operator leads: /);
    expect(stdout).toMatch(/\nno policies\n\nno plans\n\nno nodes\n$/);
  });

  it("with Calico's newer group alone: the same answers as from files", async () => {
    await put(`${V3}/ippools`, objects[0] as object);
    await put(`${V3}/globalnetworksets`, objects[1] as object);
    await put(`${OURS}/masqpolicies`, good);
    await put('/api/v1/nodes', node);
    const files = join(server.folder, 'objects.json');
    await writeFile(files, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }));
    for (const args of [
      ['explain', ...PACKET, '-o', 'json'],
      ['render', '--node', 'worker-1', '-o', 'json'],
    ]) {
      const fromCluster = await inCluster(...args);
      expect(fromCluster).toMatchObject({ code: 0, stderr: '' });
      expect(fromCluster).toEqual(await natoutgoing(...args, '-f', files));
    }
    const { stdout } = await inCluster('explain', ...PACKET, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({ by: { policy: 'partners', rule: 'rule-0' } });

    const judged = async (...from: readonly string[]): Promise<unknown> => {
      const ran = await natoutgoing('check', '-o', 'json', ...from);
      expect(ran).toMatchObject({ code: 0, stderr: '' });
      const { objects: verdicts, ...rest } = JSON.parse(ran.stdout) as Judged;
      const plain = verdicts.map(({ file: _f, document: _d, item: _i, ...verdict }) => verdict);
      return { ...rest, objects: plain.toSorted((a, b) => (String(a['kind']) < String(b['kind']) ? -1 : 1)) };
    };
    const fromCluster = await judged('--kubeconfig', server.kubeconfig);
    expect(fromCluster).toEqual(await judged('-f', files));
    expect(fromCluster).toMatchObject({ problems: [{ reason: 'Shadowed' }], objects: { length: 4 } });
  });

  it('status: nobody has done anything yet', async () => {
    expect((await status(1)).problems).toEqual([
      expect.stringMatching(/^no operator leads/),
      'policy partners: the operator has said nothing about it yet',
      'node worker-1: the operator has given it no plan',
    ]);
  });

  it('status: all is well', async () => {
    await put('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'natoutgoing' },
    });
    await put('/apis/coordination.k8s.io/v1/namespaces/natoutgoing/leases', {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name: 'natoutgoing-operator' },
      spec: { holderIdentity: 'operator-a', leaseDurationSeconds: 15, renewTime: renewed(1) },
    });
    await put(`${OURS}/masqplans`, PLAN);
    await put(`${OURS}/masqnodes`, {
      apiVersion: 'natoutgoing.io/v1alpha1',
      kind: 'MasqNode',
      metadata: { name: 'worker-1' },
      spec: { plan: 'plan-a' },
    });
    const family = { state: 'Programmed', sets: 1, entries: 2, rules: 3, jumpPosition: 1 };
    await tell(`${OURS}/masqnodes/worker-1`, {
      observedGeneration: 1,
      plan: 'plan-a',
      contentHash: '0123456789abcdef',
      backend: 'nft',
      families: { ipv4: family, ipv6: { state: 'Unavailable' } },
      lastVerifiedTime: new Date().toISOString().replace(/\.\d+/, ''),
      driftRepairs: 2,
      conditions: [condition('Ready', 'True', 'Programmed'), condition('Contended', 'False', 'NoContention')],
    });
    await tell(`${OURS}/masqpolicies/partners`, {
      observedGeneration: 1,
      conditions: [
        condition('Accepted', 'True', 'Accepted'),
        condition('ResolvedRefs', 'True', 'ResolvedRefs'),
        condition('Programmed', 'True', 'Programmed'),
        condition('Conflicted', 'True', 'Shadowed', 'rule rule-1 decides about no packet'),
        condition('Degraded', 'False', 'AsExpected'),
      ],
      nodes: { desired: 1, programmed: 1, failed: 0, summary: '1/1' },
    });
    expect(await status(0)).toMatchObject({
      healthy: true,
      problems: [],
      warnings: ['policy partners: Shadowed: rule rule-1 decides about no packet'],
      operator: { leader: 'operator-a', fresh: true },
      calicoGroup: 'projectcalico.org/v3',
      totals: { nodes: 1, ready: 1, withTrouble: 0, driftRepairs: 2, contended: 0 },
      policies: [{ name: 'partners', priority: 500, mode: 'Enforce', accepted: 'True', nodes: '1/1' }],
      plans: [{ name: 'plan-a', parts: 1, of: 1, nodes: 1, programmed: 1 }],
      nodes: [{ name: 'worker-1', ipv4: { jumpPosition: 1 }, ipv6: { state: 'Unavailable' } }],
    });
    const { stdout } = await inCluster('status');
    expect(stdout).toMatch(/^all is well\n/);
    expect(stdout).toContain('no node with a plan has trouble');
    expect((await inCluster('status', '--node', 'worker-1')).stdout).toMatch(
      /^worker-1 +True +nft +Programmed +Unavailable +1\/- +2 /m,
    );
  });

  it('status: a node that fails, and an operator that has died', async () => {
    await tell(`${OURS}/masqnodes/worker-1`, {
      conditions: [condition('Ready', 'False', 'ProgrammingFailed', 'ipv4: exit code 4')],
    });
    await server.client.request(
      'PATCH',
      '/apis/coordination.k8s.io/v1/namespaces/natoutgoing/leases/natoutgoing-operator',
      { body: { spec: { renewTime: renewed(300) } }, contentType: 'application/merge-patch+json' },
    );
    const { problems, operator, totals, nodes } = await status(1);
    expect(problems).toEqual([
      expect.stringMatching(/^operator operator-a has not renewed its Lease for 30\d s: /),
      'node worker-1: ProgrammingFailed: ipv4: exit code 4',
    ]);
    expect(operator).toMatchObject({ fresh: false });
    expect(totals).toMatchObject({ ready: 0, withTrouble: 1 });
    expect(nodes).toMatchObject([{ name: 'worker-1', ready: 'False' }]);
  });

  it('an account that may not read all is told which right it lacks', async () => {
    const account = { namespace: 'default', name: 'reader' };
    await put('/api/v1/namespaces/default/serviceaccounts', {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: account,
    });
    const rules = [
      { apiGroups: ['natoutgoing.io'], resources: ['*'], verbs: ['list'] },
      { apiGroups: [''], resources: ['nodes'], verbs: ['list'] },
      { apiGroups: ['crd.projectcalico.org'], resources: ['*'], verbs: ['list'] },
      { apiGroups: ['migration.projectcalico.org'], resources: ['*'], verbs: ['list'] },
    ];
    const role = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole' };
    await put(`${RBAC}/clusterroles`, { ...role, metadata: { name: 'reader' }, rules });
    await put(`${RBAC}/clusterrolebindings`, {
      ...role,
      kind: 'ClusterRoleBinding',
      metadata: { name: 'reader' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'reader' },
      subjects: [{ kind: 'ServiceAccount', ...account }],
    });
    const token = await requestToken(server, account);
    const path = join(server.folder, 'other-kubeconfig');
    await writeFile(path, kubeconfigText(server.url, server.ca, token), { mode: 0o600 });
    const allowed = server.clientWith(token);
    await waitFor(
      async () => ((await allowed.request('GET', `${OURS}/masqnodes`)).status === 200 ? true : undefined),
      { what: 'the role to be in force', limitMs: 10_000 },
    );
    const check = await natoutgoing('check', '--kubeconfig', path);
    expect(check).toMatchObject({ code: 2, stdout: '' });
    expect(check.stderr).toMatch(
      /^error: the cluster at https:.* 403: .* \(its account needs the verb list on ippools\.projectcalico\.org\)\n$/,
    );
    expect(check.stderr).not.toContain(token);

    await grant([...rules, { apiGroups: ['projectcalico.org'], resources: ['*'], verbs: ['list'] }]);
    const read = await waitFor(
      async () => {
        const ran = await natoutgoing('check', '--kubeconfig', path);
        return ran.code === 0 ? ran : undefined;
      },
      { what: 'the right to be enough', limitMs: 10_000 },
    );
    expect(read.stdout).toContain('partners');
    const told = await natoutgoing('status', '--kubeconfig', path);
    expect(told).toMatchObject({ code: 2, stdout: '' });
    expect(told.stderr).toContain('(its account needs the verb get on leases.coordination.k8s.io)\n');
  });

  const grant = async (rules: readonly object[]): Promise<void> => {
    const answer = await server.client.request('PATCH', `${RBAC}/clusterroles/reader`, {
      body: { rules },
      contentType: 'application/merge-patch+json',
    });
    expect(answer.status).toBe(200);
  };
});
