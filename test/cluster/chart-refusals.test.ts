// What programs or Kubernetes would refuse, the chart refuses with its path; what they take, it takes.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseMark } from '../../src/cli/options.ts';
import { chartValues, leavesOf, mapsOf, set, type Values } from './chart-paths.ts';
import { CHART, type Helm, openHelm } from './helm.ts';
import { openTemporaryFolder } from './temporary-folder.ts';

/** What null may delete: absent, these mean none, or what Kubernetes or the chart takes then. */
const OPTIONAL =
  /^image\.(tag|digest|pullSecrets)$|\.(tunnelInterfaces|apiServer|priorityClassName|nodeSelector|tolerations|affinity|podLabels|podAnnotations|metricsFrom|labels)$/;

/** One of each kind of JSON, of which none is right anywhere but `true`. */
const WRONG: readonly unknown[] = [Math.PI, -1, true, 'no such\nvalue', ['no such\nvalue'], { no: 1 }];

type Case = readonly [path: string, ...values: unknown[]];

const REFUSED: readonly Case[] = [
  ['image.repository', '', 'Upper', 'a/Upper', 'name:tag', 'a b', 'https://registry.example/name', '/name'],
  ['image.tag', '.x', '-x', 'a/b'],
  ['image.digest', 'sha256:abc'],
  ['image.pullSecrets', ['Upper'], ['']],
  ['operator.replicas', 10, 1.5],
  ['operator.leaseSeconds', 2, 601],
  ['operator.logLevel', 'verbose'],
  ['operator.kubeMark', 0x4000, '16384 or so'],
  ['operator.tunnelInterfaces', ['a name too long for it'], Array.from({ length: 17 }, (_, i) => `tun${i}`)],
  [
    'operator.apiServer',
    'http://192.0.2.1',
    'https://',
    'https://192.0.2.256',
    'https://h:0',
    'https://h:65536',
  ],
  ['operator.apiServer', 'https://[fd00::1::2]', 'https://fd00::1', 'https://me@host', 'https://host/path'],
  ['operator.port', 0, 443, 65_536],
  ['applier.port', 0, 443, 65_536],
  ['applier.stateFolder', 'relative/path', '/', '/with\nnewline', '/a/../run', '/a/..', '/./run', '/a/'],
  ['applier.stateFolder', '/run/natoutgoing', '/var/run', '/tmp/x', '/tmp', '/dev/shm'],
  ['applier.maxUnavailable', 0, '0%', '101%', '10', 1_000_000],
  ['applier.listenOn', '0.0.0.0'],
  ['networkPolicy.apiServerPorts', [], [0], [65_536], ['443']],
  [
    'networkPolicy.metricsFrom',
    [{}],
    [{ podSelektor: {} }],
    [{ ipBlock: {} }],
    [{ ipBlock: { cidr: '10.0.0.1' } }],
  ],
  [
    'networkPolicy.metricsFrom',
    [{ podSelector: {}, ipBlock: { cidr: '10.0.0.0/8' } }],
    [{ podSelector: { app: 'x' } }],
  ],
  ['removal.timeLimitSeconds', 4, 901],
  ['monitoring.podMonitor.interval', '30 s', '0s', '30'],
  ...['operator', 'applier'].flatMap(part => [
    [
      `${part}.resources`,
      { limits: { memory: '1 GB' } },
      { limits: { memori: '1Gi' } },
      { request: {} },
    ] as const,
    [`${part}.resources`, { requests: { cpu: -1 } }, { requests: { cpu: true } }, { claims: [] }] as const,
    [`${part}.priorityClassName`, 'Upper'] as const,
    [`${part}.nodeSelector`, { 'a b': 'x' }, { a: 'x y' }, { a: 1 }] as const,
    [
      `${part}.tolerations`,
      [{ keey: 'a', operator: 'Exists' }],
      [{ operator: 'exists' }],
      [{ value: 'x' }],
    ] as const,
    [
      `${part}.tolerations`,
      [{ key: 'a', operator: 'Exists', value: 'x' }],
      [{ key: 'a', effect: 'NoRun' }],
    ] as const,
    [
      `${part}.tolerations`,
      [{ key: 'a', tolerationSeconds: 5 }],
      [{ key: 'a', operator: 'Equal', value: 1 }],
    ] as const,
    [`${part}.affinity`, { nodeAfinity: {} }, { podAffinity: { preferred: [] } }] as const,
    [`${part}.podLabels`, { 'a b': 'x' }, { a: 'x y' }, { a: true }] as const,
    [`${part}.podAnnotations`, { 'a b': 'x' }, { a: 1 }] as const,
  ]),
];

/** Labels by which selectors, Helm and people find what is the chart's. */
const TAKEN = {
  'operator.podLabels': ['name', 'component'],
  'applier.podLabels': ['name', 'component'],
  'monitoring.serviceMonitor.labels': ['name', 'component', 'instance', 'version', 'managed-by'],
  'monitoring.podMonitor.labels': ['name', 'component', 'instance', 'version', 'managed-by'],
  'monitoring.prometheusRule.labels': ['name', 'component', 'instance', 'version', 'managed-by'],
  'monitoring.dashboard.labels': ['name', 'component', 'instance', 'version', 'managed-by'],
};

