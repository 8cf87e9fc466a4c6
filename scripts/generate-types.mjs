// Writes src/api/generated/*.ts from crds/*.yaml. With --check it writes nothing and exits 1 when a file is not what
// it would write. The same CRDs give the same text, byte for byte.
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { compile } from 'json-schema-to-typescript';
import { parse } from 'yaml';

const SOURCE = 'crds';
const TARGET = 'src/api/generated';

/** The schema without what is no concern of a type: an absent field is written as absent, never as null. */
function typeSchema(schema) {
  const { properties, items, additionalProperties, type, enum: values, required, description } = schema;
  return {
    ...(type === undefined ? {} : { type }),
    ...(description === undefined ? {} : { description }),
    ...(values === undefined ? {} : { enum: values }),
    ...(required === undefined ? {} : { required }),
    ...(items === undefined ? {} : { items: typeSchema(items) }),
    ...(properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(
            Object.entries(properties).map(([name, property]) => [name, typeSchema(property)]),
          ),
        }),
    ...(type === 'object'
      ? {
          additionalProperties: additionalProperties === undefined ? false : typeSchema(additionalProperties),
        }
      : {}),
  };
}

/** One module: the kind, and under names of their own its spec and status. */
async function moduleOf(file, crd) {
  const { kind } = crd.spec.names;
  const [version] = crd.spec.versions;
  const { spec, status } = version.schema.openAPIV3Schema.properties;
  const options = {
    bannerComment: '',
    additionalProperties: false,
    format: true,
    style: { singleQuote: true, printWidth: 110 },
  };
  const parts = [];
  for (const [name, schema] of [
    ['Spec', spec],
    ['Status', status],
  ]) {
    if (schema !== undefined) parts.push(await compile(typeSchema(schema), `${kind}${name}`, options));
  }
  const banner = `// Made from ${SOURCE}/${file} by scripts/generate-types.mjs; do not edit.\n`;
  return `${banner}\n${parts.join('\n')}`;
}

async function modules() {
  const files = (await readdir(SOURCE)).filter(file => file.endsWith('.yaml')).sort();
  const made = new Map();
  for (const file of files) {
    const crd = parse(await readFile(`${SOURCE}/${file}`, 'utf8'), { maxAliasCount: -1 });
    made.set(`${TARGET}/${crd.spec.names.singular}.ts`, await moduleOf(file, crd));
  }
  return made;
}

const check = process.argv.includes('--check');
const made = await modules();
if (!check) await mkdir(TARGET, { recursive: true });
const old = (await readdir(TARGET).catch(() => [])).map(file => `${TARGET}/${file}`);
const stale = old.filter(path => !made.has(path));
for (const [path, text] of made) {
  const present = await readFile(path, 'utf8').catch(() => undefined);
  if (present === text) continue;
  if (check) stale.push(path);
  else await writeFile(path, text);
}
if (stale.length > 0) {
  process.stderr.write(
    `not made from ${SOURCE}/ as it is: ${stale.join(', ')}; run node scripts/generate-types.mjs\n`,
  );
  process.exitCode = 1;
}
