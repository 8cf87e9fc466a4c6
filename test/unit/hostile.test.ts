// What hostile people write, in objects and in plans: whatever it is, what reaches the tools is lines of our own making.
// FUZZ_RUNS says how often (make fuzz).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import { DEFAULT_OPTIONS } from '../../src/planner/assemble.ts';
import { contentHashOf, joinPlan, masqNodeSpec, planObjects } from '../../src/planner/plan-objects.ts';
import type { NodeValues, Plan } from '../../src/planner/plan.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import { iptablesText, ipsetText } from '../../src/render/text.ts';
import { block, felix, networkSet, node, policy, pool } from '../kernel/scene.ts';
import { PLAN, VALUES } from './codec-plan.ts';
import { type Place, placesOf, withValue } from './json-places.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 500);
const OPTIONS = { numRuns: RUNS };
const TIMEOUT = { timeout: 60_000 + RUNS * 50 };

const hostileText = fc.oneof(
  fc.constantFrom(
    '\n-A POSTROUTING -j ACCEPT',
    '\nCOMMIT\n*filter\n:INPUT DROP [0:0]',
    '10.0.0.0/8\nadd x 192.0.2.1',
    '-j',
    '--help',
    '-exist',
    '--to-source 192.0.2.1',
    "'; reboot; '",
    '"$(reboot)"',
    '`reboot`',
    '\\',
    '"',
    '010.0.0.0/8',
    '0x0a.0.0.1',
    '10.1',
    '2130706433',
    'localhost',
    '10.0.0.1,10.0.0.2',
    '10.0.0.1-10.0.0.9',
    '::ffff:10.0.0.1',
    'fe80::1%eth0',
    '1::2::3',
    '0.0.0.0/00',
    '10.0.0.0/+8',
    ' 10.0.0.0/8',
    '10.0.0.0/8 ',
    '\0',
    'a\0b',
    '\u202e',
    '\ud800',
    '１０.0.0.0/8',
    'é'.repeat(300),
    'a'.repeat(70_000),
    '__proto__',
    'eth0 -j ACCEPT',
    'eth*',
    '+',
    '!eth0',
    '../../etc/passwd',
    'masq-POSTROUTING',
    'POSTROUTING',
  ),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ unit: 'grapheme-ascii', maxLength: 40 }),
);
const hostileValue = fc.oneof(
  { weight: 4, arbitrary: hostileText },
  { weight: 1, arbitrary: hostileText.map(text => [text, text]) },
  { weight: 1, arbitrary: hostileText.map(text => JSON.parse(`{${JSON.stringify(text)}:1}`) as unknown) },
  { weight: 2, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom(-1, 0, 1e308, 2 ** 53, 65_536, 0.5, [], {}, null, true) },
);

const SET =
  /^(create masq[46]-[\w.-]{1,26} hash:net family inet6? hashsize \d+ maxelem \d+|add masq[46]-[\w.-]{1,26} [0-9a-f.:]+\/\d{1,3}( nomatch)? -exist)$/;
const RULE =
  /^(\*nat|COMMIT|:masq-[\w.-]{1,23} - \[0:0\]|-(A masq-[\w.-]{1,23}|I POSTROUTING 1)( [\w!.,:/+-]+)* -m comment --comment "natoutgoing:[\x20\x21\x23-\x5b\x5d-\x7e]{1,240}"( [\w!.,:/+[\]-]+)*)$/;

/** That the tools are given nothing but lines as we make them. */
function expectOwnLines(plan: Plan, values: NodeValues): void {
  for (const family of FAMILIES) {
    const tables = renderFamily(plan, values, family);
    const sets = ipsetText(tables).split('\n').slice(0, -1);
    expect(sets.filter(line => !SET.test(line))).toEqual([]);
    const rules = iptablesText(tables).split('\n').slice(0, -1);
    expect(rules.filter(line => !RULE.test(line))).toEqual([]);
    expect(rules.filter(line => line === 'COMMIT')).toHaveLength(1);
  }
}

const spoil = (json: unknown, changes: readonly (readonly [Place, unknown])[]): unknown =>
  changes.reduce((value, [place, to]) => {
    try {
      return withValue(value, place, to);
    } catch {
      // An earlier change took the place away.
      return value;
    }
  }, json);

