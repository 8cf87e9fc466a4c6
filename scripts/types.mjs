import { compile } from 'json-schema-to-typescript';

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

/** One TypeScript module of a CRD: the kind's spec and status under names of their own. */
export async function typesOf(file, crd) {
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
  const banner = `// Made from ${file} by scripts/generate.mjs; do not edit.\n`;
  return `${banner}\n${parts.join('\n')}`;
}
