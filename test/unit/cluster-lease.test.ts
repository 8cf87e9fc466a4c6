import { describe, expect, it } from 'vitest';
import { settle, virtualClock } from './cluster-fake.ts';
import { contender, leaseServer } from './cluster-lease-fake.ts';

/** The first leads, and the second waits. */
async function two(more: Parameters<typeof contender>[3] = {}) {
  const [server, clock] = [leaseServer(), virtualClock()];
  const a = contender('a', server, clock, more);
  await settle();
  const b = contender('b', server, clock);
  await settle();
  expect([a.leads(), b.leads()]).toEqual([true, false]);
  return { server, clock, a, b };
}

describe('a lease', () => {
  it('is made by the first, and renewed', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    await settle();
    expect(server.lease).toMatchObject({
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name: 'the-lease', namespace: 'ns', resourceVersion: '1' },
      spec: {
        holderIdentity: 'a',
        leaseDurationSeconds: 15,
        acquireTime: '2026-01-01T00:00:00.000000Z',
        renewTime: '2026-01-01T00:00:00.000000Z',
        leaseTransitions: 0,
      },
    });
    await clock.advance(60_000);
    expect(server.lease.spec).toMatchObject({
      acquireTime: '2026-01-01T00:00:00.000000Z',
      renewTime: '2026-01-01T00:01:00.000000Z',
      leaseTransitions: 0,
    });
    expect([a.leaderships.length, a.leads(), a.leaderships[0]?.signal.aborted]).toEqual([1, true, false]);
  });

  it('passes on when its holder is not heard of for 15 s, whatever the clocks of the two say', async () => {
    const t = await two({ wall: () => new Date('2000-01-01T00:00:00Z') });
    await t.clock.advance(60_000);
    expect(t.b.leads()).toBe(false);
    const died = t.clock.now();
    t.a.freeze();
    for (let i = 0; i < 100 && !t.b.leads(); i++) await t.clock.advance(500);
    // Seen last at most 2 s before or after, and looked at every 2 s.
    expect(t.clock.now() - died).toBeGreaterThan(13_000);
    expect(t.clock.now() - died).toBeLessThanOrEqual(19_000);
    expect(t.server.lease.spec).toMatchObject({ holderIdentity: 'b', leaseTransitions: 1 });
    t.a.thaw();
    await t.clock.advance(5_000);
    expect([t.a.leads(), t.b.leads(), t.a.leaderships[0]?.signal.aborted]).toEqual([false, true, true]);
  });

  it('is given back at a clean stop, so that the other begins at once', async () => {
    const t = await two();
    await t.clock.advance(10_500);
    t.a.stop.abort(new Error('bye'));
    await t.a.done;
    expect(t.server.lease.spec).toMatchObject({ holderIdentity: '', leaseDurationSeconds: 1 });
    expect(t.a.leaderships[0]?.signal.aborted).toBe(true);
    await t.clock.advance(2_000);
    expect(t.b.leads()).toBe(true);
    t.b.stop.abort(new Error('bye'));
    await t.b.done;
    expect(t.clock.sleepers).toBe(0);
  });

  it('is given back when the work under it has ended, and not before', async () => {
    let finish: () => void = () => {};
    const t = await two({ work: () => new Promise(resolve => void (finish = resolve)) });
    t.a.stop.abort(new Error('bye'));
    await t.clock.advance(5_000);
    expect(t.server.lease.spec.holderIdentity).toBe('a');
    finish();
    await t.a.done;
    expect(t.server.lease.spec.holderIdentity).toBe('');
  });

  it('is left to time out when the work under it does not end', async () => {
    const t = await two({ work: () => new Promise(() => {}) });
    t.a.stop.abort(new Error('bye'));
    await t.clock.advance(10_000);
    await t.a.done;
    expect([t.server.lease.spec.holderIdentity, t.b.leads()]).toEqual(['a', false]);
    await t.clock.advance(10_000);
    expect(t.b.leads()).toBe(true);
  });

  it.each(['unreachable', 'refused', 'answer lost'] as const)(
    'is lost 10 s after the last renewal began when the API is %s, at that moment, and got back later',
    async fault => {
      const [server, clock] = [leaseServer(), virtualClock()];
      const a = contender('a', server, clock);
      await clock.advance(4_000);
      a.fault = fault;
      // Renewed at 0, 2 and 4 s.
      await clock.advance(9_999);
      expect([a.leads(), a.leaderships[0]?.signal.aborted]).toEqual([true, false]);
      await clock.advance(1);
      expect([a.leads(), a.leaderships[0]?.signal.aborted]).toEqual([false, true]);
      await clock.advance(20_000);
      a.fault = 'none';
      await clock.advance(10_000);
      expect([a.leads(), a.leaderships.length, a.leaderships[0]?.isValid()]).toEqual([true, 2, false]);
      const said = a.log.lines.filter(({ message }) => message === 'the lease could not be read or written');
      expect(said.length).toBeLessThanOrEqual(2);
    },
  );

  it('is not valid right after a stop of the process, before any timer has run', async () => {
    const t = await two();
    t.clock.jump(10_001);
    expect([t.a.leads(), t.a.leaderships[0]?.signal.aborted]).toEqual([false, false]);
    await t.clock.advance(0);
    expect(t.a.leaderships[0]?.signal.aborted).toBe(true);
  });

  it('is a new one when it is got again after such a stop', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    await settle();
    clock.jump(60_000);
    await clock.advance(0);
    expect([a.leads(), a.leaderships.length, a.leaderships[0]?.isValid()]).toEqual([true, 2, false]);
    expect(server.lease.spec.leaseTransitions).toBe(0);
  });

  it('is not led by an answer that comes when its time is over', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    server.onNextWrite(() => a.freeze());
    await settle();
    clock.jump(10_000);
    a.thaw();
    await settle();
    expect([a.leaderships.length, server.lease.spec.holderIdentity]).toEqual([0, 'a']);
    await clock.advance(2_000);
    expect(a.leads()).toBe(true);
  });

  it('is a new one when the answer to a renewal comes after its time', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    await settle();
    a.fault = 'unreachable';
    await clock.advance(8_000);
    a.fault = 'none';
    server.onNextWrite(() => a.freeze());
    await clock.advance(1_500);
    expect(a.leads()).toBe(true);
    clock.jump(1_000);
    expect(a.leads()).toBe(false);
    a.thaw();
    await settle();
    expect([a.leads(), a.leaderships.length, a.leaderships[0]?.isValid()]).toEqual([true, 2, false]);
    expect(a.leaderships[0]?.signal.aborted).toBe(true);
  });

  it('counts from when a renewal was sent, not from its answer', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    server.onNextWrite(() => a.freeze());
    await settle();
    await clock.advance(1_500);
    a.thaw();
    await settle();
    expect(a.leads()).toBe(true);
    a.fault = 'unreachable';
    await clock.advance(8_499);
    expect(a.leads()).toBe(true);
    await clock.advance(1);
    expect(a.leads()).toBe(false);
  });

  it('that was deleted is not made by who held it once and does not know who does', async () => {
    const t = await two();
    t.a.freeze();
    await t.clock.advance(25_000);
    expect(t.b.leads()).toBe(true);
    t.server.remove();
    t.a.thaw();
    await t.clock.advance(0);
    expect([t.a.leads(), t.b.leads()]).toEqual([false, true]);
    await t.clock.advance(5_000);
    expect([t.a.leads(), t.b.leads()]).toEqual([false, true]);
  });

  it('stays when somebody else changes the object, and is lost when somebody else takes it', async () => {
    const t = await two();
    for (let i = 0; i < 5; i++) {
      t.server.label();
      await t.clock.advance(1_000);
    }
    expect([t.a.leaderships.length, t.a.leads(), t.b.leads()]).toEqual([1, true, false]);
    await t.clock.advance(4_000);
    const { lease } = t.server;
    expect(lease).toMatchObject({ metadata: { labels: { a: 'b' } }, spec: { holderIdentity: 'a' } });
    t.server.put({ ...lease, spec: { ...lease.spec, holderIdentity: 'c' } });
    await t.clock.advance(2_000);
    expect([t.a.leads(), t.a.leaderships[0]?.signal.aborted]).toEqual([false, true]);
  });

  it('that somebody deleted is made again by its holder', async () => {
    const t = await two();
    for (let i = 0; i < 10; i++) {
      t.server.remove();
      await t.clock.advance(2_000);
    }
    expect([t.a.leaderships.length, t.a.leads(), t.b.leads()]).toEqual([1, true, false]);
  });

  it('that says it is longer than ours is waited for', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    server.put({ metadata: {}, spec: { holderIdentity: 'old', leaseDurationSeconds: 60 } });
    const b = contender('b', server, clock);
    await clock.advance(59_000);
    expect(b.leads()).toBe(false);
    await clock.advance(3_000);
    expect(b.leads()).toBe(true);
  });

  it.each([undefined, 1_000_000_000])(
    'that says nonsense of its length (%s) is waited for as ours',
    async seconds => {
      const [server, clock] = [leaseServer(), virtualClock()];
      server.put({ metadata: {}, spec: { holderIdentity: 'old', leaseDurationSeconds: seconds } });
      const b = contender('b', server, clock);
      await clock.advance(17_000);
      expect(b.leads()).toBe(true);
    },
  );

  it('that may not be read is said once', async () => {
    const [server, clock] = [leaseServer(), virtualClock()];
    const a = contender('a', server, clock);
    a.fault = 'refused';
    await clock.advance(60_000);
    expect(a.log.lines.map(({ message }) => message)).toEqual(['the lease could not be read or written']);
    a.fault = 'none';
    await clock.advance(2_000);
    expect(a.log.lines.slice(1).map(({ message }) => message)).toEqual([
      'leads now',
      'the lease can be read and written again',
    ]);
  });
});
