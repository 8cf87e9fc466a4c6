// Nulls that a client-side apply lost on its way are refused as those that came through are.
import { describe, expect, it } from 'vitest';
import { validateMasqPolicy } from '../../src/api/validate-policy.ts';

const RULES = [
  { name: 'a', to: [{ ipBlock: { cidr: '10.0.0.0/8' } }], action: 'Preserve' },
  { name: 'b', action: 'Masquerade' },
];
const spec = (rules: readonly object[]): object => ({ source: { ipPools: {} }, rules });

/** The object as it is stored after kubectl applied the other one over an older version. */
const stored = (live: object, applied: unknown): object => ({
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind: 'MasqPolicy',
  metadata: {
    name: 'p',
    annotations: {
      'kubectl.kubernetes.io/last-applied-configuration':
        typeof applied === 'string' ? applied : JSON.stringify({ spec: applied }),
    },
  },
  spec: live,
});

const faultsOf = (object: object): readonly string[] => {
  const read = validateMasqPolicy(object);
  return read.ok ? [] : read.faults.map(({ field }) => field);
};

describe('the last applied configuration', () => {
  it.each([
    [
      'to of a rule',
      spec([RULES[0] ?? {}, { name: 'b', to: null, action: 'Masquerade' }]),
      'spec.rules[1].to',
    ],
    ['ports of a rule', spec([{ ...RULES[0], ports: null }, RULES[1] ?? {}]), 'spec.rules[0].ports'],
    [
      'except of a block',
      spec([{ ...RULES[0], to: [{ ipBlock: { cidr: '10.0.0.0/8', except: null } }] }, RULES[1] ?? {}]),
      'spec.rules[0].to[0].ipBlock.except',
    ],
  ])('with a null at %s is a fault there', (_, applied, field) => {
    expect(faultsOf(stored(spec(RULES), applied))).toEqual([field]);
  });

  it.each([
    ['says the same', spec(RULES)],
    ['has a null where the object has a value since', spec([{ ...RULES[0], to: null }, RULES[1] ?? {}])],
    ['has rules of other names', spec([RULES[0] ?? {}, { name: 'c', to: null, action: 'Masquerade' }])],
    ['has another number of rules', spec([{ name: 'b', to: null, action: 'Masquerade' }])],
    ['is no JSON', '{'],
    ['is no object', '7'],
    ['is nested without end', `${'['.repeat(50_000)}${']'.repeat(50_000)}`],
  ])('that %s is of no account', (_, applied) => {
    expect(faultsOf(stored(spec(RULES), applied))).toEqual([]);
  });
});
