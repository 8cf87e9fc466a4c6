// The way to the desired objects against a model of the API: from any earlier state, through conflicts, refusals, lost
// answers and a watch that lags, to exactly what is desired, without a moment that is wrong.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Snapshot } from '../../src/api/model.ts';
import { REMOVE_ANNOTATION } from '../../src/api/own-group.ts';
import { snapshots } from '../oracle/arbitraries.ts';
import { contentOf, contentOfDesired, createHand, desiredFor, guard, settle } from './operator-hand.ts';
import { createModelApi, type Fault, type ModelApi } from './operator-support.ts';

/** Bytes of a part. */
const partBytes = fc.constantFrom(undefined, 60, 200);
const fault: fc.Arbitrary<Fault | undefined> = fc.oneof(
  fc.constant(undefined),
  fc.constantFrom<Fault['how'][]>('conflict', 'refused', 'silent', 'lost').map(how => ({ how })),
);

/** What others did to our objects. */
const meddling = fc.array(
  fc.record({
    plural: fc.constantFrom('masqplans' as const, 'masqnodes' as const),
    which: fc.nat(),
    deed: fc.constantFrom(
      'remove' as const,
      'spoil' as const,
      'unlabel' as const,
      'stranger' as const,
      'point' as const,
      'askRemoval' as const,
    ),
  }),
  { maxLength: 6 },
);
type Meddling = typeof meddling extends fc.Arbitrary<infer T> ? T : never;

function meddle(api: ModelApi, deeds: Meddling): void {
  for (const { plural, which, deed } of deeds) {
    if (deed === 'stranger') {
      api.put(plural, `stranger-${which % 3}`, {
        metadata: {},
        spec: { plan: `plan-old-${which % 2}`, part: which % 3 },
      });
      continue;
    }
    const names = [...api.stored[plural].keys()];
    const name = names[which % Math.max(names.length, 1)];
    const object = name === undefined ? undefined : api.stored[plural].get(name);
    if (name === undefined || object === undefined) continue;
    if (deed === 'remove') api.remove(plural, name);
    if (deed === 'unlabel') api.put(plural, name, { ...object, metadata: {} });
    if (deed === 'askRemoval')
      api.put(plural, name, {
        ...object,
        metadata: { ...object.metadata, annotations: { [REMOVE_ANNOTATION]: 'now' } },
      });
    if (deed === 'spoil')
      api.put(plural, name, { ...object, spec: { ...(object['spec'] as object), sets: [] } });
    if (deed === 'point')
      api.put(plural, name, { ...object, spec: { ...(object['spec'] as object), plan: 'plan-old-0' } });
  }
}

describe('the way there', () => {
  it('ends in exactly the desired objects, whatever was there and whatever fails, and then is quiet', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.tuple(snapshots(), fc.option(snapshots(), { freq: 1 })),
        partBytes,
        partBytes,
        meddling,
        fc.array(fault, { maxLength: 40 }),
        fc.array(
          fc.record({ show: fc.boolean(), stale: fc.nat(12), wait: fc.constantFrom(0, 300, 40_000) }),
          { maxLength: 8 },
        ),
        async ([earlier, other], bytes, moreBytes, deeds, faults, rounds) => {
          const api = createModelApi(() => faults[api.sent.length - start - 1]);
          let start = Number.POSITIVE_INFINITY;
          const wrong: string[] = [];
          const first = createHand(api, guard(api, wrong));
          await settle(first, api, desiredFor(earlier, bytes));
          meddle(api, deeds);
          api.show();
          start = api.sent.length;
          const desired = desiredFor(other ?? earlier, other === null ? bytes : moreBytes);
          // Another process goes on, since ours was killed.
          const hand = createHand(api, guard(api, wrong));
          for (const { show, stale, wait } of rounds) {
            let asked = 0;
            await hand.run(desired, () => (asked += 1) > stale);
            if (show) api.show();
            hand.time.now += wait;
          }
          start = Number.POSITIVE_INFINITY;
          api.show();
          hand.time.now += 40_000;
          await settle(hand, api, desired);
          expect(wrong).toEqual([]);
          expect(contentOf(api)).toEqual(contentOfDesired(desired));
          for (const { metadata } of api.stored.masqnodes.values())
            expect(metadata['annotations']).toBeUndefined();
          for (const { name, contentHash } of desired.plans) {
            expect(api.joined(name)).toMatchObject({ ok: true, contentHash });
          }
          const quiet = await hand.run(desired);
          expect(quiet).toEqual({ written: 0, conflicts: 0, failures: [], interrupted: false });
        },
      ),
      { numRuns: 150 },
    );
  }, 120_000);

  it('writes nothing twice while the watch has not shown it', async () => {
    await fc.assert(
      fc.asyncProperty(snapshots(), partBytes, async (snapshot, bytes) => {
        const api = createModelApi();
        const desired = desiredFor(snapshot, bytes);
        const hand = createHand(api);
        await hand.run(desired);
        const sent = api.sent.length;
        for (let i = 0; i < 3; i += 1) await hand.run(desired);
        expect(api.sent.length).toBe(sent);
        expect(sent).toBe(desired.nodes.length + desired.plans.flatMap(({ parts }) => parts).length);
      }),
      { numRuns: 30 },
    );
  });

  it('points a node at a plan whose parts are older only when all are written', async () => {
    const snapshot = fc.sample(snapshots(), { numRuns: 1, seed: 7 })[0] as Snapshot;
    const api = createModelApi(write =>
      write.verb === 'apply' && write.object.name.endsWith('-1') ? { how: 'refused' } : undefined,
    );
    const report = await createHand(api).run(desiredFor(snapshot, 20));
    expect(report.failures.length).toBeGreaterThan(0);
    expect([...api.stored.masqnodes]).toEqual([]);
    expect([...api.stored.masqplans.keys()].filter(name => /^plan-[^-]*$/.test(name))).toEqual([]);
  });
});

