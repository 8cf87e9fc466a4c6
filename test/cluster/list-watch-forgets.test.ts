// A store that is compacted while we list and watch: 410.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import { apiOf, installThings, observe, type Observed, pathOf } from './cluster-things.ts';
import { openRelay } from './relay.ts';
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

const versionOf = (path: string | undefined): string | null =>
  new URLSearchParams(path?.split('?')[1] ?? '').get('resourceVersion');

describe('a server that forgets early', () => {
  let server: ApiServer;
  beforeAll(async () => {
    const flags = ['--watch-cache=false', '--etcd-compaction-interval=1s'];
    server = await startApiServer({ flags }, new AbortController().signal);
  });
  afterAll(() => server?.close());

  it('refuses the rest of a list (410), which is begun anew', { timeout: 120_000 }, async () => {
    const things = await installThings(server, 'olds');
    for (let i = 0; i < 4; i++) await things.put(`old-${i}`, i);
    const api = closed(apiOf(server));
    let held = false;
    const seen = stopped(
      observe(api, 'olds', {
        pageSize: 2,
        async before(path) {
          if (held || !path.includes('continue=')) return;
          held = true;
          let number = 0;
          const forgotten = async (): Promise<true | undefined> => {
            await things.put('old-0', `again-${++number}`);
            return (await server.client.request('GET', path)).status === 410 ? true : undefined;
          };
          await waitFor(forgotten, { what: 'the pages to be forgotten', limitMs: 60_000, intervalMs: 300 });
        },
      }),
    );
    await seen.until('the list to be whole', () => seen.listWatch.health().listed, 90_000);
    expect([seen.tooOld, seen.lists]).toEqual([1, 4]);
    await seen.matches(things);
  });

  it('refuses a watch from an old version (410), which leads to a list', { timeout: 120_000 }, async () => {
    const things = await installThings(server, 'olders');
    await things.put('a', 1);
    const relay = closed(await openRelay({ port: 0 }, Number(new URL(server.url).port)));
    const seen = stopped(observe(closed(apiOf(server, { port: relay.port })), 'olders'));
    await seen.matches(things);
    relay.refuse();
    await seen.until('the refusal to be noticed', () => seen.listWatch.health().failing !== undefined);
    const version = versionOf(seen.watches.at(-1)) ?? '';
    let number = 0;
    const forgotten = async (): Promise<true | undefined> => {
      await things.put('b', ++number);
      const { status } = await server.client.request(
        'GET',
        `${pathOf('olders')}?resourceVersion=${version}&resourceVersionMatch=Exact&limit=10`,
      );
      return status === 410 ? true : undefined;
    };
    await waitFor(forgotten, { what: 'the version to be forgotten', limitMs: 60_000, intervalMs: 300 });
    await things.remove('a');
    relay.heal();
    await seen.matches(things, 40_000);
    expect([seen.tooOld > 0, seen.lists]).toEqual([true, 2]);
    expect(seen.changes.some(({ type, object }) => type === 'DELETED' && object.metadata.name === 'a')).toBe(
      true,
    );
  });
});
