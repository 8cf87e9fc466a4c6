// `decide` on plans made by hand, one rule of the text at a time. What whole clusters do is in plan-oracle.test.ts.
import { describe, expect, it } from 'vitest';
import { decide, type Decision, sameVerdict } from '../../src/planner/decide.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { planOf, type PlanSketch, type RuleSketch } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';

const sets = {
  pods: ['10.244.0.0/16', 'fd00:10:244::/48'],
  lan: ['192.168.0.0/16', '!192.168.7.0/24', 'fd00:1::/64'],
  bank: ['192.0.2.0/24'],
};
const node = { values: new Map() };
const packet = (more: Partial<Packet> & { readonly to?: string } = {}): Packet => ({
  source: address('10.244.1.1'),
  destination: address(more.to ?? '192.168.1.1'),
  protocol: 'TCP',
  destinationPort: 443,
  outInterface: 'eth0',
  ...more,
});
const six = (more: Partial<Packet> = {}): Packet =>
  packet({ source: address('fd00:10:244::1'), destination: address('fd00:1::1'), ...more });
const ask = (sketch: PlanSketch, asked: Packet): Decision => decide(planOf({ sets, ...sketch }), node, asked);
const oneRule = (rule: RuleSketch): PlanSketch => ({ policies: [{ rules: [rule] }] });
const r0 = { policy: 'p0', rule: 'r0' };
const nobody = { action: 'None', by: null, counted: [], uncertain: [] };

describe('decide: which rule', () => {
  it('takes the first rule of the first policy that matches', () => {
    const sketch: PlanSketch = {
      policies: [
        { source: 'bank', rules: [{}] },
        { rules: [{ to: 'bank' }, { to: 'lan', action: 'Masquerade' }, { to: 'lan' }] },
        { rules: [{}] },
      ],
    };
    expect(ask(sketch, packet())).toMatchObject({ action: 'Masquerade', by: { policy: 'p1', rule: 'r1' } });
    expect(ask(sketch, packet({ to: '192.168.7.9' }))).toMatchObject({ by: { policy: 'p2', rule: 'r0' } });
    expect(ask(sketch, packet({ source: address('10.245.0.1') }))).toEqual(nobody);
  });

  it('leaves a policy at Continue, and does not ask its default then', () => {
    const sketch: PlanSketch = {
      policies: [
        { rules: [{ to: 'lan', action: 'Continue' }, {}], defaultAction: 'Masquerade' },
        { rules: [{ to: 'bank' }], defaultAction: 'Preserve' },
      ],
    };
    expect(ask(sketch, packet())).toMatchObject({ action: 'Preserve', by: { policy: 'p1', default: true } });
  });

  it('asks the default action only about packets from the source, and never that of a dry run', () => {
    const masquerading = { rules: [{ to: 'bank' }], defaultAction: 'Masquerade' } as const;
    expect(ask({ policies: [masquerading] }, packet())).toMatchObject({
      action: 'Masquerade',
      by: { policy: 'p0', default: true },
      portAllocation: 'FullyRandom',
    });
    expect(ask({ policies: [{ ...masquerading, source: 'bank' }] }, packet())).toEqual(nobody);
    expect(ask({ policies: [{ ...masquerading, dryRun: true }] }, packet())).toEqual(nobody);
  });

  it('counts the first matching rule of a dry run and goes on', () => {
    const sketch: PlanSketch = {
      policies: [
        { dryRun: true, rules: [{ to: 'bank' }, { action: 'Continue' }, {}] },
        { dryRun: true, rules: [{ action: 'SNAT', snat: { addresses: {} } }, {}] },
        { rules: [{}] },
      ],
    };
    expect(ask(sketch, packet())).toMatchObject({
      by: { policy: 'p2', rule: 'r0' },
      counted: [
        { policy: 'p0', rule: 'r1' },
        { policy: 'p1', rule: 'r1' },
      ],
    });
  });

  it.each([
    [0x4000, 0x4000, true],
    [0xc001, 0x4000, true],
    [0x8000, 0x4000, false],
    [0x8000_0000, 0x8000_0000, true],
    [0xffff_ffff, 0x8000_0000, true],
    [0x7fff_ffff, 0x8000_0000, false],
  ])('leaves a packet with mark %x to kube-proxy, whose bit is %x: %s', (mark, kubeMark, left) => {
    const decision = ask({ ...oneRule({}), kubeMark }, packet({ mark }));
    expect([decision.action, decision.by]).toEqual(left ? ['None', { mark }] : ['Preserve', r0]);
  });
});

