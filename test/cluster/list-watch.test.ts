import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createHttpsApi, type HttpsApi } from '../../src/cluster/https.ts';
import { inClusterEndpoint } from '../../src/cluster/in-cluster.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import {
  apiOf,
  GROUP,
  installThings,
  observe,
  type Observed,
  pathOf,
  type Things,
} from './cluster-things.ts';
import { writeAccount } from './program.ts';
import { openRelay, type Relay } from './relay.ts';
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

describe('list-and-watch on a real API server', () => {
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

  it('pages a list that changes meanwhile, and misses nothing', async () => {
    for (let i = 0; i < 20; i++) await things.put(`page-${i}`, i);
    let number = 0;
    const seen = stopped(
      observe(api, 'things', {
        pageSize: 3,
        async before() {
          number += 1;
          await things.put(`page-${number}`, `changed-${number}`);
          await things.remove(`page-${19 - number}`);
          await things.put(`new-${number}`, number);
        },
      }),
    );
    await seen.until('the list to be whole', () => seen.listWatch.health().listed);
    expect(seen.lists).toBe(7);
    await seen.matches(things);
    expect([seen.tooOld, seen.watches.length]).toEqual([0, 1]);
  });

  it('follows changes of each kind', async () => {
    const seen = stopped(observe(api, 'things'));
    await seen.matches(things);
    const before = seen.changes.length;
    await things.put('followed', 1);
    await things.put('followed', 2);
    // No change: the server says nothing, and so do we.
    await things.put('followed', 2);
    await things.remove('followed');
    await things.put('followed', 3);
    await seen.matches(things);
    expect(seen.changes.slice(before).map(({ type }) => type)).toEqual([
      'ADDED',
      'MODIFIED',
      'DELETED',
      'ADDED',
    ]);
  });

  describe('behind a relay', () => {
    let relay: Relay;
    const through = (): HttpsApi => closed(apiOf(server, { port: relay.port }));

    beforeAll(async () => {
      relay = await openRelay({ port: 0 }, Number(new URL(server.url).port));
    });
    afterAll(() => relay?.close());

    it('goes on from where it was after connections were cut, again and again', async () => {
      const seen = stopped(observe(through(), 'things'));
      await seen.matches(things);
      for (let i = 0; i < 5; i++) {
        relay.cut();
        await things.put('cut', i);
        await seen.matches(things);
      }
      expect([seen.lists, seen.tooOld]).toEqual([1, 0]);
    });

    it('notices a black hole by its silence, and goes on without a list when that is over', async () => {
      const seen = stopped(observe(through(), 'things', { silenceMs: 1_500 }));
      await seen.matches(things);
      const { connections } = relay;
      relay.blackhole();
      const hidden = Date.now();
      await things.put('hidden', 1);
      await seen.until('the silence to be noticed', () => seen.listWatch.health().failing !== undefined);
      expect(seen.listWatch.health().failing).toMatchObject({
        kind: 'failing',
        reason: `GET ${pathOf('things')}: nothing was heard for 1.5 s`,
      });
      expect(Date.now() - hidden).toBeLessThan(4_000);
      // Asked for again, and that is silent too: bounded.
      await waitFor(() => (relay.connections > connections ? true : undefined), {
        what: 'it to try',
        limitMs: 5_000,
      });
      expect(relay.connections).toBeLessThan(connections + 5);
      relay.heal();
      await seen.matches(things);
      expect([seen.lists, seen.listWatch.health()]).toEqual([1, { listed: true }]);
    });

    it('lists again when the server forgot what it knew last (410), and finds what was deleted', async () => {
      await things.put('stays', 1);
      await things.put('goes', 1);
      await things.put('is-another', 1);
      const seen = stopped(observe(through(), 'things'));
      await seen.matches(things);
      const before = seen.changes.length;
      relay.refuse();
      await seen.until('the refusal to be noticed', () => seen.listWatch.health().failing !== undefined);
      await things.remove('goes');
      await things.remove('is-another');
      await things.put('is-another', 1);
      await things.put('comes', 1);
      // Its cache of recent changes begins anew, after the version that we know.
      await server.stop();
      await server.start();
      const known = seen.listWatch.objects().get('stays');
      relay.heal();
      await seen.matches(things, 40_000);
      await seen.until('the change of the other object', () => seen.changes.length >= before + 4);
      expect(seen.tooOld).toBeGreaterThan(0);
      const news = seen.changes.slice(before).map(({ type, object }) => `${type} ${object.metadata.name}`);
      expect(news.toSorted()).toEqual([
        'ADDED comes',
        'ADDED is-another',
        'DELETED goes',
        'DELETED is-another',
      ]);
      expect(seen.listWatch.objects().get('stays')).toBe(known);
      expect(seen.listWatch.health()).toEqual({ listed: true });
    });
  });

  it('lives through a server that is killed and started again, without a storm', async () => {
    const seen = stopped(observe(api, 'things'));
    await seen.matches(things);
    await server.stop();
    await seen.until('the loss to be noticed', () => seen.listWatch.health().failing !== undefined);
    const since = seen.listWatch.health().failing?.since;
    await new Promise(resolve => setTimeout(resolve, 3_000));
    expect(seen.listWatch.health().failing?.since).toBe(since);
    expect(seen.watches.length + seen.lists).toBeLessThan(12);
    await server.start();
    await things.put('after', 1);
    await seen.matches(things, 40_000);
    expect(seen.listWatch.health()).toEqual({ listed: true });
  });

  it('waits for a kind that is not there yet, and for leave to read it', async () => {
    const reader = await readerToken(server);
    const seen = stopped(observe(closed(apiOf(server, { token: reader.token })), 'laters'));
    await seen.until('the refusal', () => seen.listWatch.health().failing !== undefined);
    expect(seen.listWatch.health()).toMatchObject({ listed: false, failing: { kind: 'failing' } });
    expect(seen.listWatch.health().failing?.reason).toMatch(/^GET \/apis\/example.org\/v1\/laters: 403: /);
    await reader.allow();
    await seen.until('it to be gone', () => seen.listWatch.health().failing?.kind === 'gone', 30_000);
    const laters = await installThings(server, 'laters');
    await laters.put('one', 1);
    await seen.matches(laters, 30_000);
    expect(seen.listWatch.health()).toEqual({ listed: true });
  });

  it('follows a new CA and a new token in the folder of a pod', async () => {
    const folder = `${server.folder}/account`;
    await writeAccount(folder, { token: server.token, ca: server.ca });
    const endpoint = inClusterEndpoint({ folder, env: {}, url: server.url, now: () => systemClock.now() });
    const seen = stopped(observe(closed(createHttpsApi(endpoint)), 'things'));
    await seen.matches(things);
    await server.stop();
    await server.start({ newCa: true });
    await seen.until('the server to be mistrusted', () =>
      /certificate|self.signed/i.test(seen.listWatch.health().failing?.reason ?? ''),
    );
    await writeAccount(folder, { ca: server.ca });
    await things.put('with-new-ca', 1);
    await seen.matches(things, 40_000);
  });
});

interface Reader {
  readonly token: string;
  allow(): Promise<void>;
}

/** A ServiceAccount that may do nothing until it is allowed to read the group. */
async function readerToken(server: ApiServer): Promise<Reader> {
  const post = async (path: string, body: object): Promise<unknown> => {
    const answer = await server.client.request('POST', path, { body });
    if (answer.status !== 201) throw new Error(`POST ${path}: ${answer.status}`);
    return answer.body;
  };
  const accounts = '/api/v1/namespaces/default/serviceaccounts';
  await post(accounts, { metadata: { name: 'reader' } });
  const made = (await post(`${accounts}/reader/token`, { spec: { expirationSeconds: 600 } })) as {
    status: { token: string };
  };
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  return {
    token: made.status.token,
    async allow() {
      const rules = [{ apiGroups: [GROUP], resources: ['*'], verbs: ['get', 'list', 'watch'] }];
      await post(`${rbac}/clusterroles`, { metadata: { name: 'reader' }, rules });
      await post(`${rbac}/clusterrolebindings`, {
        metadata: { name: 'reader' },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'reader' },
        subjects: [{ kind: 'ServiceAccount', name: 'reader', namespace: 'default' }],
      });
    },
  };
}
