// Objects on a test's API server: read from files, created, refused, and CRDs installed so that they can be used.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';
import type { ApiClient, ApiResponse } from './client.ts';
import { waitFor } from './wait.ts';

/** As much of an object as is needed to send it. */
export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

export interface Crd extends KubeObject {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string; readonly plural: string };
    readonly versions: readonly { readonly name: string }[];
  };
}

/** How the server puts a refusal. */
export interface Refusal {
  readonly reason: string;
  readonly message: string;
  readonly details?: { readonly causes?: readonly { readonly field: string; readonly message: string }[] };
}

const ESTABLISHED_LIMIT_MS = 30_000;

const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * The objects of a YAML file, or of a folder's YAML files in the order of their names, below the project's folder; the
 * items of a List are given one by one. Rejects on a syntax error, and when there is no object at all.
 */
export async function readObjects(path: string): Promise<readonly KubeObject[]> {
  const files = path.endsWith('.yaml')
    ? [path]
    : (await readdir(join(root, path))).filter(name => name.endsWith('.yaml')).map(name => join(path, name));
  const texts = await Promise.all(files.sort().map(file => readFile(join(root, file), 'utf8')));
  const objects = texts.flatMap((text, index) => objectsIn(text, files[index] ?? ''));
  if (objects.length === 0) throw new Error(`${path} has no YAML file with an object`);
  return objects;
}

/** The objects of YAML documents, those of a List one by one; throws on a syntax error, with the name of the text. */
export function objectsIn(text: string, name: string): readonly KubeObject[] {
  return parseAllDocuments(text).flatMap(document => {
    const [error] = document.errors;
    if (error !== undefined) throw new Error(`${name}: ${error.message}`);
    // The CRDs use anchors for schemas that occur again, nested ones too: more than the parser's limit of 100.
    const value = document.toJS({ maxAliasCount: 10_000 }) as (KubeObject & { items?: KubeObject[] }) | null;
    if (value === null) return [];
    return value.kind === 'List' ? (value.items ?? []) : [value];
  });
}

/** Creates an object with strict field validation, as kubectl does: an unknown field is an error, not a warning. */
export function create(client: ApiClient, resource: string, object: unknown): Promise<ApiResponse> {
  return client.request('POST', `${resource}?fieldValidation=Strict`, { body: object });
}

/** The path of a CRD's objects in its first version. */
export function resourceOf(crd: Crd): string {
  const version = crd.spec.versions[0]?.name ?? '';
  return `/apis/${crd.spec.group}/${version}/${crd.spec.names.plural}`;
}

export const refusalOf = (response: ApiResponse): Refusal => response.body as Refusal;

/** The fields that a refusal is about. For a `not` in a schema the server gives the field in its message only. */
export const refusedFields = (response: ApiResponse): readonly string[] =>
  (refusalOf(response).details?.causes ?? []).map(
    ({ field, message }) => /"([^"]+)" must not validate the schema/.exec(message)?.[1] ?? field,
  );

/**
 * Creates the CRDs among the objects and waits until each is established and its objects can be listed. Rejects with
 * the server's words when it refuses one (a rule that does not compile or costs too much, say) or reports a schema that is not
 * structural: then unknown fields would not be pruned.
 */
export async function installCrds(
  client: ApiClient,
  objects: readonly KubeObject[],
  signal?: AbortSignal,
): Promise<readonly Crd[]> {
  const crds = objects.filter((object): object is Crd => object.kind === 'CustomResourceDefinition');
  const collection = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
  for (const crd of crds) {
    const response = await create(client, collection, crd);
    if (response.status === 201) continue;
    throw new Error(`CRD ${crd.metadata.name} was refused: ${refusalOf(response).message}`);
  }
  for (const crd of crds) {
    let conditions: readonly Condition[] = [];
    const look = async (): Promise<true | undefined> => {
      const { body } = await client.request('GET', `${collection}/${crd.metadata.name}`, {}, signal);
      conditions = (body as { status?: { conditions?: Condition[] } }).status?.conditions ?? [];
      const bad = conditions.find(({ type, status }) => type === 'NonStructuralSchema' && status === 'True');
      if (bad !== undefined) throw new Error(`CRD ${crd.metadata.name} is not structural: ${bad.message}`);
      if (!conditions.some(({ type, status }) => type === 'Established' && status === 'True'))
        return undefined;
      // Established is said a moment before the handler knows the resource.
      return (await client.request('GET', resourceOf(crd), {}, signal)).status === 200 ? true : undefined;
    };
    const detail = (): string => JSON.stringify(conditions);
    const what = `CRD ${crd.metadata.name} to be established`;
    await waitFor(look, { what, limitMs: ESTABLISHED_LIMIT_MS, detail }, signal);
  }
  return crds;
}

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly message: string;
}