describe('decide: ports and interfaces', () => {
  const https = oneRule({ ports: [{ protocol: 'TCP', port: 443, endPort: 445 }] });
  it.each([
    ['TCP', 442, false],
    ['TCP', 443, true],
    ['TCP', 445, true],
    ['TCP', 446, false],
    ['UDP', 443, false],
    ['ICMP', 443, false],
    ['other', 443, false],
    [6, 443, true],
    [17, 443, false],
  ] as const)('protocol %s, port %d: %s', (protocol, destinationPort, matches) => {
    expect(ask(https, packet({ protocol, destinationPort })).by).toEqual(matches ? r0 : null);
  });

  it('takes ICMP as that of the family', () => {
    const icmp = oneRule({ ports: [{ protocol: 'ICMP' }] });
    expect(ask(icmp, packet({ protocol: 'ICMP' })).by).toEqual(r0);
    expect(ask(icmp, packet({ protocol: 1 })).by).toEqual(r0);
    expect(ask(icmp, packet({ protocol: 58 })).by).toBeNull();
    expect(ask(icmp, six({ protocol: 58 })).by).toEqual(r0);
    expect(ask(icmp, six({ protocol: 1 })).by).toBeNull();
  });

  it.each([
    ['eth0', 'eth0', true],
    ['eth0', 'eth01', false],
    ['eth+', 'eth', true],
    ['eth+', 'eth7.100', true],
    ['eth+', 'et', false],
    ['+', 'anything', true],
    ['e+h', 'eth', false],
  ])('pattern %s, interface %s: %s', (pattern, outInterface, matches) => {
    expect(ask(oneRule({ outInterfaces: ['lo', pattern] }), packet({ outInterface })).by).toEqual(
      matches ? r0 : null,
    );
  });

  it('names what depends on something unknown, and takes it as not matching', () => {
    const { destinationPort: _, outInterface: __, protocol: ___, ...bare } = packet();
    const sketch: PlanSketch = {
      policies: [
        {
          rules: [
            { to: 'bank', outInterfaces: ['eth0'] },
            { ports: [{ protocol: 'TCP', port: 443, endPort: 443 }] },
            { outInterfaces: ['eth+'], ports: [{ protocol: 'UDP' }] },
            { outInterfaces: ['+'], to: 'lan', action: 'Masquerade' },
          ],
        },
      ],
    };
    expect(ask(sketch, bare)).toMatchObject({
      by: { policy: 'p0', rule: 'r3' },
      uncertain: [
        { policy: 'p0', rule: 'r1' },
        { policy: 'p0', rule: 'r2' },
      ],
    });
    expect(ask(sketch, { ...bare, protocol: 'ICMP' }).uncertain).toEqual([]);
    expect(ask(sketch, { ...bare, protocol: 'UDP' }).uncertain).toEqual([{ policy: 'p0', rule: 'r2' }]);
    expect(ask(sketch, { ...bare, destinationPort: 80, outInterface: 'lo' }).uncertain).toEqual([]);
  });
});

