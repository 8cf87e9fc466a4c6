// From the objects of the API to packets on the wire, and back to what the objects' status says.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
const POD6 = 'fd00:244::1:5';
const FAR6 = '2001:4860:4860::8888';

interface Status {
  readonly observedGeneration?: number;
  readonly conditions?: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
  }[];
  readonly nodes?: { readonly summary: string };
}

describe('objects, packets, status', () => {
  let lab: Lab;
  let a: LabNode;
  let b: LabNode;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    lab = await openLab({}, signal);
    await lab.startOperator();
    a = await lab.addNode('worker-a', { labels: { zone: 'a' } });
    b = await lab.addNode('worker-b', { labels: { zone: 'b' }, backend: 'legacy' });
  });
  afterAll(() => lab?.close());

  const statusOf = async (name: string): Promise<Status> =>
    ((await lab.cluster.get('MasqPolicy', name)) as { status?: Status } | undefined)?.status ?? {};

  /** Waits until the status of the present generation says so. */
  const says = async (name: string, type: string, status: string): Promise<Status> => {
    let last: unknown;
    return waitFor(
      async () => {
        const object = await lab.cluster.get('MasqPolicy', name);
        const now = (object as { status?: Status } | undefined)?.status;
        last = now;
        const { generation } = (object?.metadata ?? {}) as { generation?: number };
        const current = now?.observedGeneration === generation;
        const found = now?.conditions?.find(condition => condition.type === type);
        return current && found?.status === status ? now : undefined;
      },
      { what: `${name} to be ${type}=${status}`, limitMs: 20_000, detail: () => JSON.stringify(last) },
      signal,
    );
  };

  it('does nothing without pools', async () => {
    expect(await a.seen({ source: POD, destination: FAR })).toBe(POD);
  });

  it('masquerades a pool with natOutgoing, in both families, on all nodes', async () => {
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
    await lab.cluster.apply(pool('main6', 'fd00:244::/48'));
    await a.sees({ source: POD, destination: FAR }, a.address[4]);
    await b.sees({ source: POD, destination: FAR }, b.address[4]);
    await a.sees({ source: POD6, destination: FAR6 }, a.address[6]);
    await b.sees({ source: POD6, destination: FAR6 }, b.address[6]);
  });

  it('follows a policy that is made, changed and deleted', async () => {
    const generations = async (): Promise<readonly unknown[]> =>
      (await lab.cluster.list('MasqNode')).map(
        ({ metadata }) => (metadata as { generation?: number }).generation,
      );
    const before = await generations();
    await lab.cluster.apply(policy('keep', [{ to: [block('8.8.0.0/16')], action: 'Preserve' }]));
    await a.sees({ source: POD, destination: FAR }, POD);
    await b.sees({ source: POD, destination: FAR }, POD);
    const made = await says('keep', 'Programmed', 'True');
    expect(made.nodes?.summary).toBe('2/2');
    // One plan was written, whatever the number of nodes.
    expect(await generations()).toEqual(before);
    await lab.cluster.apply(
      policy('keep', [{ to: [block('8.8.0.0/16')], action: 'SNAT', snat: { addresses: ['198.51.100.7'] } }]),
    );
    await a.sees({ source: POD, destination: FAR }, '198.51.100.7');
    await b.sees({ source: POD, destination: FAR }, '198.51.100.7');
    expect((await says('keep', 'Programmed', 'True')).observedGeneration).toBe(2);
    await lab.cluster.remove('MasqPolicy', 'keep');
    await a.sees({ source: POD, destination: FAR }, a.address[4]);
    await b.sees({ source: POD, destination: FAR }, b.address[4]);
    expect(await statusOf('keep')).toEqual({});
  });

  it('follows natOutgoing when it is toggled', async () => {
    for (const [natOutgoing, address] of [
      [false, POD],
      [true, a.address[4]],
    ] as const) {
      await lab.cluster.patch('IPPool/v1', 'main', { spec: { natOutgoing } });
      await a.sees({ source: POD, destination: FAR }, address);
    }
  });

  it('follows pools that are nested, renamed and deleted', async () => {
    const nested = '10.244.9.9';
    await lab.cluster.apply(pool('nested', '10.244.9.0/24', { natOutgoing: false }));
    await a.sees({ source: nested, destination: FAR }, nested);
    expect(await a.seen({ source: POD, destination: FAR })).toBe(a.address[4]);
    // A pool is renamed by one of another name; then the first one goes.
    await lab.cluster.apply(pool('renamed', '10.244.9.0/24', { natOutgoing: false }));
    await lab.cluster.remove('IPPool/v1', 'nested');
    await pools(['main', 'main6', 'renamed']);
    expect(await a.seen({ source: nested, destination: FAR })).toBe(nested);
    await lab.cluster.remove('IPPool/v1', 'renamed');
    await a.sees({ source: nested, destination: FAR }, a.address[4]);
    await lab.cluster.apply(pool('other', '10.245.0.0/16'));
    await a.sees({ source: '10.245.1.5', destination: FAR }, a.address[4]);
    // Really deleted is gone at once.
    await lab.cluster.remove('IPPool/v1', 'other');
    await a.sees({ source: '10.245.1.5', destination: FAR }, '10.245.1.5');
  });

  it('follows the labels, annotations and addresses of nodes', async () => {
    const rule = {
      to: [block('8.8.0.0/16')],
      action: 'SNAT',
      snat: { addressFrom: { nodeAnnotation: 'example.com/egress' } },
    };
    await lab.cluster.apply(policy('zone-b', [rule], { nodeSelector: { matchLabels: { zone: 'b' } } }));
    expect((await says('zone-b', 'ResolvedRefs', 'False')).conditions).toContainEqual(
      expect.objectContaining({ type: 'ResolvedRefs', reason: 'NodeAddressMissing' }),
    );
    const annotations = { 'example.com/egress': '198.51.100.7' };
    await lab.cluster.patch('Node', 'worker-b', { metadata: { annotations } });
    await b.sees({ source: POD, destination: FAR }, '198.51.100.7');
    expect((await says('zone-b', 'Programmed', 'True')).nodes?.summary).toBe('1/1');
    expect(await a.seen({ source: POD, destination: FAR })).toBe(a.address[4]);
    await lab.cluster.patch('Node', 'worker-b', { metadata: { labels: { zone: 'c' } } });
    await b.sees({ source: POD, destination: FAR }, b.address[4]);
    await lab.cluster.patch('Node', 'worker-a', { metadata: { labels: { zone: 'b' }, annotations } });
    await a.sees({ source: POD, destination: FAR }, '198.51.100.7');
    await lab.cluster.remove('MasqPolicy', 'zone-b');
    await a.sees({ source: POD, destination: FAR }, a.address[4]);

    await lab.cluster.apply(policy('to-nodes', [{ to: [{ scope: 'Nodes' }], action: 'Preserve' }]));
    await says('to-nodes', 'Programmed', 'True');
    expect(await a.seen({ source: POD, destination: FAR })).toBe(a.address[4]);
    const addresses = [
      { type: 'InternalIP', address: b.address[4] },
      { type: 'ExternalIP', address: FAR },
    ];
    await lab.cluster.patch('Node', 'worker-b', { status: { addresses } }, 'status');
    await a.sees({ source: POD, destination: FAR }, POD);
    await lab.cluster.remove('MasqPolicy', 'to-nodes');
    await a.sees({ source: POD, destination: FAR }, a.address[4]);
  });

  it('follows nodes that come and go', async () => {
    const c = await lab.addNode('worker-c');
    await c.sees({ source: POD, destination: FAR }, c.address[4]);
    await lab.cluster.apply(policy('three', [{ to: [block('9.9.9.0/24')], action: 'Preserve' }]));
    expect((await says('three', 'Programmed', 'True')).nodes?.summary).toBe('3/3');
    await lab.cluster.remove('Node', 'worker-c');
    await waitFor(
      async () => ((await lab.cluster.get('MasqNode', 'worker-c')) === undefined ? true : undefined),
      { what: 'the MasqNode to go with its Node', limitMs: 10_000 },
    );
    await waitFor(async () => ((await statusOf('three')).nodes?.summary === '2/2' ? true : undefined), {
      what: 'two nodes to be counted',
      limitMs: 15_000,
    });
    // Rules stay where nobody says otherwise.
    expect(await c.seen({ source: POD, destination: FAR })).toBe(c.address[4]);
    await lab.cluster.remove('MasqPolicy', 'three');
  });

  it('says what is wrong with a policy that admission lets pass, and leaves the others alone', async () => {
    await lab.cluster.apply(policy('fine', [{ to: [block('9.9.9.0/24')], action: 'Preserve' }]));
    // An object may be older than a rule of its CRD.
    const crd = (await lab.cluster.get(
      'CustomResourceDefinition',
      'masqpolicies.natoutgoing.io',
    )) as unknown as {
      readonly spec: { readonly versions: readonly object[] };
    };
    const versions = JSON.parse(
      JSON.stringify(crd.spec.versions, (key, value: unknown) =>
        key === 'x-kubernetes-validations' ? undefined : value,
      ),
    ) as object[];
    await lab.cluster.patch('CustomResourceDefinition', 'masqpolicies.natoutgoing.io', {
      spec: { versions },
    });
    const twice = {
      to: [block('9.9.8.0/24')],
      action: 'SNAT',
      snat: { addresses: ['198.51.100.7', '198.51.100.8'] },
    };
    await waitFor(() => lab.cluster.apply(policy('refused', [twice])).catch(() => undefined), {
      what: 'the rule to be forgotten',
      limitMs: 10_000,
    });
    const { versions: strict } = crd.spec;
    await lab.cluster.patch('CustomResourceDefinition', 'masqpolicies.natoutgoing.io', {
      spec: { versions: strict },
    });
    const { conditions } = await says('refused', 'Accepted', 'False');
    expect(conditions?.find(({ type }) => type === 'Accepted')).toMatchObject({
      reason: 'Invalid',
      message: expect.stringContaining('spec.rules[0].snat.addresses'),
    });
    expect((await says('fine', 'Programmed', 'True')).nodes?.summary).toBe('2/2');
    await lab.cluster.remove('MasqPolicy', 'refused');
    await lab.cluster.remove('MasqPolicy', 'fine');
  });

  it('names a pool that cannot be read in an Event and in the status of whoever means it', async () => {
    await lab.cluster.apply(policy('all-pools', [{ to: [{ ipPools: {} }], action: 'Preserve' }]));
    await says('all-pools', 'Accepted', 'True');
    // A CRD without a format takes any text, as Calico's own did for years.
    await lab.cluster.apply(pool('broken', '::ffff:10.1.0.0/112'));
    const { conditions } = await says('all-pools', 'ResolvedRefs', 'False');
    expect(conditions?.find(({ type }) => type === 'ResolvedRefs')).toMatchObject({
      reason: 'InvalidIPPool',
      message: expect.stringContaining('IPPool broken'),
    });
    const event = await waitFor(
      async () =>
        (await lab.cluster.list('Event')).find(
          it => (it as unknown as { reason: string }).reason === 'InvalidIPPool',
        ),
      { what: 'an Event', limitMs: 10_000 },
    );
    expect(event).toMatchObject({ regarding: { kind: 'IPPool', name: 'broken' }, type: 'Warning' });
    await lab.cluster.remove('IPPool/v1', 'broken');
    await says('all-pools', 'ResolvedRefs', 'True');
    await lab.cluster.remove('MasqPolicy', 'all-pools');
  });

  it('has no verb denied on the way, and wrote nothing of others', async () => {
    const entries = await lab.cluster.audit();
    const ours = entries.filter(({ user }) => user.startsWith('system:serviceaccount:natoutgoing:'));
    expect(ours.length).toBeGreaterThan(50);
    expect(ours.filter(({ code }) => code === 401 || code === 403)).toEqual([]);
    const writes = ours.filter(({ verb }) => !['get', 'list', 'watch'].includes(verb));
    expect(new Set(writes.map(({ resource }) => resource))).toEqual(
      new Set(['masqplans', 'masqnodes', 'masqpolicies', 'leases', 'events']),
    );
    expect(
      writes.filter(({ resource, subresource }) => resource === 'masqpolicies' && subresource !== 'status'),
    ).toEqual([]);
  });

  const pools = (names: readonly string[]): Promise<true> =>
    waitFor(
      async () => {
        const there = (await lab.cluster.list('IPPool/v1')).map(({ metadata }) => metadata.name);
        return there.toSorted().join() === names.join() ? true : undefined;
      },
      { what: `pools ${names.join()}`, limitMs: 5_000 },
    );
});
