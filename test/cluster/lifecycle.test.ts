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
    await lab.cluster.apply(policy('keep', [{ to: [block('8.8.0.0/16')], action: 'Preserve' }]));
    await a.sees({ source: POD, destination: FAR }, POD);
    await b.sees({ source: POD, destination: FAR }, POD);
    const made = await says('keep', 'Programmed', 'True');
    expect(made.nodes?.summary).toBe('2/2');
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
});
