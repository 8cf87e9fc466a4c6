// The tables of MasqPolicies that our own validation is tested with, put to a real API server that has the CRD: what
// one refuses the other must refuse, as far as the CRD can say it.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { invalidPolicies, validPolicies } from '../fixtures/policies.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import type { ApiResponse } from './client.ts';
import { create, installCrds, readObjects, refusalOf, refusedFields } from './objects.ts';

const POLICIES = '/apis/natoutgoing.io/v1alpha1/masqpolicies';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type Path = readonly (string | number)[];

/** The path as the API server writes it: spec.rules[0].to. */
const pathText = (path: Path): string =>
  path
    .map(step => (typeof step === 'number' ? `[${step}]` : `.${step}`))
    .join('')
    .slice(1);

describe('MasqPolicies on a real API server', () => {
  let server: ApiServer;

  beforeAll(async () => {
    const signal = new AbortController().signal;
    server = await startApiServer({}, signal);
    await installCrds(server.client, await readObjects('crds'), signal);
  });
  afterAll(() => server?.close());

  /** Creates it under a name of its own, since all of a table have one name. */
  const send = (object: unknown, name: string): Promise<ApiResponse> =>
    create(server.client, POLICIES, { ...(object as object), metadata: { name } });

  const isThere = async (name: string): Promise<boolean> =>
    (await server.client.request('GET', `${POLICIES}/${name}`)).status === 200;

  /** With the title apart, as vitest cuts a title that it takes out of an object. */
  const titled = <T extends { readonly name: string }>(table: readonly T[]) =>
    table.map((entry, i) => [entry.name, { ...entry, id: `case-${i}` }] as const);

  it.each(titled(validPolicies))('accepts %s', async (_, { object, id }) => {
    const response = await send(object, `valid-${id}`);
    expect(response.status, refusalOf(response).message).toBe(201);
  });

  it.each(titled(invalidPolicies.filter(entry => entry.crdRefuses)))(
    'refuses %s, naming the field',
    async (_, { object, id, field, crdField = field }) => {
      const response = await send(object, `invalid-${id}`);
      const { message } = refusalOf(response);
      expect({ status: response.status, there: await isThere(`invalid-${id}`) }, message).toEqual({
        status: 422,
        there: false,
      });
      expect(refusedFields(response), message).toContain(crdField);
    },
  );

  it.each(titled(invalidPolicies.filter(entry => entry.unknownField)))(
    'refuses %s under strict validation',
    async (_, { object, id, field }) => {
      const response = await send(object, `unknown-${id}`);
      expect(response.status).toBe(400);
      expect(refusalOf(response).message).toContain(`unknown field "${field}"`);
      expect(await isThere(`unknown-${id}`)).toBe(false);
    },
  );

  // Here the planner has the only word; a server that learns to refuse one of these has outrun the table.
  it.each(titled(invalidPolicies.filter(entry => !entry.crdRefuses && entry.unknownField === undefined)))(
    'cannot refuse %s',
    async (_, { object, id }) => {
      expect((await send(object, `planner-${id}`)).status).toBe(201);
    },
  );

  describe('a null', () => {
    const everything = validPolicies.find(({ name }) => name === 'everything at once')?.object as Record<
      string,
      Json
    >;
    const paths = pathsBelow(everything['spec'] ?? null, ['spec']);
    const defaults: Readonly<Record<string, Json>> = {
      priority: 500,
      enforcementMode: 'Enforce',
      natOutgoing: 'Any',
      portAllocation: 'FullyRandom',
      defaultAction: 'Continue',
      connectionPolicy: 'Keep',
    };
    const defaultOf = (path: Path): Json | undefined => defaults[path.at(-1) ?? ''];
    const cases = paths.map(path => ({ path, name: pathText(path) }));

    it('is tried at every field', () => {
      expect(paths.length).toBeGreaterThan(50);
    });

    it.each(titled(cases.filter(({ path }) => defaultOf(path) === undefined)))(
      'at %s is refused, and never read as "everything"',
      async (_, { path, id }) => {
        const response = await send(withNull(everything, path), `null-${id}`);
        expect(response.status, JSON.stringify((response.body as { spec?: Json }).spec)).toBe(422);
      },
    );

    it.each(titled(cases.filter(({ path }) => defaultOf(path) !== undefined)))(
      'at %s is the default',
      async (_, { path, id }) => {
        const response = await send(withNull(everything, path), `default-${id}`);
        expect(response.status).toBe(201);
        const stored = path.reduce<Json | undefined>(
          (value, step) => (value as Record<string | number, Json> | undefined)?.[step],
          response.body as Json,
        );
        expect(stored).toBe(defaultOf(path));
      },
    );
  });
});

/** Every path below a value: fields, items of lists, values of maps. */
function pathsBelow(value: Json, path: Path): Path[] {
  if (value === null || typeof value !== 'object') return [];
  const steps: (string | number)[] = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return steps.flatMap(step => {
    const below = [...path, step];
    return [below, ...pathsBelow((value as Record<string | number, Json>)[step] ?? null, below)];
  });
}

function withNull(object: Record<string, Json>, path: Path): Record<string, Json> {
  const copy = structuredClone(object);
  const parent = path
    .slice(0, -1)
    .reduce<Json>((value, step) => (value as Record<string | number, Json>)[step] ?? null, copy);
  (parent as Record<string | number, Json>)[path.at(-1) ?? ''] = null;
  return copy;
}
