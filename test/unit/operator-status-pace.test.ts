// When a status is written: at once for the author, folded for thousands of nodes.
import { describe, expect, it } from 'vitest';
import type { PolicyStatus } from '../../src/operator/policy-status.ts';
import { createStatusPace } from '../../src/operator/status-pace.ts';
import { plain } from './operator-support.ts';

interface Sketch {
  readonly generation?: number;
  readonly desired?: number;
  readonly done?: number;
  readonly refs?: string;
  readonly cidrs?: number;
}

const status = ({
  generation = 1,
  desired = 10,
  done = 0,
  refs = 'fine',
  cidrs = 1,
}: Sketch): PolicyStatus => {
  const said = (type: string, yes: boolean, message: string) => ({
    type,
    status: yes ? ('True' as const) : ('False' as const),
    observedGeneration: generation,
    lastTransitionTime: '2026-01-01T00:00:00Z',
    reason: 'Reason',
    message,
  });
  return {
    observedGeneration: generation,
    conditions: [
      said('Accepted', true, 'valid'),
      said('ResolvedRefs', refs === 'fine', refs),
      said('Programmed', done === desired, `on ${done} of ${desired}`),
    ],
    nodes: { desired, programmed: done, failed: 0, summary: `${done}/${desired}` },
    failedNodes: [],
    rules: [],
    resolved: { ipPools: 0, ipv4CIDRs: cidrs, ipv6CIDRs: 0 },
  };
};

/** One policy whose status is written as soon as it is due; `at` gives what it shall be at a moment. */
function simulate(start: unknown, untilMs: number, stepMs: number, at: (ms: number) => Sketch) {
  const pace = createStatusPace();
  const writes: { readonly at: number; readonly sketch: Sketch }[] = [];
  let there = start;
  for (let now = 0; now <= untilMs; now += stepMs) {
    const next = status(at(now));
    if (pace.due('a', there, next, now) !== 0) continue;
    there = plain(next);
    pace.wrote('a', now);
    writes.push({ at: now, sketch: at(now) });
  }
  return { writes, there };
}

const stored = (sketch: Sketch): unknown => plain(status(sketch));

describe('the pace', () => {
  it('has nothing to write when both say the same', () => {
    const pace = createStatusPace();
    expect(pace.due('a', stored({}), status({}), 0)).toBeUndefined();
  });

  it('writes at once what is new, and each change of the author', () => {
    const pace = createStatusPace();
    expect(pace.due('new', undefined, status({}), 0)).toBe(0);
    for (let generation = 2; generation < 100; generation += 1) {
      const there = stored({ generation: generation - 1 });
      expect(pace.due('a', there, status({ generation }), generation)).toBe(0);
      pace.wrote('a', generation);
    }
  });

  it('folds 5,000 nodes that report within a minute after a change of the policy', () => {
    const start = stored({ generation: 1, desired: 5000, done: 5000 });
    const { writes, there } = simulate(start, 120_000, 10, ms => ({
      generation: 2,
      desired: 5000,
      done: Math.min(5000, Math.floor(ms / 12)),
    }));
    expect(writes[0]?.at).toBe(0);
    expect(writes.length).toBeLessThanOrEqual(13);
    expect(there).toEqual(stored({ generation: 2, desired: 5000, done: 5000 }));
  });

  it('says soon that a few nodes have done what the author asked for', () => {
    const { writes } = simulate(undefined, 10_000, 10, ms => ({ desired: 3, done: ms < 50 ? 0 : 3 }));
    expect(writes.map(it => it.sketch.done)).toEqual([0, 3]);
    expect(writes[1]?.at).toBeLessThanOrEqual(400);
  });

  it('does not speak of nodes that follow a change of a pool within a moment', () => {
    const { writes } = simulate(stored({ done: 10 }), 60_000, 10, ms => ({
      done: ms > 100 && ms < 2_000 ? 4 : 10,
    }));
    expect(writes).toEqual([]);
  });

  it('folds what other objects bring: addresses, annotations of nodes one after the other', () => {
    const { writes, there } = simulate(stored({}), 60_000, 20, ms => {
      const n = Math.min(ms, 55_000);
      return { cidrs: n, refs: `node n${n} has no annotation` };
    });
    expect(writes[0]?.at).toBeLessThanOrEqual(20);
    expect(writes.length).toBeLessThanOrEqual(4 + 6);
    expect(there).toMatchObject({ resolved: { ipv4CIDRs: 55_000 } });
  });

  it('does not write for ever where the stored status cannot become the same', () => {
    const pace = createStatusPace();
    const there = plain({ ...status({}), stranger: true });
    let writes = 0;
    for (let now = 0; now < 600_000; now += 20) {
      if (pace.due('a', there, status({}), now) !== 0) continue;
      pace.wrote('a', now);
      writes += 1;
    }
    expect(writes).toBeLessThanOrEqual(4 + 60);
  });

  it('asks to be asked again when a write is due', () => {
    const pace = createStatusPace();
    const there = stored({ done: 0 });
    const wait = pace.due('a', there, status({ done: 1 }), 1_000) ?? 0;
    expect(wait).toBeGreaterThan(0);
    expect(pace.due('a', there, status({ done: 2 }), 1_000 + wait - 1)).toBe(1);
    expect(pace.due('a', there, status({ done: 3 }), 1_000 + wait)).toBe(0);
  });

  it('counts each policy by itself, and forgets those that are gone', () => {
    const pace = createStatusPace();
    for (let i = 0; i < 10; i += 1) pace.wrote('a', 0);
    const changed = (name: string): number | undefined => pace.due(name, stored({}), status({ cidrs: 2 }), 0);
    expect(changed('a')).toBeGreaterThan(0);
    expect(changed('b')).toBe(0);
    pace.keep(new Map([['b', {}]]));
    expect(changed('a')).toBe(0);
  });
});
