// Policies in every situation that a status can speak of, as the operator would meet them. Used by unit tests, and
// against a real API server.
import { validateMasqPolicy } from '../../src/api/validate-policy.ts';
import type { MasqPolicy } from '../../src/api/model.ts';
import type { NamedTrouble, NodeTally } from '../../src/operator/node-states.ts';
import type { PolicyFacts } from '../../src/operator/policy-status.ts';
import type { Problem } from '../../src/planner/problem.ts';

/** A valid policy with rules a and b. */
export function policyOf(name: string, spec: object = {}): MasqPolicy {
  const read = validateMasqPolicy({
    metadata: { name },
    spec: {
      source: { ipPools: {} },
      rules: [
        { name: 'a', action: 'Preserve', to: [{ ipBlock: { cidr: '192.0.2.0/24' } }] },
        { name: 'b', action: 'Masquerade' },
      ],
      ...spec,
    },
  });
  if (!read.ok) throw new Error(read.faults.map(({ field, reason }) => `${field}: ${reason}`).join('; '));
  return read.value;
}

export const troubles = (count: number, message = 'the set is full'): readonly NamedTrouble[] =>
  Array.from({ length: count }, (_, i) => ({
    name: `node-${String(i).padStart(4, '0')}`,
    reason: 'ProgrammingFailed',
    message,
  }));

const warned = (reason: string, message: string): NodeTally =>
  tally({ desired: 3, programmed: 3, warned: 1, warnings: [{ name: 'node-0000', reason, message }] });

export function tally(given: Partial<NodeTally>): NodeTally {
  const { failedNodes = [], warnings = [] } = given;
  return {
    desired: 0,
    programmed: 0,
    failed: failedNodes.length,
    failedNodes,
    warned: warnings.length,
    warnings,
    ...given,
  };
}

const problem = (given: Partial<Problem>): Problem => ({
  severity: 'error',
  kind: 'MasqPolicy',
  name: 'p',
  field: 'spec.source.ipPools.names[0]',
  reason: 'NotFound',
  message: 'there is no IPPool "blue"',
  ...given,
});

const facts = (given: Partial<PolicyFacts>): PolicyFacts => ({
  generation: 3,
  policy: policyOf('p'),
  faults: [],
  problems: [],
  nodes: tally({ desired: 3, programmed: 3 }),
  shadowed: new Map(),
  resolved: { ipPools: 2, ipv4CIDRs: 3, ipv6CIDRs: 1 },
  stale: [],
  ...given,
});

/** Type of condition → status, reason, and words of the message. */
export type Expected = Readonly<Record<string, readonly [status: string, reason: string, words?: RegExp]>>;

const REFUSED: Expected = {
  Accepted: ['False', 'Invalid', /spec\.rules\[1\]\.action: "Drop" is not one of.* no effect/],
  ResolvedRefs: ['Unknown', 'NotAccepted', /see condition Accepted/],
  Programmed: ['False', 'NotAccepted'],
  Conflicted: ['Unknown', 'NotAccepted'],
  Degraded: ['False', 'NotAccepted'],
};
const FINE: Expected = {
  Accepted: ['True', 'Accepted'],
  ResolvedRefs: ['True', 'ResolvedRefs'],
  Programmed: ['True', 'Programmed', /^in force on 3 of 3 nodes$/],
  Conflicted: ['False', 'NoConflict'],
  Degraded: ['False', 'AsExpected'],
};
const REFUSED_FACTS: Partial<PolicyFacts> = {
  policy: undefined,
  faults: [
    { field: 'spec.rules[1].action', reason: '"Drop" is not one of Masquerade, SNAT, Preserve, Continue' },
  ],
  nodes: tally({}),
  resolved: { ipPools: 0, ipv4CIDRs: 0, ipv6CIDRs: 0 },
};
const LONG = 'x'.repeat(40_000);