describe('decide: translation', () => {
  it('does not match a SNAT rule without an address of the family, or whose node lacks the value', () => {
    const four = { addresses: { 4: address('198.51.100.7') } };
    const fixed: PlanSketch = { policies: [{ rules: [{ action: 'SNAT', snat: four }, {}] }] };
    expect(ask(fixed, packet())).toMatchObject({ action: 'SNAT', by: r0, address: four.addresses[4] });
    expect(ask(fixed, six())).toMatchObject({ action: 'Preserve', by: { policy: 'p0', rule: 'r1' } });
    const plan = planOf({ sets, ...oneRule({ action: 'SNAT', snat: { nodeValue: 'annotation:ip' } }) });
    const values = new Map([['annotation:ip', { 6: address('2001:db8::7') }]]);
    expect(decide(plan, { values }, six())).toMatchObject({ action: 'SNAT', address: { family: 6 } });
    expect(decide(plan, { values }, packet())).toEqual(nobody);
    expect(decide(plan, node, six())).toEqual(nobody);
  });

  it('gives the port range to protocols that have ports, and translates others without', () => {
    const portRange = { start: 20_000, end: 20_009 };
    const sketch = oneRule({ action: 'Masquerade', portRange, portAllocation: 'Random' });
    for (const protocol of ['TCP', 'UDP', 'SCTP', 132] as const) {
      expect(ask(sketch, packet({ protocol }))).toMatchObject({ portRange, portAllocation: 'Random' });
    }
    for (const protocol of ['ICMP', 'other', 47] as const) {
      const decision = ask(sketch, packet({ protocol }));
      expect(decision).toMatchObject({ action: 'Masquerade', portAllocation: 'Random' });
      expect(decision).not.toHaveProperty('portRange');
    }
  });

  it('compares what is done, not who does it', () => {
    const verdict = (more: Partial<Decision>): Decision => ({
      action: 'SNAT',
      by: r0,
      address: address('198.51.100.7'),
      portRange: { start: 1000, end: 2000 },
      portAllocation: 'Random',
      counted: [],
      uncertain: [],
      ...more,
    });
    const other = { by: { poolDefault: true }, portAllocation: 'FullyRandom', counted: [r0] } as const;
    expect(sameVerdict(verdict({}), verdict(other))).toBe(true);
    expect(sameVerdict(verdict({}), verdict({ action: 'Masquerade' }))).toBe(false);
    expect(sameVerdict(verdict({}), verdict({ address: address('198.51.100.8') }))).toBe(false);
    expect(sameVerdict(verdict({}), verdict({ portRange: { start: 1000, end: 2001 } }))).toBe(false);
    expect(sameVerdict(verdict({}), verdict({ portRange: { start: 999, end: 2000 } }))).toBe(false);
    const { address: _, portRange: __, ...plain } = verdict({ action: 'Masquerade' });
    expect(sameVerdict(plain, { ...plain })).toBe(true);
    expect(sameVerdict(plain, { ...plain, portRange: { start: 1000, end: 2000 } })).toBe(false);
    expect(sameVerdict({ ...plain, action: 'Preserve' }, { ...plain, action: 'None' })).toBe(false);
  });
});

