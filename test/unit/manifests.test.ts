import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadManifests, type Manifests, type ObjectVerdict } from '../../src/cli/manifests.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'natoutgoing-manifests-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true });
});

const noStdin = (): Promise<string> => Promise.reject(new Error('standard input was read'));

/** Writes files and loads their folder. */
async function loadFiles(files: Readonly<Record<string, string>>): Promise<Manifests> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, name, '..'), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return shortened(await loadManifests([folder], noStdin));
}

const short = (text: string): string => text.replaceAll(`${folder}/`, '');

/** The same without the folder in names, which is another in every run. */
const shortened = ({ snapshot, verdicts, problems }: Manifests): Manifests => ({
  snapshot,
  verdicts: verdicts.map(verdict => ({
    ...verdict,
    file: short(verdict.file),
    faults: verdict.faults.map(({ field, reason }) => ({ field, reason: short(reason) })),
    ...(verdict.note === undefined ? {} : { note: short(verdict.note) }),
  })),
  problems: problems.map(short),
});

const loadText = (text: string): Promise<Manifests> => loadManifests(['-'], () => Promise.resolve(text));

const pool = (name: string, more = '', version = 'projectcalico.org/v3'): string =>
  `apiVersion: ${version}\nkind: IPPool\nmetadata: {name: ${name}}\nspec: {cidr: 10.0.0.0/8${more}}\n`;

const says = ({ kind, name, verdict }: ObjectVerdict): string => `${kind} ${name}: ${verdict}`;
const poolNames = ({ snapshot }: Manifests): readonly string[] => snapshot.pools.map(({ name }) => name);

describe('files and folders', () => {
  it('are read in order of their names, with folders in them, hidden ones and other names left out', async () => {
    const manifests = await loadFiles({
      'b.yaml': pool('b'),
      'a.yml': pool('a'),
      'c/c.json': JSON.stringify({
        apiVersion: 'projectcalico.org/v3',
        kind: 'IPPool',
        metadata: { name: 'c' },
        spec: { cidr: '10.0.0.0/8' },
      }),
      '.hidden.yaml': 'not: [yaml',
      '.git/x.yaml': 'not: [yaml',
      'README.md': 'text',
    });
    expect(manifests.problems).toEqual([]);
    expect(manifests.verdicts.map(({ file }) => file)).toEqual(['a.yml', 'b.yaml', 'c/c.json']);
    expect(poolNames(manifests)).toEqual(['a', 'b', 'c']);
  });

  it('are read once when they are named twice', async () => {
    await writeFile(join(folder, 'a.yaml'), pool('a'));
    const manifests = await loadManifests([join(folder, 'a.yaml'), folder, `${folder}/./a.yaml`], noStdin);
    expect(manifests.verdicts.map(says)).toEqual(['IPPool a: ok']);
  });

  it('may have any name when they are named themselves', async () => {
    await writeFile(join(folder, 'manifest'), pool('a'));
    expect(poolNames(await loadManifests([join(folder, 'manifest')], noStdin))).toEqual(['a']);
  });

  it('are followed through links as a mounted ConfigMap has them, but not round in circles', async () => {
    await mkdir(join(folder, '..data'));
    await writeFile(join(folder, '..data/a.yaml'), pool('a'));
    await symlink('..data/a.yaml', join(folder, 'a.yaml'));
    await symlink('.', join(folder, 'again.yaml'));
    const manifests = shortened(await loadManifests([folder], noStdin));
    expect(manifests.verdicts.map(({ file }) => file)).toEqual(['a.yaml']);
    expect(manifests.problems).toEqual([]);
  });

  it('that cannot be read are named, and the others are read', async () => {
    await writeFile(join(folder, 'a.yaml'), pool('a'));
    await symlink('nowhere.yaml', join(folder, 'broken.yaml'));
    await mkdir(join(folder, 'empty'));
    const paths = [join(folder, 'missing.yaml'), join(folder, 'empty'), folder];
    const manifests = shortened(await loadManifests(paths, noStdin));
    expect(poolNames(manifests)).toEqual(['a']);
    expect(manifests.problems).toEqual([
      expect.stringMatching(/^missing\.yaml: cannot be read: ENOENT/) as string,
      'empty: holds no .yaml, .yml or .json file',
      expect.stringMatching(/^broken\.yaml: cannot be read: ENOENT/) as string,
    ]);
  });

  it('are not read any further after an abort', async () => {
    await writeFile(join(folder, 'a.yaml'), pool('a'));
    const reason = new Error('enough');
    await expect(loadManifests([folder], noStdin, AbortSignal.abort(reason))).rejects.toBe(reason);
  });

  it('are read from standard input for -', async () => {
    const manifests = await loadText(pool('a'));
    expect(manifests.verdicts).toMatchObject([{ file: 'stdin', document: 1, verdict: 'ok' }]);
    const broken = await loadManifests(['-'], () => Promise.reject(new Error('closed')));
    expect(broken.problems).toEqual(['stdin: cannot be read: closed']);
  });
});

