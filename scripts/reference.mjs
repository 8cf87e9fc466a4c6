/** The page about our resources, field by field: from the descriptions that `kubectl explain` prints too. */
export function referenceOf(crds) {
  const parts = crds.map(crd => {
    const { kind, plural, shortNames = [] } = crd.spec.names;
    const [version] = crd.spec.versions;
    const { description, properties } = version.schema.openAPIV3Schema;
    const rows = ['spec', 'status'].flatMap(name =>
      properties[name] === undefined ? [] : rowsOf(name, properties[name], false),
    );
    return [
      `## ${kind}`,
      `\`${crd.spec.group}/${version.name}\`, ${[plural, ...shortNames].map(name => `\`${name}\``).join(', ')}; belongs to the whole cluster.`,
      ...(description === undefined ? [] : [oneLine(description)]),
      ['| field | type | |', '| --- | --- | --- |', ...rows].join('\n'),
    ].join('\n\n');
  });
  return [
    '<!-- Made from crds/ by scripts/generate.mjs; do not edit. -->',
    '# Reference of the resources',
    'The API server refuses what breaks a rule below and names the field; `natoutgoing check -f` does it without a cluster. `*` marks fields that must be there.',
    ...parts,
  ]
    .join('\n\n')
    .concat('\n');
}

function rowsOf(path, schema, required) {
  const { properties, items, description } = schema;
  const own = `| \`${path}\`${required ? ' \\*' : ''} | ${typeOf(schema)} | ${oneLine(describe(schema, description))} |`;
  const inner = properties ?? items?.properties;
  const requiredNames = (properties === undefined ? items?.required : schema.required) ?? [];
  const step = properties === undefined && items !== undefined ? `${path}[]` : path;
  return [
    own,
    ...Object.entries(inner ?? {}).flatMap(([name, property]) =>
      rowsOf(`${step}.${name}`, property, requiredNames.includes(name)),
    ),
  ];
}

function typeOf({ type, items, format, additionalProperties, 'x-kubernetes-int-or-string': either }) {
  if (either === true) return 'integer or string';
  if (type === 'array') return `list of ${typeOf(items)}`;
  if (type === 'object' && typeof additionalProperties === 'object')
    return `map to ${typeOf(additionalProperties)}`;
  return format === 'date-time' ? 'time' : (type ?? 'any');
}

function describe(schema, description = '') {
  const inner = schema.type === 'array' ? schema.items : schema;
  const { minimum, maximum, maxLength } = inner;
  const facts = [
    inner.enum === undefined ? '' : `One of ${inner.enum.map(value => `\`${value}\``).join(', ')}.`,
    schema.default === undefined ? '' : `Default \`${JSON.stringify(schema.default)}\`.`,
    minimum === undefined || maximum === undefined ? '' : `${minimum} to ${maximum}.`,
    schema.maxItems === undefined ? '' : `At most ${schema.maxItems}.`,
    maxLength === undefined ? '' : `At most ${maxLength} characters.`,
    ...(schema['x-kubernetes-validations'] ?? []).map(({ message }) =>
      message === undefined ? '' : `Rule: ${message}.`,
    ),
  ];
  return [description, ...facts].filter(text => text !== '').join(' ');
}

const oneLine = text => text.replace(/\s+/g, ' ').replaceAll('|', '\\|').trim();
