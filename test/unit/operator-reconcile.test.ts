// The operator's runs as a whole, with watches and an API that the test moves.
import { describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import { NO_ANSWER } from './operator-support.ts';
import { createWorld, POD_RULE } from './operator-world.ts';

describe('a run', () => {
  it.each(['policies', 'nodes', 'masqNodes', 'masqPlans', 'pools/v1', 'networkSets/v1'] as const)(
    'sends nothing before %s are listed',
    async key => {
      const world = createWorld();
      world.health.set(key, NO_ANSWER);
      const report = await world.run();
      expect(report).toMatchObject({ ready: false, written: 0 });
      expect(report.troubles).toHaveLength(1);
      expect(world.api.sent).toEqual([]);
      expect(world.statuses).toEqual([]);
      world.health.delete(key);
      expect(await world.run()).toMatchObject({ ready: true, written: 4, plans: 1, nodes: 3, policies: 1 });
    },
  );

  it('brings a policy from nothing to being in force, and then is quiet', async () => {
    const world = createWorld();
    await world.live(1_000);
    expect([world.told('p', 'Accepted'), world.told('p', 'Programmed')]).toEqual([
      'True Accepted',
      'False Pending',
    ]);
    world.report();
    await world.live(1_000);
    expect(world.told('p', 'Programmed')).toBe('True Programmed');
    const [sent, told] = [world.api.sent.length, world.statuses.length];
    expect(told).toBeLessThanOrEqual(2);
    // A cluster where nothing happens is left alone, though its other group of Calico's is not served.
    expect(await world.live(3_600_000)).toBe(1);
    expect([world.api.sent.length, world.statuses.length]).toEqual([sent, told]);
  });

  it('is one write for a toggled pool', async () => {
    const world = createWorld(50);
    await world.live(1_000);
    const sent = world.api.sent.length;
    world.pool('blue', { cidr: '10.244.0.0/16', natOutgoing: false });
    await world.live(1_000);
    expect(world.api.sent.length).toBe(sent + 1);
  });

  it('keeps plans when a source fails, and says since when', async () => {
    const world = createWorld();
    await world.live(1_000);
    world.report();
    await world.live(10_000);
    const sent = world.api.sent.length;
    const since = world.clock.now();
    // A kind that vanishes: its objects are what they were.
    world.health.set('pools/v1', {
      listed: true,
      failing: { since, kind: 'gone', reason: 'GET /x: HTTP 404' },
    });
    await world.live(9_000);
    expect(world.told('p', 'Degraded')).toBe('False AsExpected');
    await world.live(20_000);
    expect(world.told('p', 'Degraded')).toBe('True SourceUnavailable');
    expect(JSON.stringify(world.statuses.at(-1))).toContain(`since ${new Date(since).toISOString()}`);
    expect(world.api.sent.length).toBe(sent);
    world.health.delete('pools/v1');
    await world.live(20_000);
    expect(world.told('p', 'Degraded')).toBe('False AsExpected');
  });

  it('removes at once what a pool that is really gone stood for', async () => {
    const world = createWorld();
    await world.live(1_000);
    world.raw.pools.delete('blue');
    await world.live(1_000);
    expect(JSON.stringify([...world.api.stored.masqplans.values()])).not.toContain('10.244.');
  });

  it('names a broken pool in an Event, once, and in the status of who means it', async () => {
    const world = createWorld();
    world.pool('blue', { cidr: '10.244.0.0/99' });
    await world.live(5_000);
    expect(world.events).toMatchObject([
      {
        type: 'Warning',
        reason: 'InvalidIPPool',
        regarding: { kind: 'IPPool', name: 'blue', apiVersion: 'crd.projectcalico.org/v1' },
      },
    ]);
    expect(world.told('p', 'ResolvedRefs')).toBe('False InvalidIPPool');
  });

  it('leaves the others alone when one policy is refused', async () => {
    const world = createWorld();
    world.policy('q', { source: {}, rules: [] });
    await world.live(1_000);
    expect([world.told('q', 'Accepted'), world.told('p', 'Accepted')]).toEqual([
      'False Invalid',
      'True Accepted',
    ]);
    expect(world.api.stored.masqnodes.size).toBe(3);
  });
});

describe('failures', () => {
  it('of writes are tried again with growing pauses, and told', async () => {
    const world = createWorld();
    world.failing.write = () => ({ how: 'silent' });
    const runs = await world.live(120_000);
    // 1 + 2 + 4 + 8 + 16 + 30 + 30 + 30 seconds; a few more runs are about statuses.
    expect(world.api.sent.length).toBeLessThanOrEqual(8);
    expect(runs).toBeLessThan(40);
    expect(world.told('p', 'Degraded')).toBe('True SourceUnavailable');
    delete world.failing.write;
    await world.live(60_000);
    expect(world.api.stored.masqnodes.size).toBe(3);
    expect(world.told('p', 'Degraded')).toBe('False AsExpected');
  });

  it('of writes are not tried with every wake', async () => {
    const world = createWorld();
    world.failing.write = () => ({ how: 'refused' });
    world.failing.status = 'refused';
    for (let i = 0; i < 500; i += 1) {
      await world.run();
      await world.clock.advance(20);
    }
    expect(world.api.sent.length).toBeLessThanOrEqual(5);
    expect(world.statuses.length).toBeLessThanOrEqual(5);
  });

  it('of a write whose answer was lost do no harm', async () => {
    const world = createWorld();
    world.failing.write = () => ({ how: 'lost' });
    await world.live(100_000);
    expect(world.api.stored.masqnodes.size).toBe(3);
    expect(world.told('p', 'Degraded')).toBe('False AsExpected');
  });

  it('end in what is wanted also when another deletes what was just written, before anybody looked', async () => {
    const world = createWorld();
    await world.run();
    world.api.remove('masqnodes', 'n1');
    world.api.show();
    await world.live(30_000);
    expect([...world.api.stored.masqnodes.keys()].sort()).toEqual(['n0', 'n1', 'n2']);
  });

  it.each(['silent', 'conflict', 'notFound', 'refused'] as const)(
    'of a status (%s) are tried again',
    async how => {
      const world = createWorld();
      world.failing.status = how;
      await world.live(10_000);
      expect(world.statuses.length).toBeGreaterThan(1);
      expect(world.statuses.length).toBeLessThanOrEqual(8);
      delete world.failing.status;
      await world.live(40_000);
      expect(world.told('p', 'Accepted')).toBe('True Accepted');
    },
  );

  it('rejects when aborted', async () => {
    const world = createWorld();
    await expect(world.run(AbortSignal.abort(new Error('another one leads')))).rejects.toThrow(
      'another one leads',
    );
    expect(world.api.sent).toEqual([]);
  });
});

describe('statuses', () => {
  it('come though something changes all the time', async () => {
    const world = createWorld();
    world.state.woken = true;
    for (let i = 0; i < 200; i += 1) {
      world.node('busy', { tick: String(i) });
      await world.run();
      world.api.show();
      await world.clock.advance(20);
    }
    expect(world.told('p', 'Accepted')).toBe('True Accepted');
  });

  it('speak of the generation that was planned with, not of one that came meanwhile', async () => {
    const world = createWorld();
    // While the plan is written the author changes the policy, to something that is refused.
    world.failing.write = () => {
      if (world.raw.policies.get('p')?.metadata.generation === 1)
        world.policy('p', { source: {}, rules: [] }, 2);
      return undefined;
    };
    await world.run();
    for (const { status } of world.statuses) {
      const accepted = status.conditions.find(({ type }) => type === 'Accepted')?.status;
      expect([status.observedGeneration, accepted]).not.toEqual([2, 'True']);
    }
    await world.live(5_000);
    expect(world.told('p', 'Accepted')).toBe('False Invalid');
    expect(world.statuses.at(-1)?.status.observedGeneration).toBe(2);
  });

  it('bear that policies come and go while they are told', async () => {
    const world = createWorld();
    for (const name of ['q', 'r', 's']) world.policy(name, { source: { ipPools: {} }, rules: [POD_RULE] });
    world.state.onStatus = () => {
      world.raw.policies.delete('r');
      world.policy('new', { source: { ipPools: {} }, rules: [POD_RULE] });
    };
    await world.run();
    expect(world.statuses.filter(({ name }) => name === 'new')).toEqual([]);
    world.state.onStatus = () => {};
    await world.live(5_000);
    for (const name of ['p', 'q', 's', 'new']) expect(world.told(name, 'Accepted')).toBe('True Accepted');
  });

  it('are few when 2,000 nodes report one after the other', async () => {
    const world = createWorld(2_000);
    await world.live(1_000);
    const [told, sent] = [world.statuses.length, world.api.sent.length];
    const names = [...world.api.stored.masqnodes.keys()];
    for (let i = 0; i < names.length; i += 50) {
      for (const name of names.slice(i, i + 50)) {
        const object = world.api.stored.masqnodes.get(name) as RawObject;
        const plan = [...world.api.stored.masqplans.values()][0]?.['spec'] as { contentHash: string };
        const ready = { type: 'Ready', status: 'True', reason: 'Programmed', message: 'done' };
        world.api.put('masqnodes', name, {
          ...object,
          status: { contentHash: plan.contentHash, conditions: [ready] },
        });
      }
      world.api.show();
      await world.live(1_000);
    }
    await world.live(20_000);
    expect(world.told('p', 'Programmed')).toBe('True Programmed');
    expect(world.statuses.length - told).toBeLessThanOrEqual(12);
    expect(world.api.sent.length).toBe(sent);
  }, 60_000);
});
