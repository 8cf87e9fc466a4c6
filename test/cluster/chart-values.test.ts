// The chart's values: each does something, and what is wrong is refused with its path.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createApplierMetrics } from '../../src/applier/metrics.ts';
import { createOperatorMetrics } from '../../src/operator/metrics.ts';
import { ADMISSION_POLICY, CHART, type Helm, openHelm } from './helm.ts';
import type { KubeObject } from './objects.ts';

type Values = { readonly [key: string]: unknown };

/** A changed value by path, and what else must be set for it to show. A list in `also` is of further --set-json. */
const CHANGES: Readonly<Record<string, { readonly to: unknown; readonly also?: readonly string[] }>> = {
  'image.repository': { to: 'registry.example/natoutgoing' },
  'image.tag': { to: 'v9' },
  'image.digest': { to: `sha256:${'0'.repeat(64)}` },
  'image.pullPolicy': { to: 'Always' },
  'image.pullSecrets': { to: ['pull'] },
  'operator.replicas': { to: 3 },
  'operator.leaseSeconds': { to: 30 },
  'operator.logLevel': { to: 'debug' },
  'operator.kubeMark': { to: '0x8000' },
  'operator.tunnelInterfaces': { to: ['tunl0'] },
  'operator.felixConfig': { to: false },
  'operator.calicoApiGroup': { to: 'projectcalico.org/v3' },
  'operator.apiServer': { to: 'https://192.0.2.1:6443' },
  'operator.port': { to: 19_807 },
  'operator.podDisruptionBudget': { to: false },
  'operator.resources': { to: { requests: { cpu: '1' } } },
  'operator.priorityClassName': { to: 'mine' },
  'operator.nodeSelector': { to: { disk: 'ssd' } },
  'operator.tolerations': { to: [{ operator: 'Exists' }] },
  'operator.affinity': { to: { nodeAffinity: {} } },
  'operator.podLabels': { to: { team: 'net' } },
  'operator.podAnnotations': { to: { note: 'x' } },
  'applier.backend': { to: 'legacy' },
  'applier.logLevel': { to: 'warn' },
  'applier.stateFolder': { to: '/srv/natoutgoing' },
  'applier.apiServer': { to: 'https://192.0.2.1:6443' },
  'applier.port': { to: 19_808 },
  'applier.listenOn': { to: 'all' },
  'applier.maxUnavailable': { to: 1 },
  'applier.resources': { to: { requests: { cpu: '1' } } },
  'applier.priorityClassName': { to: 'mine' },
  'applier.nodeSelector': { to: { disk: 'ssd' } },
  'applier.tolerations': { to: [] },
  'applier.affinity': { to: { nodeAffinity: {} } },
  'applier.podLabels': { to: { team: 'net' } },
  'applier.podAnnotations': { to: { note: 'x' } },
  'crds.install': { to: false },
  'crds.keep': { to: false },
  'admissionPolicy.enabled': { to: false },
  'networkPolicy.enabled': { to: false },
  'networkPolicy.apiServerPorts': { to: [443] },
  'networkPolicy.metricsFrom': { to: [{ podSelector: {} }] },
  'removal.enabled': { to: false },
  'removal.timeLimitSeconds': { to: 30 },
  'removal.strict': { to: true },
  'monitoring.serviceMonitor.enabled': { to: true },
  'monitoring.serviceMonitor.interval': { to: '10s', also: ['monitoring.serviceMonitor.enabled=true'] },
  'monitoring.serviceMonitor.labels': { to: { a: 'b' }, also: ['monitoring.serviceMonitor.enabled=true'] },
  'monitoring.podMonitor.enabled': { to: true, also: ['applier.listenOn="all"'] },
  'monitoring.podMonitor.interval': {
    to: '10s',
    also: ['monitoring.podMonitor.enabled=true', 'applier.listenOn="all"'],
  },
  'monitoring.podMonitor.labels': {
    to: { a: 'b' },
    also: ['monitoring.podMonitor.enabled=true', 'applier.listenOn="all"'],
  },
  'monitoring.prometheusRule.enabled': { to: true },
  'monitoring.prometheusRule.labels': { to: { a: 'b' }, also: ['monitoring.prometheusRule.enabled=true'] },
  'monitoring.dashboard.enabled': { to: true },
  'monitoring.dashboard.labels': { to: { a: 'b' }, also: ['monitoring.dashboard.enabled=true'] },
};

/** Maps that people fill as they want; everything else is a map of the chart's own. */
const FREE = /\.(resources|nodeSelector|affinity|podLabels|podAnnotations|labels)$/;

const set = (path: string, value: unknown): readonly string[] => [
  '--set-json',
  `${path}=${JSON.stringify(value)}`,
];

