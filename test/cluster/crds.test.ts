import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import { create, installCrds, readObjects, refusalOf } from './objects.ts';

const GROUP = '/apis/natoutgoing.io/v1alpha1';
const POLICIES = `${GROUP}/masqpolicies`;
const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io';

interface Spec {
  readonly [field: string]: unknown;
}

const object = (kind: string, name: string, spec: Spec): object => ({
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind,
  metadata: { name },
  spec,
});

const policy = (name: string, spec: Spec): object => object('MasqPolicy', name, spec);

const SOURCE = { ipPools: {} };

describe('the CRDs on a real API server', () => {
  let server: ApiServer;
  let installed: readonly string[];

  beforeAll(async () => {
    const signal = new AbortController().signal;
    server = await startApiServer({}, signal);
    // This is where a rule that does not compile, or whose estimated cost is over the budget, shows.
    installed = (await installCrds(server.client, await readObjects('crds'), signal)).map(
      crd => crd.metadata.name,
    );
  });
  afterAll(() => server?.close());

  it('are these, established', () => {
    expect([...installed].sort()).toEqual(
      ['masqnodes', 'masqplans', 'masqpolicies'].map(plural => `${plural}.natoutgoing.io`),
    );
  });

  it('have the names that the documentation uses', async () => {
    const { body } = await server.client.request('GET', GROUP);
    const resources = (body as { resources: { name: string }[] }).resources;
    const named = (name: string): object | undefined => resources.find(resource => resource.name === name);
    const common = { namespaced: false, categories: ['natoutgoing'] };
    expect(named('masqpolicies')).toMatchObject({ ...common, kind: 'MasqPolicy', shortNames: ['masqpol'] });
    expect(named('masqplans')).toMatchObject({ ...common, kind: 'MasqPlan' });
    expect(named('masqnodes')).toMatchObject({ ...common, kind: 'MasqNode' });
    expect(named('masqpolicies/status')).toBeDefined();
    expect(named('masqnodes/status')).toBeDefined();
    expect(named('masqplans/status')).toBeUndefined();
  });

  it('give a MasqPolicy its defaults', async () => {
    const rules = [{ name: 'all', action: 'Masquerade' }];
    const { status, body } = await create(
      server.client,
      POLICIES,
      policy('defaults', { source: SOURCE, rules }),
    );
    expect(status).toBe(201);
    expect((body as { spec: object }).spec).toEqual({
      priority: 500,
      enforcementMode: 'Enforce',
      source: { ipPools: { natOutgoing: 'Any' } },
      rules: [{ name: 'all', action: 'Masquerade', portAllocation: 'FullyRandom' }],
      defaultAction: 'Continue',
      connectionPolicy: 'Keep',
    });
  });

  it('print a MasqPolicy with its mode, priority, acceptance and nodes', async () => {
    const spec = {
      priority: 7,
      enforcementMode: 'DryRun',
      source: SOURCE,
      rules: [{ name: 'a', action: 'Preserve' }],
    };
    expect((await create(server.client, POLICIES, policy('printed', spec))).status).toBe(201);
    const accepted = {
      type: 'Accepted',
      status: 'True',
      reason: 'Accepted',
      message: 'no faults',
      lastTransitionTime: '2026-01-01T00:00:00Z',
    };
    const patched = await server.client.request('PATCH', `${POLICIES}/printed/status`, {
      body: { status: { conditions: [accepted], nodes: { desired: 50, programmed: 47, summary: '47/50' } } },
      contentType: 'application/merge-patch+json',
    });
    expect(patched.status).toBe(200);
    const { body } = await server.client.request('GET', `${POLICIES}/printed`, { accept: TABLE });
    const { columnDefinitions, rows } = body as {
      columnDefinitions: { name: string; priority: number }[];
      rows: { cells: unknown[] }[];
    };
    const wide = ['Name', 'Mode', 'Priority', 'Accepted', 'Nodes', 'Reason', 'Age'];
    expect(columnDefinitions.map(column => column.name)).toEqual(wide);
    expect(columnDefinitions.filter(column => column.priority > 0).map(column => column.name)).toEqual([
      'Reason',
    ]);
    expect(rows[0]?.cells.slice(0, 6)).toEqual(['printed', 'DryRun', 7, 'True', '47/50', 'no faults']);
  });

  it('print MasqNodes and MasqPlans', async () => {
    const columns = async (plural: string): Promise<string[]> => {
      const { body } = await server.client.request('GET', `${GROUP}/${plural}`, { accept: TABLE });
      return (body as { columnDefinitions: { name: string }[] }).columnDefinitions.map(column => column.name);
    };
    expect(await columns('masqnodes')).toEqual(
      expect.arrayContaining(['Name', 'Plan', 'Ready', 'Backend', 'IPv4', 'IPv6', 'Verified']),
    );
    expect(await columns('masqplans')).toEqual(
      expect.arrayContaining(['Name', 'Plan', 'Part', 'Of', 'Hash', 'Age']),
    );
  });

  it('let policies be listed by mode', async () => {
    const rules = [{ name: 'a', action: 'Preserve' }];
    const disabled = policy('switched-off', { enforcementMode: 'Disabled', source: SOURCE, rules });
    expect((await create(server.client, POLICIES, disabled)).status).toBe(201);
    const { body } = await server.client.request(
      'GET',
      `${POLICIES}?fieldSelector=spec.enforcementMode%3DDisabled`,
    );
    const { items } = body as { items: { metadata: { name: string } }[] };
    expect(items.map(item => item.metadata.name)).toEqual(['switched-off']);
  });

  it('keep status and spec apart', async () => {
    const spec = { source: SOURCE, rules: [{ name: 'a', action: 'Preserve' }] };
    const withStatus = { ...policy('apart', spec), status: { observedGeneration: 9 } };
    const made = await create(server.client, POLICIES, withStatus);
    expect(made.status).toBe(201);
    expect(made.body).not.toHaveProperty('status');
    const { body } = await server.client.request('PATCH', `${POLICIES}/apart/status`, {
      body: { spec: { priority: 1 }, status: { observedGeneration: 1 } },
      contentType: 'application/merge-patch+json',
    });
    expect(body).toMatchObject({ spec: { priority: 500 }, status: { observedGeneration: 1 } });
  });

  it('refuse a bad change, and leave the policy as it was', async () => {
    const spec = { source: SOURCE, rules: [{ name: 'a', action: 'Preserve' }] };
    expect((await create(server.client, POLICIES, policy('changed', spec))).status).toBe(201);
    const refused = await server.client.request('PATCH', `${POLICIES}/changed`, {
      body: { spec: { rules: [{ name: 'a', action: 'SNAT' }] } },
      contentType: 'application/merge-patch+json',
    });
    expect(refused.status).toBe(422);
    expect(refusalOf(refused).message).toContain('spec.rules[0].snat: Required value');
    const { body } = await server.client.request('GET', `${POLICIES}/changed`);
    expect(body).toMatchObject({ metadata: { generation: 1 }, spec: { rules: [{ action: 'Preserve' }] } });
  });

  describe('at the limits', () => {
    const many = <T>(count: number, make: (i: number) => T): T[] =>
      Array.from({ length: count }, (_, i) => make(i));

    /** Rules, destinations of each and exceptions of each, over distinct networks. */
    const large = (rules: number, destinations: number, exceptions: number): Spec => ({
      source: SOURCE,
      rules: many(rules, r => ({
        name: `rule-${r}`,
        action: 'Preserve',
        to: many(destinations, d => ({
          ipBlock: { cidr: `10.${r}.${d}.0/24`, except: many(exceptions, e => `10.${r}.${d}.${e * 8}/29`) },
        })),
      })),
    });

    // 16 exceptions each make an object of 1.3 MB, of the 1.5 MiB that etcd takes.
    it.each([8, 16])('take 64 rules with 64 destinations with %i exceptions', async exceptions => {
      const made = await create(
        server.client,
        POLICIES,
        policy(`large-${exceptions}`, large(64, 64, exceptions)),
      );
      expect(made.status, refusalOf(made).message).toBe(201);
    });

    it('find the one fault in the last exception of as many', async () => {
      const spec = large(64, 64, 8) as { rules: { to: { ipBlock: { except: string[] } }[] }[] } & Spec;
      spec.rules[63]?.to[63]?.ipBlock.except.splice(7, 1, '10.63.62.0/29');
      const refused = await create(server.client, POLICIES, policy('large-bad', spec));
      expect(refused.status).toBe(422);
      expect(refusalOf(refused).message).toContain(
        'spec.rules[63].to[63].ipBlock.except: Invalid value: every network of except must lie inside 10.63.63.0/24',
      );
    });

    it.each([
      ['rules', large(65, 1, 0), 'spec.rules: Too many: 65: must have at most 64 items'],
      ['destinations', large(1, 65, 1), 'spec.rules[0].to: Too many: 65: must have at most 64 items'],
      [
        'exceptions',
        large(1, 1, 17),
        'spec.rules[0].to[0].ipBlock.except: Too many: 17: must have at most 16 items',
      ],
    ])('refuse one more of the %s', async (what, spec, message) => {
      const refused = await create(server.client, POLICIES, policy(`too-many-${what}`, spec));
      expect(refused.status).toBe(422);
      expect(refusalOf(refused).message).toContain(message);
    });
  });
});