describe('syntax', () => {
  it('is many documents, empty ones and comments among them', async () => {
    const manifests = await loadText(`# nothing\n---\n${pool('a')}---\n---\n${pool('b')}...\n`);
    expect(manifests.verdicts.map(({ document }) => document)).toEqual([1, 3]);
    expect(poolNames(manifests)).toEqual(['a', 'b']);
  });

  it('may have a byte order mark, anchors and merged keys', async () => {
    const text = `\ufeff${pool('a')}---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: b}\nspec:\n  <<: &x {cidr: 10.0.0.0/8}\n  natOutgoing: true\n`;
    const manifests = await loadText(text);
    expect(manifests.snapshot.pools.map(({ natOutgoing }) => natOutgoing)).toEqual([false, true]);
  });

  it('is YAML 1.2: yes is a word, no truth value', async () => {
    const { verdicts } = await loadText(pool('a', ', natOutgoing: yes'));
    expect(verdicts[0]?.faults).toEqual([
      { field: 'spec.natOutgoing', reason: '"yes" is not true or false' },
    ]);
  });

  it('is told with line and column where it is wrong, and the other documents and files are read', async () => {
    const manifests = await loadFiles({
      'a.yaml': `${pool('a')}---\nkind: IPPool\n  spec: [1\n---\n${pool('b')}`,
      'b.json': '{\n  "kind": "IPPool",\n  "spec": }\n}',
      'c.yaml': pool('c'),
      'd.json': '{"kind": ',
    });
    expect(poolNames(manifests)).toEqual(['a', 'b', 'c']);
    expect(manifests.problems.length).toBeGreaterThanOrEqual(3);
    expect(manifests.problems.filter(line => line.startsWith('a.yaml:'))[0]).toMatch(
      /^a\.yaml:[67]:\d+: not YAML: /,
    );
    expect(manifests.problems).toContainEqual(
      expect.stringMatching(/^b\.json:3:11: not JSON: "}\\n}" must not stand here$/),
    );
    expect(manifests.problems).toContainEqual(
      expect.stringMatching(/^d\.json:1:10: not JSON: it ends too soon$/),
    );
  });

  it('with one key twice is refused, since one of the two would be lost', async () => {
    const { problems } = await loadText('spec: {}\nkind: IPPool\nspec: {}\n');
    expect(problems).toEqual([expect.stringMatching(/^stdin:3:1: not YAML: .*unique/) as string]);
  });

  it('with an unknown tag is refused', async () => {
    const { problems } = await loadText(`${pool('a')}x: !secret y\n`);
    expect(problems).toEqual([expect.stringMatching(/^stdin:5:4: not YAML: .*!secret/) as string]);
  });

  it('cannot blow up the memory by aliases', async () => {
    const bomb = ['a: &a [x, x, x, x, x, x, x, x, x]'];
    for (const [one, two] of ['ab', 'bc', 'cd', 'de', 'ef', 'fg', 'gh', 'hi']) {
      bomb.push(`${two}: &${two} [${Array.from({ length: 9 }, () => `*${one}`).join(', ')}]`);
    }
    const { problems, verdicts } = await loadText(`${bomb.join('\n')}\n---\n${pool('a')}`);
    expect(problems).toEqual([expect.stringMatching(/^stdin:1:1: .*alias/i) as string]);
    expect(verdicts.map(says)).toEqual(['IPPool a: ok']);
  });
});

