// Two operators: one leads, whatever happens to it, and what it lost the right to write is not written.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { block, policy, pool } from '../kernel/scene.ts';
import { type Lab, type LabNode, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';
/** Longer than the Lease and the looks between. */
const TAKE_OVER_MS = 30_000;

describe('two operators', () => {
  let lab: Lab;
  let node: LabNode;
  const signal = new AbortController().signal;

  beforeEach(async () => {
    lab = await openLab({}, signal);
    node = await lab.addNode('worker-1');
    await lab.cluster.apply(pool('main', '10.244.0.0/16'));
  });
  afterEach(() => lab?.close());

  const keep = (): object => policy('keep', [{ to: [block('8.8.0.0/16')], action: 'Preserve' }]);
  const holder = async (): Promise<string> => {
    const lease = (await lab.cluster.get('Lease', 'natoutgoing-operator')) as unknown as {
      spec: { holderIdentity: string };
    };
    return lease.spec.holderIdentity;
  };

  it('the second takes over at once when the first ends, and when it is killed mid-write', async () => {
    const first = await lab.startOperator();
    const second = await lab.startOperator({ waits: true });
    await node.sees({ source: POD, destination: FAR }, node.address[4]);
    await first.end('SIGTERM');
    // Given back, not waited for.
    await second.logged('leads now', 8_000);
    const third = await lab.startOperator({ waits: true });
    const changes = (async () => {
      for (let i = 0; i < 40; i++) {
        await lab.cluster.apply(policy(`p-${i}`, [{ to: [block(`9.9.${i}.0/24`)], action: 'Preserve' }]));
        if (i === 20) second.signal('SIGKILL');
      }
    })();
    await changes;
    await third.logged('leads now', TAKE_OVER_MS);
    await lab.cluster.apply(keep());
    await node.sees({ source: POD, destination: FAR }, POD);
    for (const i of [0, 20, 39])
      expect(await node.seen({ source: POD, destination: `9.9.${i}.1` })).toBe(POD);
  });

  it('one that was stopped past its Lease and goes on writes nothing', async () => {
    const first = await lab.startOperator();
    const second = await lab.startOperator({ waits: true });
    await node.sees({ source: POD, destination: FAR }, node.address[4]);
    const stopped = await holder();
    first.signal('SIGSTOP');
    await second.logged('leads now', TAKE_OVER_MS);
    expect(await holder()).not.toBe(stopped);
    // What the first would write, if it did not know that its time is over.
    await lab.cluster.apply(keep());
    await node.sees({ source: POD, destination: FAR }, POD);
    const prober = await node.world.startProbing(
      [{ from: 'pod', source: POD, destination: FAR, protocol: 'udp', destinationPort: 443 }],
      { perSecond: 200 },
    );
    const from = Date.now();
    first.signal('SIGCONT');
    await first.logged('leadership is lost', 10_000);
    // One after the other is written: two changes that cancel each other in one burst make no write at all.
    for (const [writes, natOutgoing] of [false, true].entries()) {
      await lab.cluster.patch('IPPool/v1', 'main', { spec: { natOutgoing } });
      await waitFor(async () => ((await plansWritten(from)).length > writes ? true : undefined), {
        what: `the leader to write natOutgoing ${natOutgoing}`,
        limitMs: 10_000,
      });
    }
    const [kept] = await prober.stop();
    expect([...(kept?.seen.keys() ?? [])]).toEqual([POD]);
    const writes = (await lab.cluster.audit()).filter(
      ({ credential, verb, at }) =>
        credential === first.credential &&
        verb !== 'list' &&
        verb !== 'watch' &&
        verb !== 'get' &&
        at >= from,
    );
    expect(writes).toEqual([]);
    const before = (await lab.cluster.audit()).filter(
      ({ credential, resource }) => credential === first.credential && resource === 'masqplans',
    );
    expect(before.some(({ verb }) => verb === 'patch')).toBe(true);
  });

  const plansWritten = async (from: number): Promise<readonly unknown[]> =>
    (await lab.cluster.audit()).filter(
      ({ resource, verb, at }) => resource === 'masqplans' && verb === 'patch' && at > from,
    );
});
