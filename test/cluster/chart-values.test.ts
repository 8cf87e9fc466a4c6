// The chart's values: each does what it is for. What is refused: chart-refusals.test.ts.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { createApplierMetrics } from '../../src/applier/metrics.ts';
import { createOperatorMetrics } from '../../src/operator/metrics.ts';
import { CHANGES } from './chart-changes.ts';
import { chartValues, leavesOf, set, type Values } from './chart-paths.ts';
import { CHART, type Helm, openHelm } from './helm.ts';
import type { KubeObject } from './objects.ts';
import { NODE_OPTIONS } from './program.ts';

describe('the values of the chart', () => {
  let helm: Helm;
  let values: Values;
  beforeAll(async () => {
    helm = await openHelm(new AbortController().signal);
    values = await chartValues();
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

  it.each([
    ['https://192.0.2.1', [443], false],
    ['https://192.0.2.1:444/', [443, 444], false],
    ['https://[fd00::1]', [443], false],
    ['https://[fd00::1]:6444', [443, 6444], false],
    ['https://api.example', [443], true],
    ['https://api.example:6444/', [443, 6444], true],
  ])('let the operator through to %s', async (url, ports, byName) => {
    const [first, ...dns] = valueAt(
      await helm.template(...set('operator.apiServer', url), ...set('networkPolicy.apiServerPorts', [443])),
      'NetworkPolicy/natoutgoing-operator',
      'spec.egress',
    ) as readonly unknown[];
    expect(first).toEqual({ ports: ports.map(port => ({ port })) });
    const ask = ['UDP', 'TCP'].map(protocol => ({ port: 53, protocol }));
    expect(dns).toEqual(byName ? [{ ports: ask }] : []);
  });

  it('that the docs give are taken, and the programs run as the tests run them', async () => {
    const page = await readFile(join(CHART, '../../docs/calico.md'), 'utf8');
    const blocks = [...page.matchAll(/```yaml\n# values\n(.*?)```/gs)].map(([, block = '']) => block);
    expect(blocks.length).toBeGreaterThan(0);
    for (const block of blocks) {
      const merged = Object.entries(parse(block) as Readonly<Record<string, object>>).flatMap(
        ([map, given]) => Object.entries(given).flatMap(([name, value]) => set(`${map}.${name}`, value)),
      );
      expect((await helm.template(...merged)).length).toBeGreaterThan(10);
    }
    const plain = await helm.template();
    for (const [object, options] of [
      ['Deployment/natoutgoing-operator', NODE_OPTIONS.operator],
      ['DaemonSet/natoutgoing-applier', NODE_OPTIONS.applier],
    ] as const) {
      const env = valueAt(plain, object, 'spec.template.spec.containers.0.env');
      expect(env).toContainEqual({ name: 'NODE_OPTIONS', value: options });
    }
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

/** What stands at a path in an object named Kind/name; undefined: it is not there, or the object is not. */
function valueAt(objects: readonly KubeObject[], object: string, path: string): unknown {
  const found: unknown = objects.find(({ kind, metadata }) => `${kind}/${metadata.name}` === object);
  const keys = path === '' ? [] : path.split('.');
  return keys.reduce((value, key) => (value as Values | undefined)?.[key], found);
}