describe('objects', () => {
  const item = (name: string): object => ({ metadata: { name }, spec: { cidr: '10.0.0.0/8' } });
  const full = (name: string): object => ({
    apiVersion: 'projectcalico.org/v3',
    kind: 'IPPool',
    ...item(name),
  });

  it('are taken out of lists, plain and typed ones', async () => {
    const lists = [
      { apiVersion: 'v1', kind: 'List', items: [full('a'), { kind: 'ConfigMap', apiVersion: 'v1' }] },
      { apiVersion: 'projectcalico.org/v3', kind: 'IPPoolList', items: [item('b'), full('c')] },
      { apiVersion: 'v1', kind: 'NodeList', items: [{ metadata: { name: 'n' } }, 'x'] },
    ];
    const manifests = await loadText(lists.map(list => JSON.stringify(list)).join('\n---\n'));
    expect(poolNames(manifests)).toEqual(['a', 'b', 'c']);
    expect(manifests.snapshot.nodes.map(({ name }) => name)).toEqual(['n']);
    expect(
      manifests.verdicts.map(verdict => `${verdict.document}[${verdict.item}] ${says(verdict)}`),
    ).toEqual([
      '1[0] IPPool a: ok',
      '1[1] ConfigMap : passed over',
      '2[0] IPPool b: ok',
      '2[1] IPPool c: ok',
      '3[0] Node n: ok',
      '3[1]  : refused',
    ]);
  });

  it('of other kinds are passed over with a note', async () => {
    const { verdicts } = await loadText('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n');
    expect(verdicts).toMatchObject([
      { verdict: 'passed over', note: 'kind ConfigMap passed over', faults: [] },
    ]);
    const other = await loadText('apiVersion: operator.example.com/v1\nkind: IPPool\nmetadata: {name: a}\n');
    expect(other.verdicts.map(says)).toEqual(['IPPool a: passed over']);
  });

  it.each([
    ['natoutgoing.io/v1alpha1', 'MasqPolicies', 'kind', '"MasqPolicies" is not a kind of natoutgoing.io'],
    [
      'natoutgoing.io/v1',
      'MasqPolicy',
      'apiVersion',
      '"natoutgoing.io/v1" is not one of natoutgoing.io/v1alpha1',
    ],
  ])(
    'of our group are not passed over when they are misspelt: %s %s',
    async (apiVersion, kind, field, reason) => {
      const spec = { source: { ipPools: {} }, rules: [{ name: 'a', action: 'Preserve' }] };
      const { verdicts } = await loadText(
        JSON.stringify({ apiVersion, kind, metadata: { name: 'a' }, spec }),
      );
      expect(verdicts).toMatchObject([{ verdict: 'refused', faults: [{ field, reason }] }]);
    },
  );

  it('that are none are refused', async () => {
    const { verdicts } = await loadText('just text\n---\n- a\n---\nmetadata: {name: a}\n');
    expect(verdicts.flatMap(({ faults }) => faults)).toEqual([
      { field: '', reason: '"just text" is not an object' },
      { field: '', reason: 'a list is not an object' },
      { field: 'kind', reason: 'is required' },
    ]);
  });

  it('that are refused are not in the snapshot, with every fault told; the others are', async () => {
    const bad = pool('bad').replace('10.0.0.0/8', '10.0.0.0/99, natOutgoing: 1');
    const manifests = await loadText(`${bad}---\n${pool('good')}`);
    expect(manifests.verdicts.map(says)).toEqual(['IPPool bad: refused', 'IPPool good: ok']);
    expect(manifests.verdicts[0]?.faults.map(({ field }) => field)).toEqual([
      'spec.cidr',
      'spec.natOutgoing',
    ]);
    expect(poolNames(manifests)).toEqual(['good']);
  });

  it('keep their warnings', async () => {
    const { verdicts } = await loadText(pool('a').replace('10.0.0.0/8', '10.1.0.0/8'));
    expect(verdicts[0]).toMatchObject({ verdict: 'ok', warnings: [{ field: 'spec.cidr' }] });
  });

  it('that one cluster serves in both groups count once', async () => {
    const manifests = await loadFiles({
      'a.yaml': pool('a', '', 'crd.projectcalico.org/v1'),
      'b.yaml': pool('a', ', natOutgoing: false'),
    });
    expect(poolNames(manifests)).toEqual(['a']);
    expect(manifests.verdicts[1]).toMatchObject({
      verdict: 'passed over',
      note: 'IPPool a passed over: it is the one at a.yaml:1, in the other group',
    });
  });

  it('of one name that differ between the groups are a fault that names both places', async () => {
    const manifests = await loadFiles({
      'a.yaml': pool('a', '', 'crd.projectcalico.org/v1'),
      'b.yaml': `---\n---\n${pool('a', ', natOutgoing: true')}`,
    });
    expect(manifests.verdicts[1]).toMatchObject({ file: 'b.yaml', document: 2, verdict: 'refused' });
    expect(manifests.verdicts[1]?.faults).toEqual([
      {
        field: 'metadata.name',
        reason: '"a" stands at a.yaml:1 already, in the other group and not the same',
      },
    ]);
  });

  it('of one kind and name in one group are a fault, of two kinds are none', async () => {
    const set = 'apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: a}\n';
    const { verdicts } = await loadText([pool('a'), set, pool('a')].join('---\n'));
    expect(verdicts.map(says)).toEqual(['IPPool a: ok', 'GlobalNetworkSet a: ok', 'IPPool a: refused']);
    expect(verdicts[2]?.faults[0]?.reason).toBe('"a" stands at stdin:1 already');
  });

  it('with names that would break a line are quoted', async () => {
    const object = { apiVersion: 'v1', kind: 'Node\nx', metadata: { name: 'a\nb' } };
    const { verdicts } = await loadText(JSON.stringify(object));
    expect(verdicts).toMatchObject([{ kind: '"Node\\nx"', name: '"a\\nb"' }]);
  });
});
