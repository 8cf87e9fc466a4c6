// Problems that show only when objects are seen together.
import { describe, expect, it } from 'vitest';
import { loadManifests } from '../../src/cli/manifests.ts';
import type { Problem } from '../../src/planner/problem.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { block, felix, networkSet, node, policy, pool } from '../kernel/scene.ts';

const NODE = node('worker-1', ['192.168.50.10', '2001:db8::10']);
const KEEP = policy('keep', [{ to: [block('192.0.2.0/24')], action: 'Preserve' }]);
const MAIN = pool('main', '10.244.0.0/16');
const WITHOUT_NAT = pool('lan', '10.245.0.0/16', { natOutgoing: false });

async function problemsOf(...objects: readonly object[]): Promise<readonly Problem[]> {
  const text = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [NODE, ...objects] });
  const manifests = await loadManifests(['-'], () => Promise.resolve(text));
  expect(manifests.verdicts.filter(({ verdict }) => verdict !== 'ok')).toEqual([]);
  return planNode(manifests.snapshot, 'worker-1').problems;
}
const about = (selection: object): object =>
  policy('keep', [{ to: [block('192.0.2.0/24')], action: 'Preserve' }], { source: selection });

describe('problems of objects together', () => {
  it('are none where all fits', async () => {
    expect(await problemsOf(MAIN, KEEP)).toEqual([]);
  });

  it.each<[string, readonly object[], Partial<Problem>, RegExp]>([
    [
      'two pools with one CIDR',
      [MAIN, pool('other', '10.244.0.0/16'), KEEP],
      { severity: 'warning', kind: 'IPPool', name: 'other', field: 'spec.cidr', reason: 'SameCIDR' },
      /10\.244\.0\.0\/16 is the CIDR of pool main too/,
    ],
    [
      'a pool that swallows the network of the nodes',
      [pool('wide', '192.168.0.0/16'), KEEP],
      { severity: 'warning', kind: 'IPPool', name: 'wide', field: 'spec.cidr', reason: 'OverlapsNodes' },
      /192\.168\.0\.0\/16 holds 192\.168\.50\.10 of node worker-1/,
    ],
    [
      'the same for IPv6',
      [pool('wide', '2001:db8::/32'), KEEP],
      { severity: 'warning', kind: 'IPPool', name: 'wide', field: 'spec.cidr', reason: 'OverlapsNodes' },
      /2001:db8::\/32 holds 2001:db8::10 of node worker-1/,
    ],
    [
      'a pool that is not there',
      [MAIN, about({ ipPools: { names: ['main', 'gone'] } })],
      { severity: 'error', field: 'spec.source.ipPools.names[1]', reason: 'NotFound' },
      /there is no IPPool "gone"/,
    ],
    [
      'a network set that is not there',
      [
        MAIN,
        networkSet('there', ['192.0.2.0/24']),
        policy('keep', [{ to: [{ networkSets: { names: ['there', 'gone'] } }], action: 'Preserve' }]),
      ],
      { severity: 'error', field: 'spec.rules[0].to[0].networkSets.names[1]', reason: 'NotFound' },
      /there is no GlobalNetworkSet "gone"/,
    ],
    [
      'a source without an address',
      [MAIN, about({ ipPools: { selector: { matchLabels: { name: 'none' } } } })],
      { severity: 'warning', field: 'spec.source', reason: 'NoAddresses' },
      /the policy has no effect/,
    ],
    [
      'a source that is not of pods alone',
      [MAIN, about({ ipBlocks: [{ cidr: '10.0.0.0/8' }] })],
      { severity: 'warning', field: 'spec.source.ipBlocks[0].cidr', reason: 'NotOnlyPods' },
      /10\.0\.0\.0\/8 reaches beyond the IPPools/,
    ],
    [
      'eBPF, which forwards what pools without natOutgoing send past all rules',
      [MAIN, WITHOUT_NAT, felix({ bpfEnabled: true }), KEEP],
      { severity: 'warning', kind: 'MasqPolicy', field: 'spec.source', reason: 'BypassedByEbpf' },
      /FelixConfiguration default has bpfEnabled/,
    ],
  ])('%s', async (_, objects, problem, message) => {
    const found = await problemsOf(...objects);
    expect(found).toMatchObject([problem]);
    expect(found[0]?.message).toMatch(message);
  });

  it('eBPF is no problem of a policy about pools with natOutgoing, nor when it is off', async () => {
    const bpf = felix({ bpfEnabled: true });
    expect(await problemsOf(MAIN, WITHOUT_NAT, bpf, about({ ipPools: { natOutgoing: 'Enabled' } }))).toEqual(
      [],
    );
    expect(await problemsOf(MAIN, WITHOUT_NAT, felix({ bpfEnabled: false }), KEEP)).toEqual([]);
  });
});
