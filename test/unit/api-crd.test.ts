// The CRDs and the code say the same: limits, words and names of fields are compared with what the code accepts, and
// the generated types with what would be generated.
import { execFile } from 'node:child_process';
import { appendFile, cp, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { member } from '../../src/api/report.ts';
import { validateMasqPolicy } from '../../src/api/validate-policy.ts';
import { validPolicies } from '../fixtures/policies.ts';
import { rule, withRule } from '../fixtures/policy-builder.ts';

interface Schema {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly minItems?: number;
  readonly nullable?: boolean;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
}

const load = async (file: string): Promise<{ readonly spec: { readonly versions: readonly unknown[] } }> =>
  parse(await readFile(`crds/${file}`, 'utf8')) as {
    readonly spec: { readonly versions: readonly unknown[] };
  };

const policyCrd = await load('natoutgoing.io_masqpolicies.yaml');
const [version] = policyCrd.spec.versions as readonly [
  { readonly schema: { readonly openAPIV3Schema: Schema } },
];
const spec = version.schema.openAPIV3Schema.properties?.['spec'] as Schema;

interface Place {
  readonly object: unknown;
  readonly path: readonly string[];
  readonly field: string;
  readonly value: unknown;
  readonly schema: Schema;
}

/** Every member of the object that the schema knows, with its schema. */
function places(
  object: unknown,
  value: unknown,
  schema: Schema,
  path: readonly string[],
  field: string,
): Place[] {
  const inner = Array.isArray(value)
    ? value.flatMap((item, i) =>
        places(object, item, schema.items ?? {}, [...path, `${i}`], `${field}[${i}]`),
      )
    : typeof value === 'object' && value !== null && schema.properties !== undefined
      ? Object.entries(value).flatMap(([key, item]) =>
          places(object, item, schema.properties?.[key] ?? {}, [...path, key], member(field, key)),
        )
      : [];
  return [{ object, path, field, value, schema }, ...inner];
}

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  if (Array.isArray(value))
    return value.map((item, i) => (String(i) === key ? replaced(item, rest, by) : item));
  const object = value as Readonly<Record<string, unknown>>;
  return { ...object, [key]: replaced(object[key], rest, by) };
}

const objects = [
  ...validPolicies.filter(({ name }) => name === 'everything at once').map(({ object }) => object),
  withRule({ action: 'SNAT', snat: { addressFrom: { nodeAnnotation: 'a' } } }),
  withRule({ action: 'SNAT', snat: { addressFrom: { nodeAddressType: 'InternalIP' } } }),
];
const all = objects.flatMap(object =>
  places(object, (object as { spec: unknown }).spec, spec, ['spec'], 'spec'),
);

/** What our code says at the field when the value there is replaced. */
function reasonAt({ object, path, field }: Place, value: unknown): string | undefined {
  const read = validateMasqPolicy(replaced(object, path, value));
  return read.ok ? undefined : read.faults.find(fault => fault.field === field)?.reason;
}

/** Asserts something of every place that `picks` picks, and that there are such places. */
function everywhere(picks: (place: Place) => boolean, assertion: (place: Place) => void): void {
  const picked = all.filter(picks);
  expect(picked.length).toBeGreaterThan(0);
  for (const place of picked) assertion(place);
}

