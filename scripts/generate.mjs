// Writes what is made from crds/*.yaml: types, the chart's copies, the reference page; and the page about the chart's
// values. With --check it writes nothing and exits 1 when a file is not what it would write. The same sources give the
// same text, byte for byte.
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { parse } from 'yaml';
import { referenceOf } from './reference.mjs';
import { typesOf } from './types.mjs';
import { valuesPageOf } from './values.mjs';

const SOURCE = 'crds';
const TYPES = 'src/api/generated';
const CHART = 'charts/natoutgoing/files/crds';
const REFERENCE = 'docs/reference.md';
const VALUES = 'charts/natoutgoing/values.yaml';
const VALUES_PAGE = 'docs/values.md';

async function everything() {
  const names = (await readdir(SOURCE)).filter(file => file.endsWith('.yaml')).sort();
  const made = new Map();
  const crds = [];
  for (const name of names) {
    const text = await readFile(`${SOURCE}/${name}`, 'utf8');
    const crd = parse(text, { maxAliasCount: -1 });
    crds.push(crd);
    made.set(`${TYPES}/${crd.spec.names.singular}.ts`, await typesOf(`${SOURCE}/${name}`, crd));
    made.set(`${CHART}/${name}`, text);
  }
  // What users write comes first.
  const inOrder = crds.toSorted(
    (a, b) => Number(b.spec.names.kind === 'MasqPolicy') - Number(a.spec.names.kind === 'MasqPolicy'),
  );
  made.set(REFERENCE, referenceOf(inOrder));
  made.set(VALUES_PAGE, valuesPageOf(await readFile(VALUES, 'utf8')));
  return made;
}

const filesIn = async folder => (await readdir(folder).catch(() => [])).map(file => `${folder}/${file}`);

const check = process.argv.includes('--check');
const made = await everything();
const stale = [...(await filesIn(TYPES)), ...(await filesIn(CHART))].filter(path => !made.has(path));
for (const [path, text] of made) {
  const present = await readFile(path, 'utf8').catch(() => undefined);
  if (present === text) continue;
  if (check) {
    stale.push(path);
    continue;
  }
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
}
if (stale.length > 0) {
  process.stderr.write(
    `not made from ${SOURCE}/ and ${VALUES} as they are: ${stale.join(', ')}; run npm run generate\n`,
  );
  process.exitCode = 1;
}
