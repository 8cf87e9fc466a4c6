// MasqPlan and MasqNode, which the operator and the appliers write: their CRDs on a real API server.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import type { ApiResponse } from './client.ts';
import { create, installCrds, readObjects, refusalOf, refusedFields } from './objects.ts';

const GROUP = '/apis/natoutgoing.io/v1alpha1';

interface Spec {
  readonly [field: string]: unknown;
}

const RULE: Spec = { name: 'bank', to: 'dst-1', action: 'Preserve', portAllocation: 'FullyRandom' };

const POLICY: Spec = {
  name: 'payments',
  dryRun: false,
  source: 'src-1',
  rules: [RULE],
  defaultAction: 'Continue',
  connectionPolicy: 'Keep',
};

const SNAT_RULE: Spec = {
  ...RULE,
  ports: [{ protocol: 'TCP', port: 443, endPort: 443 }, { protocol: 'ICMP' }],
  outInterfaces: ['eth+'],
  action: 'SNAT',
  snat: { nodeValue: 'annotation:example.com/egress-ip' },
  portRange: { start: 20000, end: 39999 },
};

const FIRST_PART: Spec = {
  schemaVersion: 1,
  plan: 'plan-1',
  part: 0,
  of: 1,
  contentHash: '0123456789abcdef',
  sets: [
    { id: 'src-1', ipv4: ['10.244.0.0/16', '!10.244.8.0/24'], ipv6: ['fd00::/64'] },
    { id: 'dst-1', ipv4: ['192.0.2.0/24'] },
  ],
  policies: [{ ...POLICY, rules: [RULE, SNAT_RULE] }],
  poolDefault: {
    source: 'src-1',
    spared: 'src-1',
    sparedNodes: 'nodes',
    outInterface: 'eth0',
    portRange: { start: 1024, end: 65535 },
    addresses: { ipv4: '198.51.100.1' },
    portAllocation: 'FullyRandom',
  },
  kubeMark: 0x4000,
  tunnelInterfaces: ['tunl0', 'vxlan.calico'],
};

const LATER_PART: Spec = {
  schemaVersion: 1,
  plan: 'plan-1',
  part: 1,
  of: 2,
  sets: [{ id: 'src-1', ipv4: ['10.0.0.0/8'] }],
};

const withPolicy = (members: Spec): Spec => ({ ...FIRST_PART, policies: [{ ...POLICY, ...members }] });
const withRule = (members: Spec): Spec => withPolicy({ rules: [{ ...RULE, ...members }] });