describe('the CRD of MasqPolicy and the code', () => {
  it('look at every field', () => {
    const fieldsIn = (schema: Schema, path: string): string[] => [
      ...Object.entries(schema.properties ?? {}).flatMap(([key, inner]) => fieldsIn(inner, `${path}.${key}`)),
      ...(schema.items === undefined ? [] : fieldsIn(schema.items, path)),
      path,
    ];
    // A selector is the same schema wherever it stands, and the fixture fills one of them.
    const known = new Set(fieldsIn(spec, 'spec').filter(path => !/elector\.match/.test(path)));
    const seen = new Set(all.map(({ field }) => field.replaceAll(/\[[^\]]*\]/g, '')));
    expect(
      [...known].filter(path => !seen.has(path) && !/ipPools\.(names|selector|natOut)/.test(path)),
    ).toEqual([]);
  });

  it('know the same fields', () => {
    everywhere(
      ({ schema }) => schema.properties !== undefined,
      place => {
        const value = { ...(place.value as object), unknownField: 1 };
        const reason = reasonAt({ ...place, field: `${place.field}.unknownField` }, value);
        const names = Object.keys(place.schema.properties ?? {});
        expect(
          reason
            ?.replace(/^.*known here are /, '')
            .split(', ')
            .sort(),
        ).toEqual(names.sort());
      },
    );
  });

  it('allow the same words', () => {
    everywhere(
      ({ schema }) => schema.enum !== undefined,
      place => {
        expect(reasonAt(place, 'x')).toBe(`"x" is not one of ${place.schema.enum?.join(', ')}`);
      },
    );
  });

  it('allow the same numbers', () => {
    everywhere(
      ({ schema }) => schema.type === 'integer',
      place => {
        const { minimum, maximum } = place.schema as { minimum: number; maximum: number };
        expect(reasonAt(place, minimum - 1)).toContain(`of ${minimum} to ${maximum}`);
        expect(reasonAt(place, maximum + 1)).toContain(`of ${minimum} to ${maximum}`);
      },
    );
  });

  it('allow lists of the same length, and no empty ones', () => {
    everywhere(
      ({ schema }) => schema.type === 'array',
      place => {
        const { minItems, maxItems } = place.schema as { minItems: number; maxItems: number };
        const many = Array.from({ length: maxItems + 1 }, () => rule({}));
        expect(minItems).toBe(1);
        expect(reasonAt(place, [])).toBe(`is empty; 1 to ${maxItems} items are expected`);
        expect(reasonAt(place, many)).toBe(`has ${maxItems + 1} items; 1 to ${maxItems} are expected`);
      },
    );
  });

  it('allow strings of the same length', () => {
    everywhere(
      ({ schema }) => schema.maxLength !== undefined,
      place => {
        expect(reasonAt(place, 'a'.repeat((place.schema.maxLength ?? 0) + 1))).toBeDefined();
      },
    );
  });

  it('give a default to the same fields, also in the place of a null, and refuse other nulls', () => {
    everywhere(
      ({ path }) => path.length > 1,
      place => {
        const reason = reasonAt(place, null);
        if (place.schema.default === undefined) expect(reason).toMatch(/^is null/);
        else expect(reason).toBeUndefined();
      },
    );
  });

  it('refuse a null of every field that may be absent, where the API server would drop it', () => {
    everywhere(
      ({ path, schema }) =>
        schema.nullable === undefined &&
        schema.default === undefined &&
        !/^\d+$/.test(path[path.length - 1] ?? ''),
      ({ path, schema, value }) => {
        const parent = all.find(place => place.path.join() === path.slice(0, -1).join());
        const required = (parent?.schema ?? spec) as { readonly required?: readonly string[] };
        // ipBlock is one of several of which one must be there, so that dropping it cannot widen anything.
        const kept = ['spec', 'ipBlock', ...(required.required ?? [])];
        const name = path[path.length - 1] ?? '';
        if (schema.type !== undefined) expect(kept, JSON.stringify(value)).toContain(name);
      },
    );
  });
});

describe('what is made from the CRDs', () => {
  const run = promisify(execFile);
  const script = resolve('scripts/generate.mjs');

  it('is as they are', async () => {
    await expect(run(process.execPath, [script, '--check'])).resolves.toMatchObject({ stderr: '' });
  }, 30_000);

  it.each(['src/api/generated', 'charts/natoutgoing/files/crds', 'docs/reference.md', 'docs/values.md'])(
    'is named when %s is not, and made again',
    async target => {
      const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-generate-'));
      try {
        for (const part of ['crds', 'scripts', 'charts/natoutgoing/values.yaml', target]) {
          await cp(part, join(folder, part), { recursive: true });
        }
        await symlink(resolve('node_modules'), join(folder, 'node_modules'));
        const inFolder = { cwd: folder };
        await run(process.execPath, ['scripts/generate.mjs'], inFolder);
        const [file = ''] = target.endsWith('.md') ? [''] : await readdir(join(folder, target));
        const path = join(folder, target, file);
        const before = await readFile(path, 'utf8');
        expect(before).toBe(await readFile(join(target, file), 'utf8'));
        await appendFile(path, '// changed by hand\n');
        await expect(
          run(process.execPath, ['scripts/generate.mjs', '--check'], inFolder),
        ).rejects.toMatchObject({
          code: 1,
          stderr: expect.stringContaining(join(target, file)) as string,
        });
        await run(process.execPath, ['scripts/generate.mjs'], inFolder);
        expect(await readFile(path, 'utf8')).toBe(before);
      } finally {
        await rm(folder, { recursive: true });
      }
    },
    30_000,
  );
});
