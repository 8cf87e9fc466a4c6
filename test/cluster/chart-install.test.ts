// The chart on real API servers, by real Helm: installed, changed, rolled back, taken off.
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MASQ_NODES } from '../../src/api/own-group.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import { startControllers } from './cluster.ts';
import { CHART, type Helm, openHelm } from './helm.ts';
import { create, installCrds, type KubeObject, readObjects } from './objects.ts';
import { openTemporaryFolder } from './temporary-folder.ts';
import { waitFor } from './wait.ts';

const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const POLICIES = '/apis/natoutgoing.io/v1alpha1/masqpolicies';
const NAMESPACE = '/api/v1/namespaces/natoutgoing';
const DEPLOYMENT = '/apis/apps/v1/namespaces/natoutgoing/deployments/natoutgoing-operator';
const REMOVAL_JOB = '/apis/batch/v1/namespaces/natoutgoing/jobs/natoutgoing-removal';
const UNINSTALL = ['uninstall', 'natoutgoing', '-n', 'natoutgoing'];
const POD_TERM = {
  labelSelector: { matchExpressions: [{ key: 'a', operator: 'In', values: ['b'] }] },
  namespaceSelector: { matchLabels: { a: 'b' } },
  namespaces: ['natoutgoing'],
  topologyKey: 'kubernetes.io/hostname',
  matchLabelKeys: ['pod-template-hash'],
};
/** Values that are Kubernetes' own, as many of their fields as the chart's schema knows. */
const FREE = [
  `operator.tolerations=${JSON.stringify([
    { key: 'a', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 5 },
    { key: 'example.com/b', value: '' },
  ])}`,
  `operator.affinity=${JSON.stringify({
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [
          { matchExpressions: [{ key: 'a', operator: 'Gt', values: ['1'] }] },
          { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['worker-1'] }] },
        ],
      },
      preferredDuringSchedulingIgnoredDuringExecution: [
        { weight: 1, preference: { matchExpressions: [{ key: 'a', operator: 'Exists' }] } },
      ],
    },
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [POD_TERM],
      preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 100, podAffinityTerm: POD_TERM }],
    },
  })}`,
  `operator.resources.limits=${JSON.stringify({ memory: '1.5Gi', cpu: 0.5, 'example.com/dongle': 1 })}`,
  'operator.podLabels={"example.com/team":"net"}',
];
const EVERYTHING = [
  ...['serviceMonitor', 'podMonitor', 'prometheusRule', 'dashboard'].flatMap(name => [
    '--set',
    `monitoring.${name}.enabled=true`,
  ]),
  '--set',
  'applier.listenOn=all,operator.apiServer=https://192.0.2.1:6443,operator.felixConfig=false',
  '--set-json',
  'operator.tunnelInterfaces=["tunl0"]',
  '--set-json',
  'networkPolicy.metricsFrom=[{"namespaceSelector":{}}]',
  ...FREE.flatMap(text => ['--set-json', text]),
];
const LEAST = [
  '--set',
  'operator.replicas=1,networkPolicy.enabled=false,admissionPolicy.enabled=false,removal.enabled=false',
];
const POLICY = {
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind: 'MasqPolicy',
  metadata: { name: 'keep' },
  spec: { source: { ipPools: {} }, rules: [{ name: 'all', action: 'Preserve' }] },
};

