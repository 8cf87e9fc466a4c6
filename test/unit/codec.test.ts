// Plans as JSON: what is written is read back the same.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodePlan } from '../../src/planner/codec.ts';
import type { Plan } from '../../src/planner/plan.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { NODE, snapshots } from '../oracle/arbitraries.ts';
import { PLAN, read, textOf, VALUES } from './codec-plan.ts';

const options = fc.record({
  kubeMark: fc.constantFrom(0x4000, 1, 0x8000_0000, 0xffff_ffff),
  tunnelInterfaces: fc.subarray(['vxlan.calico', 'wireguard.cali', 'tun+', '+']),
  inheritFelix: fc.boolean(),
});

const randomPlans = fc
  .tuple(snapshots(), options)
  .map(([snapshot, chosen]) => planNode(snapshot, NODE, chosen))
  .map(({ plan, values }) => ({ plan, values }));

describe('the JSON of a plan', () => {
  it('is the form that is agreed on', () => {
    expect(encodePlan(PLAN, VALUES)).toEqual({
      schemaVersion: 1,
      sets: [
        { id: 'net-1', ipv4: ['0.0.0.0/0'], ipv6: ['::/0'] },
        { id: 'none', ipv4: [], ipv6: [] },
        { id: 'pods', ipv4: ['10.244.0.0/16', '!10.244.8.0/24'], ipv6: ['fd00:244::/48'] },
      ],
      policies: [
        {
          name: 'bank',
          dryRun: false,
          source: 'pods',
          rules: [
            {
              name: 'r0',
              to: 'net-1',
              ports: [{ protocol: 'TCP', port: 443, endPort: 444 }, { protocol: 'ICMP' }],
              outInterfaces: ['eth+', 'bond0.100'],
              action: 'SNAT',
              snat: { addresses: { ipv4: '198.51.100.7', ipv6: '2001:db8::7' } },
              portRange: { start: 20_000, end: 39_999 },
              portAllocation: 'Random',
            },
            {
              name: 'r1',
              action: 'SNAT',
              snat: { nodeValue: 'annotation:example.com/egress' },
              portAllocation: 'FullyRandom',
            },
          ],
          defaultAction: 'Continue',
          connectionPolicy: 'FlushChanged',
        },
        {
          name: 'lab.test',
          dryRun: true,
          source: 'pods',
          rules: [],
          defaultAction: 'Masquerade',
          connectionPolicy: 'Keep',
        },
      ],
      poolDefault: {
        source: 'pods',
        spared: 'pods',
        sparedNodes: 'none',
        outInterface: 'eth0',
        portRange: { start: 1, end: 1 },
        addresses: { ipv6: '2001:db8::1' },
        portAllocation: 'FullyRandom',
      },
      kubeMark: 0x4000,
      tunnelInterfaces: ['vxlan.calico'],
      values: {
        'address:ExternalIP': { ipv6: '2001:db8::8' },
        'annotation:example.com/egress': { ipv4: '198.51.100.8' },
      },
    });
  });

  it('is read back as the same plan, and written again as the same text', { timeout: 60_000 }, () => {
    fc.assert(
      fc.property(randomPlans, ({ plan, values }) => {
        const text = textOf(plan, values);
        const decoded = read(text);
        expect(decoded).toEqual({ ok: true, plan, values });
        if (decoded.ok) expect(textOf(decoded.plan, decoded.values)).toBe(text);
      }),
      { numRuns: 300 },
    );
  });

  it('does not depend on the order in which sets and values were made', () => {
    const turned: Plan = { ...PLAN, sets: new Map([...PLAN.sets].toReversed()) };
    expect(textOf(turned, new Map([...VALUES].toReversed()))).toBe(textOf(PLAN, VALUES));
  });

  it('may hold entries in any order, twice, and more than needed', () => {
    const text = textOf(PLAN, VALUES).replace(
      '"10.244.0.0/16","!10.244.8.0/24"',
      '"!10.244.8.0/24","10.244.9.0/24","10.244.0.0/16","10.244.0.0/16","!10.1.0.0/16","!10.244.8.64/26"',
    );
    expect(text).not.toBe(textOf(PLAN, VALUES));
    expect(read(text)).toEqual({ ok: true, plan: PLAN, values: VALUES });
  });
});
