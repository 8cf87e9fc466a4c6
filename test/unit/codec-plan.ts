// What the tests of the plan's JSON share: one small plan in which everything occurs that a plan can hold.
import { decodePlan, type DecodedPlan, encodePlan } from '../../src/planner/codec.ts';
import type { NodeValues, Plan } from '../../src/planner/plan.ts';
import { planOf } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';

export const textOf = (plan: Plan, values: NodeValues): string => JSON.stringify(encodePlan(plan, values));
export const read = (text: string): DecodedPlan => decodePlan(JSON.parse(text));

export const PLAN = planOf({
  sets: {
    pods: ['10.244.0.0/16', '!10.244.8.0/24', 'fd00:244::/48'],
    'net-1': ['0.0.0.0/0', '::/0'],
  },
  policies: [
    {
      name: 'bank',
      connectionPolicy: 'FlushChanged',
      rules: [
        {
          to: 'net-1',
          ports: [{ protocol: 'TCP', port: 443, endPort: 444 }, { protocol: 'ICMP' }],
          outInterfaces: ['eth+', 'bond0.100'],
          action: 'SNAT',
          snat: { addresses: { 4: address('198.51.100.7'), 6: address('2001:db8::7') } },
          portRange: { start: 20_000, end: 39_999 },
          portAllocation: 'Random',
        },
        { action: 'SNAT', snat: { nodeValue: 'annotation:example.com/egress' } },
      ],
    },
    { name: 'lab.test', dryRun: true, defaultAction: 'Masquerade' },
  ],
  poolDefault: {
    source: 'pods',
    spared: 'pods',
    sparedNodes: 'none',
    outInterface: 'eth0',
    portRange: { start: 1, end: 1 },
    addresses: { 6: address('2001:db8::1') },
  },
  tunnelInterfaces: ['vxlan.calico'],
});
export const VALUES: NodeValues = new Map([
  ['annotation:example.com/egress', { 4: address('198.51.100.8') }],
  ['address:ExternalIP', { 6: address('2001:db8::8') }],
]);
