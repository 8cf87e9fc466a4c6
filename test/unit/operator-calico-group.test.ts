// Which of Calico's API groups is read: every state that the two can be in, and a migration from one to the other.
import { describe, expect, it } from 'vitest';
import {
  chooseGroup,
  type GroupFacts,
  type GroupState,
  isMigrated,
} from '../../src/operator/calico-group.ts';

const STATES: readonly GroupState[] = ['unknown', 'absent', 'listed', 'gone'];
const ANSWERS = [undefined, 'v1', 'v3'] as const;
const has = (state: GroupState): boolean => state === 'listed' || state === 'gone';

const given = (facts: {
  v1: GroupState;
  v3: GroupState;
  migrated?: boolean | undefined;
  previous?: 'v1' | 'v3' | undefined;
  demanded?: 'v1' | 'v3';
}): GroupFacts => ({
  states: { v1: facts.v1, v3: facts.v3 },
  ...(facts.migrated === undefined ? {} : { migrated: facts.migrated }),
  ...(facts.previous === undefined ? {} : { previous: facts.previous }),
  ...(facts.demanded === undefined ? {} : { demanded: facts.demanded }),
});

const everything = STATES.flatMap(v1 =>
  STATES.flatMap(v3 =>
    [undefined, false, true].flatMap(migrated => ANSWERS.map(previous => ({ v1, v3, migrated, previous }))),
  ),
);

describe('the group to read', () => {
  // Without an answer so far.
  it.each([
    ['unknown', 'unknown', false, undefined],
    ['unknown', 'listed', false, undefined],
    ['unknown', 'absent', false, undefined],
    ['absent', 'unknown', false, undefined],
    ['absent', 'absent', false, undefined],
    ['absent', 'listed', false, 'v3'],
    ['absent', 'listed', undefined, 'v3'],
    ['listed', 'absent', undefined, 'v1'],
    ['listed', 'absent', false, 'v1'],
    ['listed', 'unknown', false, 'v1'],
    ['listed', 'unknown', true, undefined],
    ['listed', 'listed', false, 'v1'],
    ['listed', 'listed', true, 'v3'],
    // v1 may be what a migration has left behind.
    ['listed', 'listed', undefined, undefined],
    ['listed', 'absent', true, 'v1'],
    ['gone', 'listed', false, 'v3'],
    ['gone', 'listed', true, 'v3'],
    ['gone', 'absent', false, 'v1'],
  ] as const)('v1 %s, v3 %s, migrated %s: %s', (v1, v3, migrated, expected) => {
    expect(chooseGroup(given({ v1, v3, migrated }))).toBe(expected);
  });

  it('is never one of which nothing is known', () => {
    for (const facts of everything) {
      const group = chooseGroup(given(facts));
      // What was read before is there still, and what it showed last is kept.
      if (group !== undefined && group !== facts.previous)
        expect(has(facts[group]), JSON.stringify(facts)).toBe(true);
    }
  });

  it('is never lost once there was one', () => {
    for (const facts of everything) {
      if (facts.previous !== undefined)
        expect(chooseGroup(given(facts)), JSON.stringify(facts)).toBeDefined();
    }
  });

  it('does not move without a reason', () => {
    for (const facts of everything) {
      const group = chooseGroup(given(facts));
      if (group === undefined) continue;
      expect(chooseGroup(given({ ...facts, previous: group }))).toBe(group);
    }
  });

  it('is the one that a person demands, as soon as it is known', () => {
    for (const facts of everything) {
      for (const demanded of ['v1', 'v3'] as const) {
        const expected = has(facts[demanded]) ? demanded : undefined;
        expect(chooseGroup(given({ ...facts, demanded }))).toBe(expected);
      }
    }
  });
});

describe('a migration', () => {
  type Step = readonly [v1: GroupState, v3: GroupState, migrated: boolean | undefined, expected: 'v1' | 'v3'];
  const walk = (steps: readonly Step[]): void => {
    let previous: 'v1' | 'v3' | undefined;
    for (const [v1, v3, migrated, expected] of steps) {
      const group = chooseGroup(given({ v1, v3, migrated, previous }));
      expect(group, `${v1} ${v3} ${migrated} after ${previous}`).toBe(expected);
      previous = group;
    }
  };

  it('in its order never is without a group, and goes over once, when Calico does', () => {
    walk([
      ['listed', 'absent', undefined, 'v1'],
      ['listed', 'absent', false, 'v1'],
      ['listed', 'unknown', false, 'v1'],
      ['listed', 'listed', false, 'v1'],
      ['listed', 'listed', true, 'v3'],
      ['gone', 'listed', true, 'v3'],
      ['absent', 'listed', true, 'v3'],
      ['absent', 'listed', false, 'v3'],
    ]);
  });

  it('of which the end is seen first', () => {
    walk([
      ['listed', 'absent', false, 'v1'],
      ['gone', 'absent', false, 'v1'],
      ['gone', 'unknown', true, 'v1'],
      ['gone', 'listed', true, 'v3'],
    ]);
  });

  it('that is undone', () => {
    walk([
      ['listed', 'listed', false, 'v1'],
      ['listed', 'listed', true, 'v3'],
      ['listed', 'listed', false, 'v1'],
      ['listed', 'gone', false, 'v1'],
    ]);
  });

  it.each([
    [{ phase: 'Converged' }, true],
    [{ phase: 'Complete' }, true],
    [{ phase: 'Migrating' }, false],
    [{ phase: ['Converged'] }, false],
    [null, false],
    ['Converged', false],
    [undefined, false],
  ])('with status %j has come so far: %s', (status, expected) => {
    expect(isMigrated([{ metadata: { name: 'other' } }, { metadata: { name: 'm' }, status }])).toBe(expected);
  });
});
