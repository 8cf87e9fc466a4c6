// The chart's values: each does something, and what is wrong is refused with its path.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createApplierMetrics } from '../../src/applier/metrics.ts';
import { createOperatorMetrics } from '../../src/operator/metrics.ts';
import { CHANGES } from './chart-changes.ts';
import { CHART, type Helm, openHelm } from './helm.ts';
import type { KubeObject } from './objects.ts';

type Values = { readonly [key: string]: unknown };

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

  it('pass helm lint, and so does the chart', async () => {
    expect(await helm.run('lint', '--strict', CHART)).toContain('0 chart(s) failed');
  });

  it('each change what they are for', async () => {
    expect(leavesOf(values).toSorted()).toEqual(Object.keys(CHANGES).toSorted());
    const plain = await helm.template();
    for (const [path, { to, at, also = [] }] of Object.entries(CHANGES)) {
      const others = also.flatMap(text => ['--set-json', text]);
      const before = others.length === 0 ? plain : await helm.template(...others);
      const after = await helm.template(...others, ...set(path, to));
      for (const [object, inIt, is] of at) {
        expect(valueAt(after, object, inIt), `${path}: ${object} ${inIt}`).toEqual(is);
        expect(valueAt(before, object, inIt), `without ${path}: ${object} ${inIt}`).not.toEqual(is);
      }
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

/** What stands at a path in an object named Kind/name; undefined: it is not there, or the object is not. */
function valueAt(objects: readonly KubeObject[], object: string, path: string): unknown {
  const found: unknown = objects.find(({ kind, metadata }) => `${kind}/${metadata.name}` === object);
  const keys = path === '' ? [] : path.split('.');
  return keys.reduce((value, key) => (value as Values | undefined)?.[key], found);
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