describe.each([
  ['1.36', 'kube-apiserver'],
  ['1.33', 'kube-apiserver-1.33'],
] as const)('on Kubernetes %s', (version, program) => {
  let server: ApiServer;
  let helm: Helm;
  const { signal } = new AbortController();
  beforeAll(async () => {
    server = await startApiServer({ program }, signal);
    helm = await openHelm(signal, server.kubeconfig);
    await installCrds(server.client, monitoringKinds(), signal);
  });
  afterAll(async () => {
    await helm?.close();
    await server?.close();
  });

  const install = (...args: readonly string[]): Promise<string> =>
    helm.run('install', 'natoutgoing', CHART, '-n', 'natoutgoing', '--create-namespace', ...args);
  const isThere = async (path: string): Promise<boolean> =>
    (await server.client.request('GET', path)).status === 200;
  const ours = async (): Promise<readonly string[]> => {
    const { body } = await server.client.request('GET', CRDS);
    const { items } = body as { items: readonly KubeObject[] };
    return items.map(({ metadata }) => metadata.name).filter(name => name.endsWith('.natoutgoing.io'));
  };

  it('is the version that is meant', async () => {
    const { body } = await server.client.request('GET', '/version');
    expect(body).toMatchObject({ gitVersion: expect.stringContaining(`v${version}.`) as string });
  });

  it('every object is accepted as it is, with strict validation', async () => {
    await create(server.client, '/api/v1/namespaces', { metadata: { name: 'natoutgoing' } });
    for (const values of [[], EVERYTHING, LEAST]) {
      const objects = await helm.template(...values);
      expect(objects.length).toBeGreaterThan(15);
      for (const object of objects.toSorted((a, b) => Number(isAccount(b)) - Number(isAccount(a)))) {
        // A pod is only accepted when its account is there.
        const dryRun = isAccount(object) ? '' : '&dryRun=All';
        const path = await resourceOf(server, object);
        const answer = await server.client.request('POST', `${path}?fieldValidation=Strict${dryRun}`, {
          body: object,
        });
        expect(answer.status, `${object.kind} ${object.metadata.name}: ${JSON.stringify(answer.body)}`).toBe(
          201,
        );
      }
      await server.client.request('DELETE', `${NAMESPACE}/serviceaccounts`);
    }
  });

  it('the notes say what is missing: pools, and a namespace that lets appliers in', async () => {
    await server.client.request('PATCH', NAMESPACE, {
      body: { metadata: { labels: { 'pod-security.kubernetes.io/enforce': 'restricted' } } },
      contentType: 'application/merge-patch+json',
    });
    const notes = await install();
    expect(notes).toContain("MISSING: this cluster does not serve Calico's IPPools");
    expect(notes).toContain('FORBIDDEN: Pod Security restricted is enforced on this namespace');
    expect(notes).toContain('pod-security.kubernetes.io/enforce=privileged');
    await helm.run(...UNINSTALL, '--no-hooks');
    expect(await ours()).toHaveLength(3);
  });

  it('it is installed, over the resources that an earlier release left', async () => {
    await installCrds(server.client, await readObjects('test/fixtures/calico'), signal);
    await server.client.request('PATCH', NAMESPACE, {
      body: { metadata: { labels: { 'pod-security.kubernetes.io/enforce': 'privileged' } } },
      contentType: 'application/merge-patch+json',
    });
    expect(await install('--dry-run=server', ...EVERYTHING)).not.toMatch(/MISSING:|FORBIDDEN:/);
    const notes = await install();
    expect(notes).not.toMatch(/MISSING|FORBIDDEN/);
    expect(notes).toContain('helm test natoutgoing -n natoutgoing');
    expect(await isThere(DEPLOYMENT)).toBe(true);
    expect((await create(server.client, POLICIES, POLICY)).status).toBe(201);
  });

  it('a new release changes values and resources, and the old one comes back', async () => {
    const { path: folder, remove } = await openTemporaryFolder('natoutgoing-chart-');
    try {
      const next = join(folder, 'natoutgoing');
      await cp(CHART, next, { recursive: true });
      const crd = join(next, 'files/crds/natoutgoing.io_masqpolicies.yaml');
      const text = await readFile(crd, 'utf8');
      await writeFile(crd, text.replace('shortNames: [masqpol]', 'shortNames: [masqpol, mp]'));
      expect(await readFile(crd, 'utf8')).not.toBe(text);
      await helm.run('package', next, '--version', '0.2.0', '--app-version', '0.2.0', '-d', folder);
      const archive = join(folder, 'natoutgoing-0.2.0.tgz');
      await helm.run('upgrade', 'natoutgoing', archive, '-n', 'natoutgoing', '--set', 'operator.replicas=3');
      expect(await state()).toEqual({ image: 'natoutgoing:0.2.0', replicas: 3, short: ['masqpol', 'mp'] });
      await helm.run('rollback', 'natoutgoing', '1', '-n', 'natoutgoing');
      expect(await state()).toEqual({ image: 'natoutgoing:0.1.0', replicas: 2, short: ['masqpol'] });
      expect(await isThere(`${POLICIES}/keep`)).toBe(true);
    } finally {
      await remove();
    }
  });

  const state = async (): Promise<object> => {
    const deployment = (await server.client.request('GET', DEPLOYMENT)).body as {
      spec: { replicas: number; template: { spec: { containers: { image: string }[] } } };
    };
    const crd = (await server.client.request('GET', `${CRDS}/masqpolicies.natoutgoing.io`)).body as {
      spec: { names: { shortNames: string[] } };
    };
    return {
      image: deployment.spec.template.spec.containers[0]?.image,
      replicas: deployment.spec.replicas,
      short: crd.spec.names.shortNames,
    };
  };

  it('policies stay when it goes, and go with crds.keep=false', async () => {
    await helm.run(...UNINSTALL, '--no-hooks');
    expect(await isThere(DEPLOYMENT)).toBe(false);
    expect(await isThere(`${POLICIES}/keep`)).toBe(true);
    await install('--set', 'crds.keep=false');
    expect(await isThere(`${POLICIES}/keep`)).toBe(true);
    await helm.run(...UNINSTALL, '--no-hooks');
    await waitFor(async () => ((await ours()).length === 0 ? true : undefined), {
      what: 'the resources to go',
      limitMs: 30_000,
      detail: async () => JSON.stringify((await server.client.request('GET', CRDS)).body),
    });
  });

  it('a removal that cannot run keeps the release, and --no-hooks takes it off', async () => {
    await install();
    // There is nobody who runs Jobs here.
    const { code, stderr } = await helm.try(...UNINSTALL, '--timeout', '3s');
    expect(code).toBe(1);
    expect(stderr).toContain('natoutgoing-removal');
    expect(await isThere(DEPLOYMENT)).toBe(true);
    await helm.run(...UNINSTALL, '--no-hooks');
    expect(await isThere(DEPLOYMENT)).toBe(false);
    // What docs/install.md has people delete, and nothing else with a name of ours.
    expect(await isThere(REMOVAL_JOB)).toBe(true);
    for (const path of ['clusterroles', 'clusterrolebindings'])
      expect(await isThere(`/apis/rbac.authorization.k8s.io/v1/${path}/natoutgoing-removal`)).toBe(false);
    expect(await isThere(`${NAMESPACE}/serviceaccounts/natoutgoing-removal`)).toBe(false);
    await server.client.request('DELETE', REMOVAL_JOB);
  });

  it('namespace and resources go though no operator runs, in any order', async () => {
    await install();
    const stop = await startControllers(
      server,
      ['namespace-controller', 'garbage-collector-controller'],
      signal,
    );
    try {
      const masqNode = {
        apiVersion: 'natoutgoing.io/v1alpha1',
        kind: 'MasqNode',
        metadata: { name: 'worker-1' },
        spec: { plan: 'masq-1' },
      };
      expect((await create(server.client, MASQ_NODES, masqNode)).status).toBe(201);
      await server.client.request('DELETE', NAMESPACE);
      for (const name of await ours()) await server.client.request('DELETE', `${CRDS}/${name}`);
      await waitFor(
        async () => ((await isThere(NAMESPACE)) || (await ours()).length > 0 ? undefined : true),
        { what: 'namespace and resources to go', limitMs: 60_000 },
      );
    } finally {
      await stop();
    }
  });
});

