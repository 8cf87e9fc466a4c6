// Random rules of others in all three languages around our jump: who is judged to win decides what the outside sees.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FAMILIES, parseAddress } from '../../src/cidr/address.ts';
import type { World } from '../../src/demo/model.ts';
import { type Judgement, judgeForeign, readForeignFacts, readNatRules } from '../../src/kernel/foreign.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { addressOf, NAMES, type Names, openScene } from './scene.ts';

const PORT = 443;
const OUR_SNAT = '198.51.100.7';

/** What stands behind -j, with the address that it gives; a number is the chain to jump to. */
type Target = { readonly jump: number; readonly goto: boolean } | { readonly verb: 'ACCEPT' | 'RETURN' | 'MASQUERADE' | 'SNAT' | 'KEEP' | 'MARK' | 'NONE' };

interface RandomRule {
  readonly matches: readonly string[];
  readonly target: Target;
}

/** Chains of one language: the first is the base chain, and a chain leads only to later ones. */
type Chains = readonly (readonly RandomRule[])[];

interface RandomState {
  /** iptables' POSTROUTING, parted by our jump. */
  readonly above: readonly RandomRule[];
  readonly below: readonly RandomRule[];
  readonly called: Chains;
  readonly early: Chains;
  readonly late: Chains;
  /** Whether our chain translates. */
  readonly acts: boolean;
}

const target = (depth: number): fc.Arbitrary<Target> =>
  fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom<Target>({ verb: 'RETURN' }, { verb: 'MARK' }, { verb: 'NONE' }) },
    {
      weight: 2,
      arbitrary: fc.constantFrom<Target>({ verb: 'ACCEPT' }, { verb: 'MASQUERADE' }, { verb: 'SNAT' }, { verb: 'KEEP' }),
    },
    ...(depth >= 2
      ? []
      : [{ weight: 4, arbitrary: fc.record({ jump: fc.integer({ min: depth + 1, max: 2 }), goto: fc.boolean() }) }]),
  );