const changesOf = (json: unknown): fc.Arbitrary<readonly (readonly [Place, unknown])[]> =>
  fc.array(fc.tuple(fc.constantFrom(...placesOf(json)), hostileValue), { minLength: 1, maxLength: 3 });

describe('a hostile author', () => {
  it('of a plan, who knows how to make its hash', TIMEOUT, () => {
    const [spec] = planObjects(PLAN, 'plan-a');
    const { contentHash: _, plan, part, of, ...content } = spec ?? expect.fail('no plan');
    const { addresses } = masqNodeSpec('plan-a', VALUES);
    const whole: unknown = JSON.parse(JSON.stringify({ content, addresses }));
    let followed = 0;
    fc.assert(
      fc.property(changesOf(whole), changes => {
        const spoilt = spoil(whole, changes) as { content?: object; addresses?: unknown } | null;
        const document = spoilt?.content;
        if (typeof document !== 'object' || document === null || Array.isArray(document)) return;
        const contentHash = contentHashOf(document as Readonly<Record<string, unknown>>);
        const joined = joinPlan([{ ...document, plan, part, of, contentHash }], spoilt?.addresses);
        if (joined.ok) {
          followed++;
          expectOwnLines(joined.plan, joined.values);
        } else {
          expect(joined.reason).not.toBe('');
        }
      }),
      // As it was made first: that one at least is followed, or nothing that is refused says anything.
      { ...OPTIONS, examples: [[[]]] },
    );
    expect(followed).toBeGreaterThan(0);
  });

  it('of policies, pools, network sets, nodes and Felix’s configuration', TIMEOUT, async () => {
    const objects: unknown = JSON.parse(
      JSON.stringify([
        pool('pods', '10.244.0.0/16'),
        pool('pods6', 'fd00:244::/48'),
        networkSet('partners', ['192.0.2.0/24', '2001:db8::7']),
        node('worker-1', ['192.168.50.10', '2001:db8::10'], { 'example.com/egress': '198.51.100.7' }),
        felix({ natPortRange: '1000:2000', natOutgoingAddress: '198.51.100.9' }),
        policy('a', [
          {
            to: [block('192.0.2.0/24', '192.0.2.7/32'), { networkSets: { names: ['partners'] } }],
            action: 'Preserve',
          },
          { to: [{ scope: 'Nodes' }], outInterfaces: ['eth+'], action: 'Masquerade' },
          {
            ports: [{ protocol: 'TCP', port: 443, endPort: 444 }],
            action: 'SNAT',
            snat: { addressFrom: { nodeAnnotation: 'example.com/egress' } },
            portRange: { start: 20_000, end: 30_000 },
          },
        ]),
        policy('b', [{ action: 'SNAT', snat: { addresses: ['198.51.100.7', '2001:db8::9'] } }], {
          source: { ipBlocks: [{ cidr: '10.244.8.0/24' }] },
          defaultAction: 'Masquerade',
        }),
      ]),
    );
    await fc.assert(
      fc.asyncProperty(changesOf(objects), async changes => {
        const items = spoil(objects, changes);
        const text = JSON.stringify({ apiVersion: 'v1', kind: 'List', items });
        const { snapshot } = await loadManifests(['-'], () => Promise.resolve(text));
        const { plan, values } = planNode(snapshot, 'worker-1', DEFAULT_OPTIONS);
        expectOwnLines(plan, values);
      }),
      OPTIONS,
    );
  });

  it('of YAML that unfolds without end is told so', async () => {
    const levels = Array.from(
      { length: 30 },
      (_, i) => `a${i + 1}: &a${i + 1} [*a${i}, *a${i}, *a${i}, *a${i}]`,
    );
    const bomb = `a0: &a0 [x]\n${levels.join('\n')}\nkind: MasqPolicy\n`;
    const { problems, verdicts } = await loadManifests(['-'], () => Promise.resolve(bomb));
    expect(JSON.stringify([problems, verdicts]).length).toBeLessThan(10_000);
    expect([...problems, ...verdicts.filter(({ verdict }) => verdict !== 'ok')].length).toBeGreaterThan(0);
  });
});
