// A CustomResourceDefinition that is removed takes its objects with it: that is never "there are none any more".
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { crdDeletes } from '../../src/cluster/crd-deletes.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import {
  apiOf,
  CRDS,
  crdOf,
  GROUP,
  installThings,
  observe,
  type Observed,
  thingsOf,
} from './cluster-things.ts';
import { installCrds } from './objects.ts';
import { waitFor } from './wait.ts';

const closers: (() => unknown)[] = [];
const closed = <T extends { close(): unknown }>(it: T): T => {
  closers.push(() => it.close());
  return it;
};
const stopped = (it: Observed): Observed => {
  closers.push(() => it.stop());
  return it;
};
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

describe('a kind that is removed', () => {
  let server: ApiServer;
  beforeAll(async () => {
    server = await startApiServer({}, new AbortController().signal);
  });
  afterAll(() => server?.close());

  // The server marks the definition before it deletes the first object: whoever asks after the first delete knows.
  it('is seen as deletes of all its objects, each of which counts as vanishing: 20 times', {
    timeout: 300_000,
  }, async () => {
    const things = await installThings(server, 'goners');
    const api = closed(apiOf(server));
    const confirm = crdDeletes(api, { group: GROUP, version: 'v1', plural: 'goners' });
    for (let round = 0; round < 20; round++) {
      for (let i = 0; i < 5; i++) await things.put(`goner-${i}`, round);
      const answers: string[] = [];
      let deletes = 0;
      const plain = observe(api, 'goners', {
        onChange: ({ type }) => {
          if (type === 'DELETED') deletes += 1;
        },
      });
      const careful = observe(api, 'goners', {
        async confirmDeletes(signal) {
          const answer = await confirm(signal);
          answers.push(answer);
          return answer;
        },
      });
      await plain.matches(things);
      await careful.matches(things);
      expect((await server.client.request('DELETE', `${CRDS}/goners.${GROUP}`)).status).toBe(200);
      await plain.until('the deletes', () => deletes === 5);
      await careful.until('the kind to be gone', () => careful.listWatch.health().failing?.kind === 'gone');
      expect(answers.length).toBeGreaterThan(0);
      expect(new Set(answers)).toEqual(new Set(['vanishing']));
      expect([...careful.listWatch.objects().keys()].toSorted()).toEqual(
        [0, 1, 2, 3, 4].map(i => `goner-${i}`),
      );
      expect(careful.changes.filter(({ type }) => type === 'DELETED')).toEqual([]);
      await Promise.all([plain.stop(), careful.stop()]);
      const gone = async (): Promise<true | undefined> =>
        (await server.client.request('GET', `${CRDS}/goners.${GROUP}`)).status === 404 ? true : undefined;
      await waitFor(gone, { what: 'the definition to be gone', limitMs: 20_000 });
      await installCrds(server.client, [crdOf('goners')]);
    }
  });

  it('is back: objects that were really deleted are gone then', async () => {
    const things = await installThings(server, 'backs');
    for (const name of ['a', 'b']) await things.put(name, 1);
    const api = closed(apiOf(server));
    const confirmDeletes = crdDeletes(api, { group: GROUP, version: 'v1', plural: 'backs' });
    const seen = stopped(observe(api, 'backs', { confirmDeletes }));
    await seen.matches(things);
    await things.remove('a');
    await seen.matches(things);
    await server.client.request('DELETE', `${CRDS}/backs.${GROUP}`);
    await seen.until('the kind to be gone', () => seen.listWatch.health().failing?.kind === 'gone');
    expect([...seen.listWatch.objects().keys()]).toEqual(['b']);
    const again = async (): Promise<true | undefined> =>
      (await server.client.request('GET', `${CRDS}/backs.${GROUP}`)).status === 404 ? true : undefined;
    await waitFor(again, { what: 'the definition to be gone', limitMs: 20_000 });
    await installCrds(server.client, [crdOf('backs')]);
    await thingsOf(() => server.client, 'backs').put('c', 1);
    await seen.matches(things, 60_000);
    const [first, ...others] = seen.changes
      .map(({ type, object }) => `${type} ${object.metadata.name}`)
      .slice(2);
    // A list that came between the new definition and the new object sees b gone first.
    expect([first, ...others.toSorted()]).toEqual(['DELETED a', 'ADDED c', 'DELETED b']);
  });
});