describe('decide: after the policies', () => {
  const poolDefault = { source: 'pods', spared: 'lan' } as const;
  it('asks the pool default with its options', () => {
    const outside = packet({ to: '8.8.8.8' });
    const masquerade = { action: 'Masquerade', by: { poolDefault: true } };
    expect(ask({ poolDefault }, outside)).toMatchObject(masquerade);
    expect(ask({ poolDefault }, packet())).toEqual(nobody);
    const sparing = { ...poolDefault, sparedNodes: 'bank' };
    expect(ask({ poolDefault: sparing }, outside)).toMatchObject(masquerade);
    expect(ask({ poolDefault: sparing }, packet({ to: '192.0.2.1' }))).toEqual(nobody);
    const filtered = { ...poolDefault, outInterface: 'eth+' };
    expect(ask({ poolDefault: filtered }, outside)).toMatchObject(masquerade);
    expect(ask({ poolDefault: filtered }, { ...outside, outInterface: 'wlan0' })).toEqual(nobody);
    const { outInterface: _, ...unknown } = outside;
    expect(ask({ poolDefault: filtered }, unknown).uncertain).toEqual([{ poolDefault: true }]);
    const fixed = { ...poolDefault, addresses: { 6: address('2001:db8::7') } };
    expect(ask({ poolDefault: fixed }, outside)).toMatchObject(masquerade);
    expect(ask({ poolDefault: fixed }, six({ destination: address('2001:db8::1') }))).toMatchObject({
      action: 'SNAT',
      by: { poolDefault: true },
      address: address('2001:db8::7'),
    });
  });

  it('asks tunnels last: what the node sends in from an address that is not the tunnel’s', () => {
    const plan = planOf({ sets, poolDefault, tunnelInterfaces: ['wg0', 'vxlan0'] });
    const local = (name: string, text: string): { interface: string; address: Packet['source'] } => ({
      interface: name,
      address: address(text),
    });
    const here = {
      ...node,
      localAddresses: [
        local('eth0', '192.168.0.10'),
        local('vxlan0', '10.244.9.0'),
        local('eth0', '10.244.9.0'),
      ],
    };
    const into = packet({ source: address('192.168.0.10'), outInterface: 'vxlan0' });
    expect(decide(plan, here, into)).toMatchObject({ action: 'Masquerade', by: { tunnel: 'vxlan0' } });
    expect(decide(plan, here, { ...into, outInterface: 'eth0' })).toEqual(nobody);
    expect(decide(plan, here, { ...into, source: address('10.244.9.0') })).toEqual(nobody);
    expect(decide(plan, here, { ...into, source: address('10.244.9.1') })).toEqual(nobody);
    expect(decide(plan, node, into)).toMatchObject({ by: null, uncertain: [{ tunnel: 'vxlan0' }] });
    const { outInterface: _, ...unknown } = into;
    expect(decide(plan, here, unknown).uncertain).toEqual([{ tunnel: 'wg0' }, { tunnel: 'vxlan0' }]);
  });
});

describe('decide: the caller', () => {
  it('is told every step when it asks', () => {
    const sketch: PlanSketch = {
      sets,
      policies: [
        { source: 'bank' },
        { dryRun: true, rules: [{}] },
        { rules: [{ to: 'bank' }, { action: 'Continue' }] },
        { rules: [{ action: 'SNAT', snat: { addresses: {} } }, { outInterfaces: ['lo'] }, {}] },
      ],
    };
    expect(decide(planOf(sketch), node, packet(), { trace: true }).trace).toEqual([
      { asked: { policy: 'p0' }, outcome: 'differs', because: 'source' },
      { asked: { policy: 'p1', rule: 'r0' }, outcome: 'counts' },
      { asked: { policy: 'p2', rule: 'r0' }, outcome: 'differs', because: 'destination' },
      { asked: { policy: 'p2', rule: 'r1' }, outcome: 'continues' },
      { asked: { policy: 'p3', rule: 'r0' }, outcome: 'differs', because: 'address' },
      { asked: { policy: 'p3', rule: 'r1' }, outcome: 'differs', because: 'interface' },
      { asked: { policy: 'p3', rule: 'r2' }, outcome: 'decides' },
    ]);
    expect(decide(planOf(sketch), node, packet())).not.toHaveProperty('trace');
  });

  it('is stopped when it mixes families, or has a plan that lacks a set', () => {
    expect(() => ask({}, packet({ destination: address('fd00:1::1') }))).toThrow(
      'packet: source and destination are addresses of two families',
    );
    expect(() => ask(oneRule({ to: 'gone' }), packet())).toThrow(/plan: .* does not hold: gone/);
    expect(() => ask({ poolDefault: { sparedNodes: 'gone' } }, packet())).toThrow(/does not hold: gone/);
  });
});