const manyNodes = (count: number, natOutgoing: boolean): Snapshot => ({
  pools: [
    {
      name: 'p',
      labels: {},
      cidr: { family: 4, base: 0x0af40000n, prefix: 16 },
      natOutgoing,
      loadBalancerOnly: false,
    },
  ],
  networkSets: [],
  nodes: Array.from({ length: count }, (_, i) => ({
    name: `n${i}`,
    labels: { zone: i % 2 === 0 ? 'a' : 'b' },
    annotations: {},
    addresses: [],
  })),
  policies: [
    {
      name: 'only-a',
      spec: {
        priority: 500,
        enforcementMode: 'Enforce',
        nodeSelector: { matchLabels: { zone: 'a' } },
        source: { ipPools: { natOutgoing: 'Any' } },
        rules: [{ name: 'r', action: 'Preserve', portAllocation: 'FullyRandom' }],
        defaultAction: 'Continue',
        connectionPolicy: 'Keep',
      },
    },
  ],
  felixConfigs: [],
});

describe('few writes', () => {
  it.each([2, 500])('one for each group and nothing else, when a pool is toggled: %i nodes', async count => {
    const api = createModelApi();
    const hand = createHand(api);
    await settle(hand, api, desiredFor(manyNodes(count, true)));
    const before = api.sent.length;
    await hand.run(desiredFor(manyNodes(count, false)));
    expect(api.sent.slice(before).map(({ verb, plural }) => [verb, plural])).toEqual([
      ['apply', 'masqplans'],
      ['apply', 'masqplans'],
    ]);
  });

  it('and what is refused is not sent again with every run, nor does it stop what has no part in it', async () => {
    const wanted = desiredFor(manyNodes(20, true));
    const bad = wanted.plans[0]?.name;
    const api = createModelApi(write =>
      write.verb === 'apply' && write.object.name === bad ? { how: 'refused' } : undefined,
    );
    const hand = createHand(api);
    for (let i = 0; i < 50; i += 1) {
      const report = await hand.run(wanted);
      expect(report.failures).toEqual([expect.stringContaining('was refused: the webhook says no')]);
      api.show();
      hand.time.now += 20;
    }
    expect(api.sent.filter(write => write.verb === 'apply' && write.object.name === bad)).toHaveLength(1);
    expect(api.stored.masqnodes.size).toBe(10);
    expect(hand.retries.nextMs()).toBe(250);
  });

  it('when the server does not answer, few are tried', async () => {
    const api = createModelApi(() => ({ how: 'silent' }));
    const hand = createHand(api);
    const report = await hand.run(desiredFor(manyNodes(500, true)));
    expect(report.written).toBe(0);
    expect(api.sent.length).toBeLessThanOrEqual(16);
    api.sent.length = 0;
    const nodes = desiredFor(manyNodes(500, true));
    const other = createModelApi(write => (write.plural === 'masqnodes' ? { how: 'silent' } : undefined));
    const second = await createHand(other).run(nodes);
    expect(second.interrupted).toBe(true);
    expect(other.sent.length).toBeLessThanOrEqual(2 + 16);
  });

  it('and those that always fail do not keep the others from their turn', async () => {
    const wanted = desiredFor(manyNodes(100, true));
    const bad = new Set(wanted.nodes.slice(0, 30).map(({ name }) => name));
    for (const how of ['refused', 'silent'] as const) {
      const api = createModelApi(write =>
        write.verb === 'apply' && bad.has(write.object.name) ? { how } : undefined,
      );
      api.put('masqplans', 'plan-old', { metadata: {}, spec: { plan: 'plan-old', part: 0 } });
      api.show();
      const hand = createHand(api);
      for (let i = 0; i < 10; i += 1) {
        await hand.run(wanted);
        api.show();
        hand.time.now += hand.retries.nextMs() ?? 0;
      }
      expect(api.stored.masqnodes.size).toBe(70);
      expect(api.stored.masqplans.has('plan-old')).toBe(false);
    }
  });

  it('stops between nodes when what it works from is not true any more', async () => {
    const api = createModelApi();
    let asked = 0;
    const report = await createHand(api).run(desiredFor(manyNodes(500, true)), () => (asked += 1) > 100);
    expect(report.interrupted).toBe(true);
    expect(api.stored.masqnodes.size).toBe(100);
  });
});
