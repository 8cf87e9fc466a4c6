// What the operator writes, on a real API server: every status that it can give and every object that it can want is
// taken, and comes back as it was sent, so that "write only what changed" holds.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import { applyObject, deleteObject, type Outcome } from '../../src/cluster/apply.ts';
import { createHttpsApi, type HttpsApi } from '../../src/cluster/https.ts';
import { policyStatus } from '../../src/operator/policy-status.ts';
import { projectOf } from '../../src/operator/sources.ts';
import { createStatusPace } from '../../src/operator/status-pace.ts';
import { snapshots } from '../oracle/arbitraries.ts';
import { desiredFor } from '../unit/operator-hand.ts';
import { SITUATIONS } from '../unit/operator-status-table.ts';
import { plain } from '../unit/operator-support.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import { create, installCrds, readObjects } from './objects.ts';

const COLLECTION = '/apis/natoutgoing.io/v1alpha1';
const MANAGER = 'natoutgoing-operator';

const done = (outcome: Outcome): RawObject => {
  if (outcome.result !== 'done') throw new Error(`${outcome.result}: ${outcome.message}`);
  return outcome.object;
};
const versionOf = ({ metadata }: RawObject): string => String(metadata.resourceVersion);

describe('what the operator writes', () => {
  let server: ApiServer;
  let api: HttpsApi;

  beforeAll(async () => {
    const signal = new AbortController().signal;
    server = await startApiServer({}, signal);
    await installCrds(server.client, await readObjects('crds'), signal);
    const credentials = { tls: { ca: server.ca }, authorization: `Bearer ${server.token}` };
    api = createHttpsApi({
      url: server.url,
      credentials: () => Promise.resolve(credentials),
      distrust: () => {},
    });
  });
  afterAll(async () => {
    api?.close();
    await server?.close();
  });

  const applyStatus = async (there: RawObject, status: object): Promise<RawObject> => {
    const { name, uid } = there.metadata;
    const body = { apiVersion: 'natoutgoing.io/v1alpha1', kind: 'MasqPolicy', metadata: { name }, status };
    const target = {
      collection: `${COLLECTION}/masqpolicies`,
      name,
      subresource: 'status',
      fieldManager: MANAGER,
    } as const;
    return done(await applyObject(api, { ...target, body, lock: versionOf(there), uid: String(uid) }));
  };

  const createPolicy = async (name: string): Promise<RawObject> => {
    const spec = { source: { ipPools: {} }, rules: [{ name: 'a', action: 'Preserve' }] };
    const made = await create(server.client, `${COLLECTION}/masqpolicies`, {
      apiVersion: 'natoutgoing.io/v1alpha1',
      kind: 'MasqPolicy',
      metadata: { name },
      spec,
    });
    expect(made.status).toBe(201);
    return made.body as RawObject;
  };

  it.each([
    ['one after the other', SITUATIONS],
    ['in the other order', SITUATIONS.toReversed()],
  ])('every status, %s, comes back as it was sent', async (order, situations) => {
    let there = await createPolicy(order.replaceAll(' ', '-'));
    const { uid, generation } = there.metadata;
    for (const [name, facts] of situations) {
      const status = policyStatus(facts, [], new Date().toISOString());
      there = await applyStatus(there, status);
      const kept = projectOf('policies')(there);
      expect(kept['status'], name).toEqual(plain(status));
      expect(createStatusPace().due('p', kept['status'], status, 0), name).toBeUndefined();
      // The same again is no change, so nobody who watches hears of it.
      expect(versionOf(await applyStatus(there, status)), name).toBe(versionOf(there));
    }
    expect(there.metadata).toMatchObject({ uid, generation });
  });

  it('every part of every plan, and every MasqNode, comes back with the digest of the desired', async () => {
    const samples = fc.sample(snapshots(), { numRuns: 25, seed: 4 });
    const seen = new Set<string>();
    for (const [i, snapshot] of samples.entries()) {
      const desired = desiredFor(snapshot, i % 2 === 0 ? undefined : 200);
      const objects = [
        ...desired.plans.flatMap(({ parts }) => parts.map(part => ['masqPlans', part] as const)),
        ...desired.nodes.map(node => ['masqNodes', node] as const),
      ];
      for (const [key, { name, digest, body }] of objects) {
        const target = {
          collection: `${COLLECTION}/${key.toLowerCase()}`,
          name,
          fieldManager: MANAGER,
          body,
        };
        const made = done(await applyObject(api, target));
        expect(projectOf(key)(made)['digest'], JSON.stringify(body)).toBe(digest);
        const again = done(await applyObject(api, { ...target, lock: versionOf(made) }));
        expect(versionOf(again)).toBe(versionOf(made));
        seen.add(name);
      }
    }
    expect(seen.size).toBeGreaterThan(20);
  });

  it.each([
    [
      'a fixed address that Felix gives no more',
      { poolDefault: { addresses: { ipv4: '192.0.2.1' } } },
      { poolDefault: { addresses: {} } },
    ],
    ['a tunnel that is no more', { tunnelInterfaces: ['tunl0'] }, { tunnelInterfaces: [] }],
    [
      'a set that is empty now',
      { sets: [{ id: 'a', ipv4: ['10.0.0.0/8'], ipv6: [] }] },
      { sets: [{ id: 'a', ipv4: [], ipv6: [] }] },
    ],
    [
      'sets in another order',
      { sets: ['a', 'b', 'c'].map(id => ({ id, ipv4: [], ipv6: [] })) },
      { sets: ['d', 'c', 'a'].map(id => ({ id, ipv4: [], ipv6: [] })) },
    ],
    ['no sets at all', { sets: [{ id: 'a', ipv4: ['10.0.0.0/8'], ipv6: [] }] }, { sets: [] }],
  ])('a plan goes from one content to another: %s', async (what, before, after) => {
    const name = what.toLowerCase().replaceAll(/[^a-z]+/g, '-');
    const poolDefault = { source: 'none', spared: 'none', addresses: {}, portAllocation: 'FullyRandom' };
    const first = {
      schemaVersion: 1,
      plan: name,
      part: 0,
      of: 1,
      contentHash: '0123456789abcdef',
      policies: [],
      kubeMark: 1,
    };
    for (const content of [before, after, before]) {
      const { poolDefault: more, ...rest } = content as { poolDefault?: object };
      const spec = {
        ...first,
        sets: [],
        tunnelInterfaces: [],
        ...rest,
        poolDefault: { ...poolDefault, ...more },
      };
      const body = { apiVersion: 'natoutgoing.io/v1alpha1', kind: 'MasqPlan', metadata: { name }, spec };
      const made = await applyObject(api, {
        collection: `${COLLECTION}/masqplans`,
        name,
        fieldManager: MANAGER,
        body,
      });
      expect(done(made)['spec']).toEqual(spec);
    }
  });

  const plan = (name: string, label = name): object => ({
    apiVersion: 'natoutgoing.io/v1alpha1',
    kind: 'MasqPlan',
    metadata: { name, labels: { 'natoutgoing.io/plan': label } },
    spec: { schemaVersion: 1, plan: name, part: 1, of: 2, sets: [] },
  });
  const masqPlans = `${COLLECTION}/masqplans`;
  const apply = (name: string, lock?: string, body = plan(name)): Promise<Outcome> =>
    applyObject(api, {
      collection: masqPlans,
      name,
      fieldManager: MANAGER,
      body,
      ...(lock === undefined ? {} : { lock }),
    });

  it('a version that is not the one that was seen is a conflict, and a kind that is not there is not found', async () => {
    const first = done(await apply('a'));
    const second = done(
      await apply('a', versionOf(first), {
        ...plan('a'),
        spec: { schemaVersion: 1, plan: 'a', part: 2, of: 3, sets: [] },
      }),
    );
    expect(await apply('a', versionOf(first))).toMatchObject({ result: 'conflict' });
    expect(versionOf(second)).not.toBe(versionOf(first));
    expect(await deleteObject(api, { collection: masqPlans, name: 'a', uid: 'another' })).toMatchObject({
      result: 'conflict',
    });
    const { uid } = second.metadata;
    for (let i = 0; i < 2; i += 1) {
      expect(await deleteObject(api, { collection: masqPlans, name: 'a', uid: String(uid) })).toEqual({
        result: 'done',
      });
    }
    // What was there and is gone is made anew, whatever the version.
    expect((await apply('a', versionOf(second))).result).toBe('done');
    const nowhere = {
      collection: `${COLLECTION}/masqthings`,
      name: 'a',
      fieldManager: MANAGER,
      body: plan('a'),
    };
    expect(await applyObject(api, nowhere)).toMatchObject({ result: 'notFound' });
  });

  it('a label that somebody took away is a difference, and comes back', async () => {
    const made = done(await apply('b'));
    const digest = (object: RawObject): unknown => projectOf('masqPlans')(object)['digest'];
    const patched = await server.client.request('PATCH', `${masqPlans}/b`, {
      body: { metadata: { labels: null } },
      contentType: 'application/merge-patch+json',
    });
    expect(patched.status).toBe(200);
    const spoilt = patched.body as RawObject;
    expect(digest(spoilt)).not.toBe(digest(made));
    expect(digest(done(await apply('b', versionOf(spoilt))))).toBe(digest(made));
  });

  it('a policy that was made anew is not told what its namesake was', async () => {
    const told = { observedGeneration: 1 };
    const old = await createPolicy('twice');
    expect((await server.client.request('DELETE', `${COLLECTION}/masqpolicies/twice`)).status).toBe(200);
    await expect(applyStatus(old, told)).rejects.toThrow('notFound');
    const fresh = await createPolicy('twice');
    // By the version: of a status the server looks at no uid.
    await expect(applyStatus(old, told)).rejects.toThrow('conflict');
    expect((await applyStatus(fresh, told))['status']).toEqual(told);
  });
});