describe('the values of the chart', () => {
  let helm: Helm;
  let values: Values;
  beforeAll(async () => {
    helm = await openHelm(new AbortController().signal);
    values = parse(await readFile(join(CHART, 'values.yaml'), 'utf8')) as Values;
  });
  afterAll(() => helm?.close());

  const rendered = (...args: readonly string[]): Promise<string> =>
    helm.run('template', 'natoutgoing', CHART, '-n', 'natoutgoing', '-a', ADMISSION_POLICY, ...args);

  it('pass helm lint, and so does the chart', async () => {
    expect(await helm.run('lint', '--strict', CHART)).toContain('0 chart(s) failed');
  });

  it('each change what is installed', async () => {
    expect(leavesOf(values).toSorted()).toEqual(Object.keys(CHANGES).toSorted());
    for (const [path, { to, also = [] }] of Object.entries(CHANGES)) {
      const others = also.flatMap(text => ['--set-json', text]);
      const changed = await rendered(...others, ...set(path, to));
      expect(changed, path).not.toBe(await rendered(...others));
    }
  });

  it('are refused with their path when a key is misspelt', async () => {
    for (const path of mapsOf(values)) {
      const key = path === '' ? 'misspelt' : `${path}.misspelt`;
      const { code, stderr } = await helm.try('template', CHART, ...set(key, 1));
      expect({ path, code }).toEqual({ path, code: 1 });
      expect(stderr).toMatch(/additional properties 'misspelt' not allowed/);
      expect(stderr).toContain(path.replaceAll('.', '/'));
    }
  });

  it('are refused with their path when they are of a wrong kind', async () => {
    for (const path of Object.keys(CHANGES)) {
      const { code, stderr } = await helm.try('template', CHART, ...set(path, Math.PI));
      expect({ path, code }).toEqual({ path, code: 1 });
      expect(stderr).toContain(`'/${path.replaceAll('.', '/')}'`);
    }
  });

  it.each([
    ['operator.kubeMark', '16384 or so'],
    ['operator.apiServer', 'http://192.0.2.1'],
    ['operator.tunnelInterfaces', ['a name too long for it']],
    ['operator.logLevel', 'verbose'],
    ['operator.port', 70_000],
    ['applier.stateFolder', 'relative/path'],
    ['applier.stateFolder', '/with\nnewline'],
    ['applier.maxUnavailable', '0%'],
    ['applier.listenOn', '0.0.0.0'],
    ['removal.timeLimitSeconds', 1],
    ['image.digest', 'sha256:abc'],
    ['monitoring.podMonitor.interval', '30 s'],
  ])('refuse %s %j', async (path, value) => {
    const { code, stderr } = await helm.try('template', CHART, ...set(path, value));
    expect(code).toBe(1);
    expect(stderr).toContain(`'/${path.replaceAll('.', '/')}`);
  });

  it('say what does not go together', async () => {
    const { code, stderr } = await helm.try('template', CHART, ...set('monitoring.podMonitor.enabled', true));
    expect(code).toBe(1);
    expect(stderr).toContain('monitoring.podMonitor.enabled needs applier.listenOn all');
  });
});

describe('the pods of the chart', () => {
  it('have no right that they do not need', async () => {
    const helm = await openHelm(new AbortController().signal);
    const objects = await helm.template();
    await helm.close();
    const pods = objects.flatMap(object => {
      const { kind, spec } = object as KubeObject & { spec: { template?: { spec: object } } };
      return kind === 'Pod' ? [spec] : spec?.template === undefined ? [] : [spec.template.spec];
    }) as readonly {
      readonly serviceAccountName: string;
      readonly hostNetwork?: boolean;
      readonly hostPID?: boolean;
      readonly containers: readonly { readonly securityContext: object; readonly resources: object }[];
    }[];
    const unprivileged = {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      seccompProfile: { type: 'RuntimeDefault' },
    };
    const nobody = {
      ...unprivileged,
      runAsNonRoot: true,
      runAsUser: 65_532,
      capabilities: { drop: ['ALL'] },
    };
    const applier = {
      ...unprivileged,
      runAsUser: 0,
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN', 'NET_RAW'] },
    };
    expect(pods.map(({ serviceAccountName }) => serviceAccountName).toSorted()).toEqual(
      ['applier', 'operator', 'removal', 'test'].map(name => `natoutgoing-${name}`),
    );
    for (const { serviceAccountName, hostNetwork, hostPID, containers } of pods) {
      const isApplier = serviceAccountName === 'natoutgoing-applier';
      expect([hostNetwork ?? false, hostPID ?? false]).toEqual([isApplier, false]);
      for (const { securityContext, resources } of containers) {
        expect(securityContext, serviceAccountName).toMatchObject(isApplier ? applier : nobody);
        expect(resources).toMatchObject({ requests: {}, limits: { memory: expect.any(String) as string } });
      }
    }
  });
});

describe('alerts and dashboard', () => {
  it('ask for nothing that the programs do not tell', async () => {
    const told = new Set(
      (await Promise.all([createApplierMetrics().text(), createOperatorMetrics().text()])).flatMap(text =>
        [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].flatMap(([, name = '', kind]) =>
          kind === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
        ),
      ),
    );
    for (const file of ['alerts.yaml', 'dashboard.json']) {
      const text = await readFile(join(CHART, 'files', file), 'utf8');
      const asked = [...text.matchAll(/natoutgoing_(?:applier|operator)_\w+/g)].map(([name]) => name);
      expect(asked.length).toBeGreaterThan(5);
      expect(asked.filter(name => !told.has(name))).toEqual([]);
    }
  });
});

function leavesOf(value: unknown, path = ''): readonly string[] {
  if (!isMap(value) || FREE.test(path)) return [path];
  return Object.entries(value).flatMap(([key, inner]) =>
    leavesOf(inner, path === '' ? key : `${path}.${key}`),
  );
}

/** The chart's own maps, the outermost among them. */
function mapsOf(value: unknown, path = ''): readonly string[] {
  if (!isMap(value) || FREE.test(path)) return [];
  const inner = Object.entries(value).flatMap(([key, it]) =>
    mapsOf(it, path === '' ? key : `${path}.${key}`),
  );
  return [path, ...inner];
}

const isMap = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
