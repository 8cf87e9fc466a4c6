// What the API server says to our writes: each answer as the outcome that callers act on.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import { applyObject, deleteObject } from '../../src/cluster/apply.ts';
import { createRecorder, type RecordedEvent } from '../../src/cluster/events.ts';
import type { HttpsApi } from '../../src/cluster/https.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import { apiOf, GROUP, installThings, pathOf, type Things } from './cluster-things.ts';
import { waitFor } from './wait.ts';

describe('writes on a real API server', () => {
  let server: ApiServer;
  let things: Things;
  let api: HttpsApi;

  beforeAll(async () => {
    server = await startApiServer({}, new AbortController().signal);
    things = await installThings(server, 'things');
    api = apiOf(server);
  });
  afterAll(async () => {
    api?.close();
    await server?.close();
  });

  const collection = pathOf('things');
  const bodyOf = (name: string, more: object = { spec: { value: 1 } }): object => ({
    apiVersion: `${GROUP}/v1`,
    kind: 'Thing',
    metadata: { name },
    ...more,
  });
  const apply = (name: string, more: { lock?: string; uid?: string; body?: object } = {}) =>
    applyObject(api, { collection, name, fieldManager: 'natoutgoing-test', body: bodyOf(name), ...more });
  const read = async (name: string): Promise<RawObject> => {
    const { status, body } = await server.client.request('GET', `${collection}/${name}`);
    expect(status).toBe(200);
    return body as RawObject;
  };
  const versionOf = async (name: string): Promise<string> =>
    String((await read(name)).metadata.resourceVersion);

  it('makes an object, and changes nothing when nothing is to be changed', async () => {
    const made = await apply('same');
    const again = await apply('same');
    expect([made.result, again.result]).toEqual(['done', 'done']);
    expect(again).toEqual(made);
  });

  it('takes away what is not applied any more, also what others hold by force', async () => {
    await apply('fields', { body: bodyOf('fields', { spec: { mine: 1, gone: 1 } }) });
    await things.put('fields', 'theirs');
    await apply('fields', { body: bodyOf('fields', { spec: { mine: 2, value: 'ours' } }) });
    expect((await read('fields'))['spec']).toEqual({ mine: 2, value: 'ours' });
  });

  it('is a conflict when another version is there than was read', async () => {
    await apply('locked');
    const lock = await versionOf('locked');
    await things.put('locked', 'changed meanwhile');
    const outcome = await apply('locked', { lock });
    expect(outcome).toMatchObject({ result: 'conflict', message: expect.stringContaining('409') as string });
    expect((await apply('locked', { lock: await versionOf('locked') })).result).toBe('done');
  });

  it('is a conflict when it is another object, or none, with that name', async () => {
    await apply('other');
    const uid = 'c0ffee00-0000-4000-8000-000000000000';
    expect((await apply('other', { uid })).result).toBe('conflict');
    expect((await apply('never-there', { uid })).result).toBe('conflict');
    expect((await apply('never-there', { uid, lock: '1' })).result).toBe('conflict');
    expect((await server.client.request('GET', `${collection}/never-there`)).status).toBe(404);
  });

  it('makes an object that is gone anew although it has a lock, when it has no uid', async () => {
    await apply('gone');
    const lock = await versionOf('gone');
    await things.remove('gone');
    expect((await apply('gone', { lock })).result).toBe('done');
  });

  it('is refused with the words of the server, when a field is not known or the name is none', async () => {
    const unknown = await apply('strict', { body: bodyOf('strict', { spce: 1 }) });
    expect(unknown).toMatchObject({ result: 'refused', message: expect.stringContaining('spce') as string });
    expect((await apply('No Name')).result).toBe('refused');
  });

  it('is not found when the kind is not served', async () => {
    const applied = { collection: pathOf('nothings'), name: 'a', fieldManager: 'test', body: bodyOf('a') };
    expect((await applyObject(api, applied)).result).toBe('notFound');
  });

  it('deletes exactly the object that was meant', async () => {
    await apply('deleted');
    const { uid } = (await read('deleted')).metadata;
    const target = { collection, name: 'deleted', uid: 'c0ffee00-0000-4000-8000-000000000000' };
    expect((await deleteObject(api, target)).result).toBe('conflict');
    await read('deleted');
    for (let i = 0; i < 2; i++)
      expect(await deleteObject(api, { ...target, uid: String(uid) })).toEqual({ result: 'done' });
    expect((await server.client.request('GET', `${collection}/deleted`)).status).toBe(404);
  });

  it('records Events, and counts those that come again', async () => {
    await apply('regarded');
    const { uid } = (await read('regarded')).metadata;
    const warnings: object[] = [];
    const record = createRecorder({
      api,
      clock: systemClock,
      wallClock: () => new Date(),
      log: { info: () => {}, warn: fields => warnings.push(fields) },
      controller: 'natoutgoing.io/test',
      instance: `node-${'n'.repeat(240)}`,
    });
    const event: RecordedEvent = {
      type: 'Warning',
      regarding: { apiVersion: `${GROUP}/v1`, kind: 'Thing', name: 'regarded', uid: String(uid) },
      reason: 'DriftRepaired',
      action: 'Verify',
      note: 'ü'.repeat(5_000),
    };
    for (let i = 0; i < 4; i++) record(event);
    record({ ...event, note: 'something else' });
    const look = async (): Promise<readonly RawObject[] | undefined> => {
      const { body } = await server.client.request('GET', '/apis/events.k8s.io/v1/namespaces/default/events');
      const items = (body as { items: RawObject[] }).items.filter(it => it['reason'] === 'DriftRepaired');
      const counts = items.map(it => (it['series'] as { count?: number } | undefined)?.count);
      return items.length === 2 && counts.includes(4) ? items : undefined;
    };
    const detail = (): string => JSON.stringify(warnings);
    const [first] = await waitFor(look, { what: 'two Events, one of them counted', limitMs: 10_000, detail });
    expect(first).toMatchObject({
      regarding: { kind: 'Thing', name: 'regarded', uid },
      type: 'Warning',
      action: 'Verify',
      reportingController: 'natoutgoing.io/test',
      metadata: { namespace: 'default' },
    });
    expect(warnings).toEqual([]);
  });
});