const isAccount = ({ kind }: KubeObject): boolean => kind === 'ServiceAccount';

/** The path of an object's collection, as the server's own discovery says. */
async function resourceOf(server: ApiServer, object: KubeObject): Promise<string> {
  const { apiVersion } = object as KubeObject & { apiVersion: string };
  const folder = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const { body } = await server.client.request('GET', folder);
  const resources = (
    body as { resources?: readonly { kind: string; name: string; namespaced: boolean }[] }
  ).resources?.filter(({ name }) => !name.includes('/'));
  const found = resources?.find(({ kind }) => kind === object.kind);
  if (found === undefined) throw new Error(`${apiVersion} ${object.kind} is not served`);
  return found.namespaced ? `${folder}/namespaces/natoutgoing/${found.name}` : `${folder}/${found.name}`;
}

/** The kinds of the Prometheus Operator, without their schemas. */
const monitoringKinds = (): readonly KubeObject[] =>
  [
    ['servicemonitors', 'ServiceMonitor'],
    ['podmonitors', 'PodMonitor'],
    ['prometheusrules', 'PrometheusRule'],
  ].map(([plural = '', kind = '']) => ({
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.monitoring.coreos.com` },
    spec: {
      group: 'monitoring.coreos.com',
      scope: 'Namespaced',
      names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
        },
      ],
    },
  }));
