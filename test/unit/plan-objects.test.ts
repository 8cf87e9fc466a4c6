// A plan dealt to MasqPlan objects and put together again, and what is not a whole plan.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodePlan } from '../../src/planner/codec.ts';
import {
  contentHashOf,
  joinPlan,
  masqNodeSpec,
  type MasqPlanSpec,
  planObjects,
} from '../../src/planner/plan-objects.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { NODE, snapshots } from '../oracle/arbitraries.ts';
import { planOf } from '../oracle/hand-made.ts';
import { PLAN, VALUES } from './codec-plan.ts';

const valuesOf = (): unknown => masqNodeSpec('p', VALUES)['addresses'];

/** As an API server gives it back: keys in alphabetical order. */
const stored = (spec: unknown): unknown =>
  JSON.parse(JSON.stringify(spec), (_key, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );

/** A plan with that many networks in one set. */
const largePlan = (count: number): ReturnType<typeof planOf> =>
  planOf({
    sets: {
      pods: ['10.244.0.0/16'],
      far: Array.from({ length: count }, (_, i) => `${100 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}.0/24`),
    },
    policies: [{ name: 'p', rules: [{ to: 'far', action: 'Preserve' }] }],
  });

describe('a plan as objects', () => {
  it('is one object when it is small', () => {
    const specs = planObjects(PLAN, 'plan-a');
    expect(specs).toMatchObject([{ schemaVersion: 1, plan: 'plan-a', part: 0, of: 1 }]);
    expect(specs[0]?.contentHash).toMatch(/^[0-9a-f]{32}$/);
  });

  it('comes back whole, whatever its parts and their order', () => {
    fc.assert(
      fc.property(
        snapshots(),
        fc.constantFrom(20, 60, 200, 1_000_000),
        fc.boolean(),
        (snapshot, partBytes, turned) => {
          const { plan, values } = planNode(snapshot, NODE);
          const specs = planObjects(plan, 'p', partBytes).map(stored);
          const joined = joinPlan(
            turned ? specs.toReversed() : specs,
            masqNodeSpec('p', values)['addresses'],
          );
          expect(joined).toMatchObject({ ok: true });
          if (!joined.ok) return;
          expect(encodePlan(joined.plan, joined.values)).toEqual(encodePlan(plan, values));
          expect(joined.contentHash).toBe(planObjects(plan, 'p')[0]?.contentHash);
        },
      ),
    );
  });

  it('changes in one part and the first when one CIDR is added', () => {
    const before = planObjects(largePlan(40_000), 'p');
    const after = planObjects(largePlan(40_001), 'p');
    expect(before.length).toBe(2);
    const larger = {
      before: planObjects(largePlan(40_000), 'p', 100_000),
      after: [] as readonly MasqPlanSpec[],
    };
    larger.after = planObjects(largePlan(40_001), 'p', 100_000);
    expect(larger.before.length).toBe(8);
    expect(larger.after.length).toBe(8);
    for (const { a, b } of [
      { a: before, b: after },
      { a: larger.before, b: larger.after },
    ]) {
      const changed = a.filter((spec, i) => JSON.stringify(spec) !== JSON.stringify(b[i]));
      expect(changed.filter(({ part }) => part !== 0).length).toBeLessThanOrEqual(1);
    }
  });

  it('is dealt evenly', () => {
    const sizes = planObjects(largePlan(40_000), 'p', 100_000).map(spec => JSON.stringify(spec).length);
    expect(Math.max(...sizes)).toBeLessThan(130_000);
  });

  it('has the same hash for equal content only', () => {
    const hashes = [PLAN, { ...PLAN, kubeMark: 1 }, { ...PLAN, tunnelInterfaces: [] }, largePlan(3)].map(
      plan => planObjects(plan, 'p')[0]?.contentHash,
    );
    expect(new Set(hashes).size).toBe(4);
  });
});

describe('what is not a whole plan', () => {
  const parts = planObjects(largePlan(2000), 'p', 8000);
  const whole = planObjects(PLAN, 'p')[0] as MasqPlanSpec;

  it('has parts', () => {
    expect(parts.length).toBe(8);
    expect(joinPlan(parts, undefined)).toMatchObject({ ok: true });
  });

  it.each([
    ['no part', []],
    ['only further parts', parts.slice(1)],
    ['a missing part', parts.slice(0, -1)],
    ['a part of another number of parts', [...parts.slice(0, -1), { ...parts.at(-1), of: 16 }]],
    ['a part too many', [...parts, { ...parts[1], part: 8 }]],
    ['a part of an older content', [...parts.slice(0, -1), { ...parts.at(-1), sets: [] }]],
    ['a hash that is missing', [{ ...whole, contentHash: undefined }]],
    ['a changed rule', [{ ...whole, kubeMark: 1 }]],
    ['sets that are no list', [{ ...whole, sets: 'all' }]],
    ['sets with a stranger', [{ ...whole, sets: [...whole.sets, 7] }]],
    ['a mad number of parts', [{ ...whole, of: 1e9 }]],
    ['parts that are no number', [{ ...whole, of: {} }]],
  ])('%s is incomplete', (_, specs) => {
    expect(joinPlan(specs, undefined)).toMatchObject({ ok: false, why: 'Incomplete' });
  });

  it.each([2, 0, '1', null, undefined])('schemaVersion %j is not understood', schemaVersion => {
    expect(joinPlan([{ ...whole, schemaVersion }], undefined)).toMatchObject({
      ok: false,
      why: 'NotUnderstood',
    });
  });

  it('a further part of a version that is not known spoils the whole', () => {
    const specs = parts.map(spec => (spec.part === 3 ? { ...spec, schemaVersion: 2 } : spec));
    expect(joinPlan(specs, undefined)).toMatchObject({ ok: false, why: 'NotUnderstood' });
  });

  /** The spec with a hash that fits, as whoever writes plans could make it. */
  const forged = (change: Readonly<Record<string, unknown>>): unknown => {
    const { plan, part, of, contentHash: _, ...content } = { ...whole, ...change };
    return { ...content, plan, part, of, contentHash: contentHashOf(content) };
  };

  it.each([
    ['a field that is not known', { surprise: true }, /surprise/],
    [
      'an address that is none',
      { poolDefault: { ...(whole['poolDefault'] as object), addresses: { ipv4: '1.2' } } },
      /addresses/,
    ],
    [
      'a set with text for a shell',
      { sets: [...whole.sets, { id: 'x', ipv4: ['10.0.0.0/8\nadd y'], ipv6: [] }] },
      /sets/,
    ],
    ['a set that is missing', { sets: whole.sets.slice(1) }, /there is no set/],
  ])('%s is invalid', (_, change, words) => {
    const joined = joinPlan([forged(change)], valuesOf());
    expect(joined).toMatchObject({ ok: false, why: 'Invalid' });
    expect(joined.ok ? '' : joined.reason).toMatch(words);
  });

  it('nesting without end is invalid', () => {
    const deep: unknown = JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`);
    expect(joinPlan([{ ...whole, tunnelInterfaces: deep }], undefined)).toMatchObject({
      ok: false,
      why: 'Invalid',
    });
  });

  it('values of the node that do not parse are invalid', () => {
    const joined = joinPlan([whole], { 'annotation:example.com/egress': { ipv4: '010.1.1.1' } });
    expect(joined).toMatchObject({ ok: false, why: 'Invalid' });
  });
});