const TAKES: readonly Case[] = [
  ['image.repository', 'natoutgoing', 'registry.example:5000/a/b-c__d.e', '[fd00::1]:5000/a', 'localhost/a'],
  ['image.tag', '', '1.2.3-rc.1_x'],
  [
    'operator.apiServer',
    '',
    'https://192.0.2.1',
    'https://api.example:6443/',
    'https://[fd00::1]:6443',
    'https://h',
  ],
  ['applier.stateFolder', '/srv', '/var/lib/a.b/..c', '/running/x', '/var/tmp/x'],
  ['applier.maxUnavailable', 1, '1%', '100%'],
  ['operator.resources', { limits: { memory: '1.5Gi', 'example.com/dongle': 1 }, requests: { cpu: 0.5 } }],
  ['operator.tolerations', [{ operator: 'Exists' }, { key: 'a/b', value: '', effect: 'NoSchedule' }]],
  ['operator.tolerations', [{ key: 'a', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 5 }]],
  ['operator.podLabels', { 'example.com/team': 'net', empty: '' }],
  ['operator.podAnnotations', { 'example.com/note': 'any text: {}' }],
  [
    'networkPolicy.metricsFrom',
    [{ namespaceSelector: {}, podSelector: {} }, { ipBlock: { cidr: 'fd00::/8' } }],
  ],
];

const MARKS = ['1', '0x1', '0x4000', '16384', '2147483648', '0x80000000', '0x00000004'];
const NO_MARKS = '0 0x0 0x6000 3 24576 9999999999 4294967296 0x100000000 0x000000001 0b1 0x'.split(' ');

describe('the chart refuses with its path', () => {
  let helm: Helm;
  let values: Values;
  let file: string;
  let remove: () => Promise<void>;
  beforeAll(async () => {
    helm = await openHelm(new AbortController().signal);
    values = await chartValues();
    const folder = await openTemporaryFolder('natoutgoing-values-');
    file = join(folder.path, 'values.json');
    remove = folder.remove;
  });
  afterAll(async () => {
    await helm?.close();
    await remove?.();
  });

  /** What Helm says to it; empty: it takes it. */
  const refusal = async (...args: readonly string[]): Promise<string> => {
    const { code, stderr } = await helm.try('template', 'natoutgoing', CHART, ...args);
    return code === 0 ? '' : stderr;
  };
  const at = (path: string): RegExp => new RegExp(`at '/${path.replaceAll('.', '/')}[/']`);

  it('a key that is misspelt', async () => {
    for (const path of mapsOf(values)) {
      const said = await refusal(...set(path === '' ? 'misspelt' : `${path}.misspelt`, 1));
      expect(said, path).toContain(
        `at '${path && `/${path.replaceAll('.', '/')}`}': additional properties 'misspelt' not allowed`,
      );
    }
  });

  it('a value of a wrong kind', async () => {
    for (const wrong of WRONG) {
      const paths = leavesOf(values).filter(
        path => typeof valueAt(values, path) !== 'boolean' || wrong !== true,
      );
      await writeFile(file, JSON.stringify(nested(paths, wrong)));
      const said = await refusal('-f', file);
      expect(
        paths.filter(path => !at(path).test(said)),
        JSON.stringify(wrong),
      ).toEqual([]);
    }
  });

  it('null, which deletes a key, where a template needs it', async () => {
    const paths = [...mapsOf(values).filter(path => path !== ''), ...leavesOf(values)];
    for (const path of paths) {
      const said = await refusal('--set', `${path}=null`);
      const [, parent = '', key] = /^(?:(.+)\.)?([^.]+)$/.exec(path) ?? [];
      if (OPTIONAL.test(path)) expect(said, path).toBe('');
      else
        expect(said, path).toContain(
          `at '${parent && `/${parent.replaceAll('.', '/')}`}': missing property '${key}'`,
        );
    }
  });

  it.each(named(REFUSED))('$path as $values', async ({ path, values: wrong }) => {
    for (const value of wrong)
      expect(await refusal(...set(path, value)), JSON.stringify(value)).toMatch(at(path));
  });

  it('labels that the chart itself gives', async () => {
    for (const [path, names] of Object.entries(TAKEN))
      for (const name of names)
        expect(
          await refusal(...set(path, { [`app.kubernetes.io/${name}`]: 'x' })),
          `${path} ${name}`,
        ).toContain(`at '/${path.replaceAll('.', '/')}/app.kubernetes.io~1${name}'`);
  });

  it('exactly the marks that the operator would refuse', async () => {
    for (const mark of MARKS) {
      expect(isMark(mark), mark).toBe(true);
      expect(await refusal(...set('operator.kubeMark', mark)), mark).toBe('');
    }
    for (const mark of NO_MARKS) {
      expect(isMark(mark), mark).toBe(false);
      expect(await refusal(...set('operator.kubeMark', mark)), mark).toMatch(at('operator.kubeMark'));
    }
  });

  it.each(named(TAKES))('but not $path as $values', async ({ path, values: right }) => {
    for (const value of right) expect(await refusal(...set(path, value)), JSON.stringify(value)).toBe('');
  });
});

const named = (cases: readonly Case[]): readonly { path: string; values: readonly unknown[] }[] =>
  cases.map(([path, ...values]) => ({ path, values }));

function isMark(text: string): boolean {
  try {
    return parseMark(text) > 0;
  } catch {
    return false;
  }
}

const valueAt = (values: Values, path: string): unknown =>
  path.split('.').reduce<unknown>((value, key) => (value as Values)[key], values);

/** Values that have the same value at all paths. */
function nested(paths: readonly string[], value: unknown): object {
  const all: Record<string, unknown> = {};
  for (const path of paths) {
    const keys = path.split('.');
    let map = all;
    for (const key of keys.slice(0, -1)) map = (map[key] ??= {}) as Record<string, unknown>;
    map[keys.at(-1) ?? ''] = value;
  }
  return all;
}
