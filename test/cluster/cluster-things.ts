// A kind of a test's own, and a list-and-watch of it through the real transport.
import { type Api, ApiError, type RawObject } from '../../src/cluster/api.ts';
import type { Endpoint } from '../../src/cluster/endpoint.ts';
import { createHttpsApi, type HttpsApi } from '../../src/cluster/https.ts';
import {
  type Change,
  createListWatch,
  type Health,
  type ListWatch,
  type ListWatchParts,
} from '../../src/cluster/list-watch.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { ApiServer } from './api-server.ts';
import type { ApiClient, ApiResponse } from './client.ts';
import { type Crd, installCrds } from './objects.ts';
import { waitFor } from './wait.ts';

export const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
export const GROUP = 'example.org';
export const pathOf = (plural: string): string => `/apis/${GROUP}/v1/${plural}`;

/** Cluster-scoped, with any spec. */
export const crdOf = (plural: string): Crd => {
  const kind = `${plural[0]?.toUpperCase()}${plural.slice(1, -1)}`;
  const schema = {
    openAPIV3Schema: {
      type: 'object',
      properties: { spec: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
    },
  };
  const version = { name: 'v1', served: true, storage: true, schema };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${GROUP}` },
    spec: {
      group: GROUP,
      scope: 'Cluster',
      names: { kind, plural, singular: plural.slice(0, -1), listKind: `${kind}List` },
      versions: [version],
    },
  } as Crd;
};

export interface Things {
  put(name: string, value: unknown): Promise<void>;
  remove(name: string): Promise<void>;
  /** The values by name, as the API server has them. */
  values(): Promise<Readonly<Record<string, unknown>>>;
}

/** Installs the kind and gives a way to its objects. */
export async function installThings(server: ApiServer, plural: string): Promise<Things> {
  const crd = crdOf(plural);
  await installCrds(server.client, [crd]);
  return thingsOf(() => server.client, plural);
}

export function thingsOf(client: () => ApiClient, plural: string): Things {
  const { kind } = crdOf(plural).spec.names;
  const path = pathOf(plural);
  const expectStatus = async (
    method: string,
    at: string,
    body?: object,
    contentType?: string,
  ): Promise<unknown> => {
    const options = {
      ...(body === undefined ? {} : { body }),
      ...(contentType === undefined ? {} : { contentType }),
    };
    // A server that was just started asks for patience.
    const ready = async (): Promise<ApiResponse | undefined> => {
      const answer = await client().request(method, at, options);
      return answer.status === 429 ? undefined : answer;
    };
    const answer = await waitFor(ready, {
      what: `an answer to ${method} ${at}`,
      limitMs: 30_000,
      intervalMs: 200,
    });
    if (answer.status >= 300)
      throw new Error(`${method} ${at}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  return {
    async put(name, value) {
      const body = { apiVersion: `${GROUP}/v1`, kind, metadata: { name }, spec: { value } };
      await expectStatus(
        'PATCH',
        `${path}/${name}?fieldManager=test&force=true`,
        body,
        'application/apply-patch+yaml',
      );
    },
    async remove(name) {
      await expectStatus('DELETE', `${path}/${name}`);
    },
    async values() {
      const { items } = (await expectStatus('GET', path)) as { items: readonly RawObject[] };
      return valuesOf(items);
    },
  };
}

export const valuesOf = (objects: Iterable<RawObject>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    [...objects].map(({ metadata, spec }) => [metadata.name, (spec as { value?: unknown }).value] as const),
  );

/** The API of a server, perhaps through another port of loopback; closed by the test. */
export function apiOf(
  server: ApiServer,
  { port, token = server.token }: { port?: number; token?: string } = {},
): HttpsApi {
  const tls = { ca: server.ca };
  const endpoint: Endpoint = {
    url: port === undefined ? server.url : `https://127.0.0.1:${port}`,
    credentials: () => Promise.resolve({ tls, authorization: `Bearer ${token}` }),
    distrust: () => {},
  };
  return createHttpsApi(endpoint);
}

export interface Observed {
  readonly listWatch: ListWatch;
  readonly changes: readonly Change[];
  readonly healths: readonly Health[];
  /** Pages of lists, and watches, that were asked for so far. */
  readonly lists: number;
  readonly watches: readonly string[];
  /** How often the server said 410, by status or in an event. */
  readonly tooOld: number;
  /** Waits until what is known is what the server has. */
  matches(things: Things, limitMs?: number): Promise<void>;
  until(what: string, look: () => boolean, limitMs?: number): Promise<void>;
  stop(): Promise<void>;
}

/** Runs a list-and-watch and counts what it asks for. `before` is called before each request of a page. */
export function observe(
  api: Api,
  plural: string,
  parts: Partial<ListWatchParts> & { readonly before?: (path: string) => Promise<void> } = {},
): Observed {
  const changes: Change[] = [];
  const healths: Health[] = [];
  const watches: string[] = [];
  let lists = 0;
  let tooOld = 0;
  const saw = (error: unknown): void => {
    if (error instanceof ApiError && error.status === 410) tooOld += 1;
  };
  const counting: Api = {
    async request(asked, signal) {
      lists += 1;
      await parts.before?.(asked.path);
      const answer = await api.request(asked, signal);
      if (answer.status === 410) tooOld += 1;
      return answer;
    },
    async *watch(path, options, signal) {
      watches.push(path);
      try {
        for await (const batch of api.watch(path, options, signal)) {
          for (const it of batch as { type?: string; object?: { code?: number } }[])
            if (it.type === 'ERROR' && it.object?.code === 410) tooOld += 1;
          yield batch;
        }
      } catch (error) {
        saw(error);
        throw error;
      }
    },
  };
  const listWatch = createListWatch({
    api: counting,
    resource: { path: pathOf(plural) },
    clock: systemClock,
    wallClock: Date.now,
    random: Math.random,
    log: silentLog,
    onChange: change => changes.push(change),
    onHealth: health => healths.push(health),
    ...parts,
  });
  const stop = new AbortController();
  const running = listWatch.run(stop.signal);
  const until = async (what: string, look: () => boolean, limitMs = 15_000): Promise<void> => {
    const detail = (): string =>
      JSON.stringify({
        health: listWatch.health(),
        values: valuesOf(listWatch.objects().values()),
        lists,
        watches,
      });
    await waitFor(() => (look() ? true : undefined), { what, limitMs, intervalMs: 20, detail });
  };
  return {
    listWatch,
    changes,
    healths,
    watches,
    get lists() {
      return lists;
    },
    get tooOld() {
      return tooOld;
    },
    until,
    async matches(things, limitMs) {
      const wanted = JSON.stringify(sorted(await things.values()));
      const same = (): boolean => JSON.stringify(sorted(valuesOf(listWatch.objects().values()))) === wanted;
      await until(`what is known to be ${wanted}`, same, limitMs);
    },
    async stop() {
      stop.abort(new Error('the test is over'));
      await running;
    },
  };
}

const sorted = (values: Readonly<Record<string, unknown>>): unknown =>
  Object.entries(values).sort(([a], [b]) => a.localeCompare(b));