describe('what the operator and the appliers write, on a real API server', () => {
  let server: ApiServer;

  beforeAll(async () => {
    const signal = new AbortController().signal;
    server = await startApiServer({}, signal);
    await installCrds(server.client, await readObjects('crds'), signal);
  });
  afterAll(() => server?.close());

  const send = (kind: 'MasqPlan' | 'MasqNode', name: string, spec: Spec): Promise<ApiResponse> =>
    create(server.client, `${GROUP}/${kind.toLowerCase()}s`, {
      apiVersion: 'natoutgoing.io/v1alpha1',
      kind,
      metadata: { name },
      spec,
    });

  it.each([
    ['a plan in one part', 'MasqPlan', FIRST_PART],
    ['a later part', 'MasqPlan', LATER_PART],
    ['a plan without policies', 'MasqPlan', { ...FIRST_PART, policies: [], tunnelInterfaces: [] }],
    ['a node', 'MasqNode', { plan: 'plan-1' }],
    [
      'a node with values of its own',
      'MasqNode',
      {
        plan: 'plan-1',
        addresses: { 'annotation:example.com/egress-ip': { ipv4: '192.0.2.1', ipv6: '2001:db8::1' } },
      },
    ],
  ] as const)('accepts %s, and keeps it whole', async (name, kind, spec) => {
    const response = await send(kind, name.replaceAll(' ', '-'), spec);
    expect(response.status, refusalOf(response).message).toBe(201);
    expect((response.body as { spec: Spec }).spec).toEqual(spec);
  });

  const node = (members: Spec): Spec => ({ plan: 'plan-1', ...members });

  it.each([
    ['a part beyond the last', 'MasqPlan', { ...LATER_PART, of: 1 }, 'spec'],
    ['a first part without a hash', 'MasqPlan', { ...FIRST_PART, contentHash: undefined }, 'spec'],
    ['a later part with policies', 'MasqPlan', { ...LATER_PART, policies: [] }, 'spec'],
    ['a hash that is none', 'MasqPlan', { ...FIRST_PART, contentHash: 'xyz' }, 'spec.contentHash'],
    ['two sets of one id', 'MasqPlan', { ...FIRST_PART, sets: [{ id: 'a' }, { id: 'a' }] }, 'spec.sets[1]'],
    [
      'an id that an ipset cannot have',
      'MasqPlan',
      { ...FIRST_PART, sets: [{ id: 'a'.repeat(21) }] },
      'spec.sets[0].id',
    ],
    [
      'an entry with more lines',
      'MasqPlan',
      { ...LATER_PART, sets: [{ id: 'a', ipv4: ['10.0.0.0/8\nx'] }] },
      'spec.sets[0].ipv4[0]',
    ],
    [
      'an address of the other family',
      'MasqPlan',
      { ...LATER_PART, sets: [{ id: 'a', ipv4: ['fd00::/8'] }] },
      'spec.sets[0].ipv4[0]',
    ],
    ['SNAT without an address', 'MasqPlan', withRule({ action: 'SNAT' }), 'spec.policies[0].rules[0]'],
    [
      'an address without SNAT',
      'MasqPlan',
      withRule({ snat: { nodeValue: 'a' } }),
      'spec.policies[0].rules[0]',
    ],
    [
      'an interface with a blank',
      'MasqPlan',
      withRule({ outInterfaces: ['eth0 -j'] }),
      'spec.policies[0].rules[0].outInterfaces[0]',
    ],
    [
      'an action that is none',
      'MasqPlan',
      withRule({ action: 'Accept' }),
      'spec.policies[0].rules[0].action',
    ],
    ['a policy without rules', 'MasqPlan', withPolicy({ rules: undefined }), 'spec.policies[0].rules'],
    ['a mark of 0', 'MasqPlan', { ...FIRST_PART, kubeMark: 0 }, 'spec.kubeMark'],
    ['a node without plan', 'MasqNode', node({ plan: undefined }), 'spec.plan'],
    [
      'an address with a prefix',
      'MasqNode',
      node({ addresses: { a: { ipv4: '192.0.2.1/32' } } }),
      'spec.addresses.a.ipv4',
    ],
    ['an address as text', 'MasqNode', node({ addresses: { a: '192.0.2.1' } }), 'spec.addresses.a'],
  ] as const)('refuses %s', async (name, kind, spec, field) => {
    const response = await send(kind, `bad-${name.toLowerCase().replaceAll(' ', '-')}`, spec);
    expect(response.status).toBe(422);
    expect(refusedFields(response), refusalOf(response).message).toContain(field);
  });

  it('refuses unknown fields', async () => {
    const plan = await send('MasqPlan', 'unknown', withRule({ toPorts: [] }));
    expect(plan.status).toBe(400);
    expect(refusalOf(plan).message).toContain('unknown field "spec.policies[0].rules[0].toPorts"');
    const bad = await send('MasqNode', 'unknown', node({ plans: [] }));
    expect(bad.status).toBe(400);
    expect(refusalOf(bad).message).toContain('unknown field "spec.plans"');
  });

  it('takes a part with 40,000 entries', async () => {
    const ipv4 = Array.from({ length: 40_000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`);
    const response = await send('MasqPlan', 'large', { ...LATER_PART, sets: [{ id: 'src-1', ipv4 }] });
    expect(response.status, refusalOf(response).message).toBe(201);
  });

  it('takes a node status, and finds the nodes of a plan', async () => {
    expect((await send('MasqNode', 'node-a', { plan: 'plan-a' })).status).toBe(201);
    expect((await send('MasqNode', 'node-b', { plan: 'plan-b' })).status).toBe(201);
    const time = '2026-01-01T00:00:00Z';
    const family = { state: 'Programmed', sets: 3, entries: 40, rules: 7, jumpPosition: 1, foreignRules: [] };
    const status = {
      observedGeneration: 1,
      plan: 'plan-a',
      planGeneration: 4,
      contentHash: '0123456789abcdef',
      backend: 'nft',
      families: { ipv4: family, ipv6: { state: 'Failed', error: 'exit code 4' } },
      lastAppliedTime: time,
      lastVerifiedTime: time,
      driftRepairs: 2,
      conditions: [
        { type: 'Ready', status: 'False', reason: 'Failed', message: 'IPv6', lastTransitionTime: time },
      ],
    };
    const patched = await server.client.request(
      'PATCH',
      `${GROUP}/masqnodes/node-a/status?fieldValidation=Strict`,
      {
        body: { status },
        contentType: 'application/merge-patch+json',
      },
    );
    expect(patched.body).toMatchObject({ status });
    const listed = await server.client.request('GET', `${GROUP}/masqnodes?fieldSelector=spec.plan%3Dplan-a`);
    expect(listed.body).toMatchObject({ items: [{ metadata: { name: 'node-a' } }] });
    expect((listed.body as { items: unknown[] }).items).toHaveLength(1);
  });
});