export const SITUATIONS: readonly (readonly [name: string, facts: PolicyFacts, expected: Expected])[] = [
  ['all is well', facts({}), FINE],
  ['no generation is known', facts({ generation: undefined }), FINE],
  ['refused', facts(REFUSED_FACTS), REFUSED],
  [
    'refused with many faults of great length',
    facts({
      ...REFUSED_FACTS,
      faults: Array.from({ length: 64 }, (_, i) => ({ field: `spec.rules[${i}]`, reason: LONG })),
    }),
    { ...REFUSED, Accepted: ['False', 'Invalid', /^spec\.rules\[0\]: x+…$/] },
  ],
  [
    'switched off',
    facts({ policy: policyOf('p', { enforcementMode: 'Disabled' }), nodes: tally({}) }),
    { ...FINE, Accepted: ['True', 'Disabled', /as if it were not there/], Programmed: ['False', 'Disabled'] },
  ],
  [
    'only counting',
    facts({ policy: policyOf('p', { enforcementMode: 'DryRun' }) }),
    { ...FINE, Programmed: ['True', 'Programmed', /on 3 of 3 nodes \(DryRun: it counts and does not act\)/] },
  ],
  [
    'without nodes',
    facts({ nodes: tally({}) }),
    { ...FINE, Programmed: ['True', 'NoNodes', /no node is selected/] },
  ],
  [
    'on its way',
    facts({ nodes: tally({ desired: 50, programmed: 47 }) }),
    { ...FINE, Programmed: ['False', 'Pending', /on 47 of 50 nodes; the others have not said so yet/] },
  ],
  [
    'failed on two nodes',
    facts({ nodes: tally({ desired: 50, programmed: 48, failedNodes: troubles(2) }) }),
    {
      ...FINE,
      Programmed: [
        'False',
        'NodesFailed',
        /48 of 50 nodes; node-0000: the set is full; node-0001: the set is full$/,
      ],
      Degraded: [
        'True',
        'NodesFailed',
        /^failed: node-0000 \(ProgrammingFailed\), node-0001 \(ProgrammingFailed\)$/,
      ],
    },
  ],
  [
    'failed on thousands of nodes, with long messages',
    facts({ nodes: tally({ desired: 5000, programmed: 1, failed: 4000, failedNodes: troubles(16, LONG) }) }),
    {
      ...FINE,
      Programmed: ['False', 'NodesFailed', /…$/],
      Degraded: ['True', 'NodesFailed', /node-0004 \(ProgrammingFailed\), and 3995 more$/],
    },
  ],
  [
    'contended',
    facts({ nodes: warned('PlaceContended', 'Felix insists') }),
    { ...FINE, Degraded: ['True', 'Contended', /node-0000: Felix insists/] },
  ],
  [
    'overruled',
    facts({ nodes: warned('ForeignRuleWins', 'ip-masq-agent is asked first') }),
    { ...FINE, Degraded: ['True', 'Overruled', /node-0000: ip-masq-agent is asked first/] },
  ],
  [
    'pointing at what is not there',
    facts({ problems: [problem({}), problem({ field: '', reason: 'Other', message: 'and another' })] }),
    {
      ...FINE,
      ResolvedRefs: [
        'False',
        'NotFound',
        /^spec\.source\.ipPools\.names\[0\]: there is no IPPool "blue"; and another$/,
      ],
    },
  ],
  [
    'warned',
    facts({
      problems: [
        problem({ severity: 'warning', field: 'spec.source', reason: 'NoAddresses', message: 'empty' }),
      ],
    }),
    { ...FINE, Degraded: ['False', 'Warnings', /^spec\.source: empty$/] },
  ],
  [
    'hidden by others',
    facts({
      shadowed: new Map([
        ['a', ['q/r']],
        ['b', ['q/r', 'q/defaultAction', 'z/1', 'z/2']],
      ]),
    }),
    {
      ...FINE,
      Conflicted: [
        'True',
        'Shadowed',
        /rule a decides about no packet: q\/r come.*rule b .*q\/r, q\/defaultAction, z\/1 come/,
      ],
    },
  ],
  [
    'hidden by a rule with the longest of names',
    facts({ shadowed: new Map([['a', [`${'q'.repeat(253)}/${'r'.repeat(63)}`]]]) }),
    { ...FINE, Conflicted: ['True', 'Shadowed'] },
  ],
  [
    'perhaps old',
    facts({
      stale: ['IPPools (projectcalico.org/v3) cannot be read since 2026-01-01T00:00:00.000Z: HTTP 403'],
    }),
    {
      ...FINE,
      Degraded: ['True', 'SourceUnavailable', /since 2026-01-01.*HTTP 403\. What was last known stays/],
    },
  ],
  [
    'perhaps old and refused',
    facts({ ...REFUSED_FACTS, stale: ['Nodes cannot be read'] }),
    { ...REFUSED, Degraded: ['True', 'SourceUnavailable'] },
  ],
  [
    'the largest that there is',
    facts({
      policy: policyOf('p', {
        rules: Array.from({ length: 64 }, (_, i) => ({
          name: `${'n'.repeat(61)}${String(i).padStart(2, '0')}`,
          action: 'Preserve',
        })),
      }),
      nodes: tally({ desired: 100_000, programmed: 0, failed: 100_000, failedNodes: troubles(16, LONG) }),
      problems: Array.from({ length: 100 }, () => problem({ message: LONG })),
      shadowed: new Map(
        Array.from({ length: 64 }, (_, i) => [
          `${'n'.repeat(61)}${String(i).padStart(2, '0')}`,
          [`${'q'.repeat(253)}/${'r'.repeat(63)}`],
        ]),
      ),
      stale: [LONG, LONG],
      resolved: { ipPools: 1_000, ipv4CIDRs: 2_000_000, ipv6CIDRs: 2_000_000 },
    }),
    {
      Accepted: ['True', 'Accepted'],
      ResolvedRefs: ['False', 'NotFound'],
      Programmed: ['False', 'NodesFailed'],
      Conflicted: ['True', 'Shadowed'],
      Degraded: ['True', 'SourceUnavailable'],
    },
  ],
];
