// What `status` says of clusters in every state: what is wrong, once each, and the tables.
import { describe, expect, it } from 'vitest';
import { objectsOf } from '../../src/cli/status.ts';
import { clusterStatus, type ClusterStatus } from '../../src/cli/status-model.ts';
import { statusText } from '../../src/cli/status-text.ts';
import {
  clusterFake,
  condition,
  HEALTHY,
  LEASE,
  leaseObject,
  masqNodeObject,
  nodeObject,
  NOW,
  numbered,
  policyObject,
  problemsOf,
  secondsAgo,
  statusOf,
} from './cli-cluster-fake.ts';
import { refusal } from './cluster-fake.ts';

const { signal } = new AbortController();

const textOf = (status: ClusterStatus): string => statusText(status, { isTerminal: false });

describe('a healthy cluster', () => {
  it('as data', async () => {
    const cell = { state: 'Programmed', jumpPosition: 1 };
    const row = { plan: 'plan-a', ready: 'True', backend: 'nft', ipv4: cell, ipv6: cell, driftRepairs: 0 };
    const rest = { verifiedSecondsAgo: 60, contended: false, overruled: false, trouble: '' };
    expect(await statusOf({})).toEqual({
      healthy: true,
      problems: [],
      warnings: [],
      operator: { leader: 'operator-a', renewedSecondsAgo: 2, fresh: true },
      calicoGroup: 'crd.projectcalico.org/v1',
      totals: { nodes: 2, ready: 2, withTrouble: 0, driftRepairs: 0, contended: 0, overruled: 0 },
      policies: [
        {
          name: 'payments',
          priority: 500,
          mode: 'Enforce',
          accepted: 'True',
          nodes: '1/1',
          trouble: '',
        },
      ],
      plans: [
        {
          name: 'plan-a',
          parts: 1,
          of: 1,
          contentHash: 'hash-of-plan-a',
          nodes: 2,
          programmed: 2,
          trouble: '',
        },
      ],
      nodes: [
        { name: 'n1', ...row, ...rest },
        { name: 'n2', ...row, ...rest },
      ],
    });
  });

  it('as text', async () => {
    expect(textOf(await statusOf({}))).toBe(`all is well

operator  operator-a leads (renewed 2 s ago)
calico    crd.projectcalico.org/v1
policies  1
nodes     2 of 2 ready, 0 with trouble; 0 contended, 0 overruled, 0 drift repairs

POLICY    PRIORITY  MODE     ACCEPTED  NODES  TROUBLE
payments  500       Enforce  True      1/1

PLAN    PARTS  HASH      PROGRAMMED  TROUBLE
plan-a  1/1    hash-of-  2/2

NODE  READY  BACKEND  IPV4        IPV6        JUMP  REPAIRS  VERIFIED  PLAN    TROUBLE
n1    True   nft      Programmed  Programmed  1/1   0        60 s ago  plan-a
n2    True   nft      Programmed  Programmed  1/1   0        60 s ago  plan-a
`);
  });

  it('without anything of ours yet', async () => {
    const status = await statusOf({ policies: [], plans: [], masqNodes: [], nodes: [] });
    expect(status.problems).toEqual([]);
    expect(textOf(status)).toMatch(/no policies\n\nno plans\n\nno nodes\n$/);
  });

  it('lists policies in the order in which they are asked', async () => {
    const at = (name: string, priority: number, creationTimestamp: string) => {
      const policy = policyObject(name);
      const metadata = { ...policy.metadata, creationTimestamp };
      return { ...policy, metadata, spec: { ...(policy['spec'] as object), priority } };
    };
    const policies = [
      at('a', 500, secondsAgo(10)),
      at('b', 500, secondsAgo(20)),
      at('c', 7, secondsAgo(1)),
      at('d', 1000, secondsAgo(99)),
    ];
    expect((await statusOf({ policies })).policies.map(({ name }) => name)).toEqual(['c', 'b', 'a', 'd']);
  });
});

describe('the operator', () => {
  const STOP = 'changes are not followed, and what is in force stays';
  it.each([
    ['none', {}, `no operator leads: ${STOP}`],
    ['that gave its lease back', { lease: leaseObject(2, { holderIdentity: '' }) }, 'no operator leads'],
    [
      'that died',
      { lease: leaseObject(31) },
      `operator operator-a has not renewed its Lease for 31 s: ${STOP}`,
    ],
    ['that never renewed', { lease: leaseObject(0, { renewTime: null }) }, 'its Lease for ? s'],
  ])('%s', async (_, served, problem) => {
    const { lease: _lease, ...without } = HEALTHY;
    const objects = await objectsOf(clusterFake({ ...without, ...served }), 'natoutgoing', signal);
    const status = clusterStatus(objects, NOW);
    expect(status.problems).toEqual([expect.stringContaining(problem)]);
    expect(status.operator.fresh).toBe(false);
  });

  it('of a longer lease, or of a clock that is ahead, is alive', async () => {
    expect(await problemsOf({ lease: leaseObject(100, { leaseDurationSeconds: 60 }) })).toEqual([]);
    const { operator } = await statusOf({ lease: leaseObject(-5) });
    expect(operator).toEqual({ leader: 'operator-a', renewedSecondsAgo: 0, fresh: true });
  });
});

describe('policies', () => {
  it.each([
    [
      'refused',
      [condition('Accepted', 'False', 'Invalid', 'spec.rules: no'), condition('ResolvedRefs', 'Unknown')],
      'Invalid: spec.rules: no',
    ],
    ['dangling', [condition('ResolvedRefs', 'False', 'NotFound', 'no set')], 'NotFound: no set'],
    [
      'stale',
      [condition('Degraded', 'True', 'SourceUnavailable', 'since noon')],
      'SourceUnavailable: since noon',
    ],
    ['pending', [condition('Programmed', 'False', 'Pending', 'on 0 of 1 nodes')], 'Pending: on 0 of 1 nodes'],
  ])('%s', async (_, conditions, trouble) => {
    const status = await statusOf({ policies: [policyObject('p', conditions)] });
    expect(status.problems).toEqual([`policy p: ${trouble}`]);
    expect(status.policies).toMatchObject([{ name: 'p', trouble }]);
  });

  it('that nobody has looked at', async () => {
    expect(await problemsOf({ policies: [policyObject('p', [], { status: undefined })] })).toEqual([
      'policy p: the operator has said nothing about it yet',
    ]);
    const edited = policyObject('p');
    const policies = [{ ...edited, metadata: { ...edited.metadata, generation: 2 } }];
    expect(await problemsOf({ policies })).toEqual([
      'policy p: the operator has not looked at its latest change yet',
    ]);
    expect(await problemsOf({ policies: [policyObject('p', [], { status: 7 })] })).toHaveLength(1);
  });

  it('that are disabled, or have rules that never decide, degrade nothing', async () => {
    const disabled = policyObject('off', [condition('Programmed', 'False', 'Disabled')]);
    const shadowed = policyObject('dark', [condition('Conflicted', 'True', 'Shadowed', 'rule a')]);
    const status = await statusOf({ policies: [disabled, shadowed] });
    expect(status).toMatchObject({ healthy: true, warnings: ['policy dark: Shadowed: rule a'] });
    expect(textOf(status)).toMatch(/^all is well\n {2}warning: policy dark: Shadowed: rule a\n\n/);
  });

  it('of which many have the same trouble are told together', async () => {
    const stale = condition('Degraded', 'True', 'SourceUnavailable', 'IPPools cannot be read');
    const policies = [
      policyObject('bad', [condition('Accepted', 'False', 'Invalid', 'x')]),
      ...numbered(200).map(name => policyObject(name, [stale])),
    ];
    expect(await problemsOf({ policies })).toEqual([
      'policies n0000, n0001, n0002 and 197 more: SourceUnavailable: IPPools cannot be read',
      'policy bad: Invalid: x',
    ]);
  });

  it('repeat what nodes say, which is told once', async () => {
    const failed = condition('Degraded', 'True', 'NodesFailed', 'failed: n1 (ProgrammingFailed)');
    const broken = { conditions: [condition('Ready', 'False', 'ProgrammingFailed', 'ipv4: no')] };
    const policies = [policyObject('p', [failed]), policyObject('q', [failed])];
    const masqNodes = [masqNodeObject('n1', 'plan-a', broken), masqNodeObject('n2', 'plan-a')];
    const status = await statusOf({ policies, masqNodes });
    expect(status.problems).toEqual(['node n1: ProgrammingFailed: ipv4: no']);
    expect(status.policies.map(({ trouble }) => trouble)).toEqual(
      policies.map(() => 'NodesFailed: failed: n1 (ProgrammingFailed)'),
    );
    // The node is well again, and the operator has not said so yet.
    expect(await problemsOf({ policies })).toEqual([expect.stringMatching(/^policies p, q: NodesFailed/)]);
  });
});

describe('text', () => {
  it('names ten problems, and keeps what tools printed on one line', async () => {
    const conditions = (message: string) => [condition('Ready', 'False', 'ProgrammingFailed', message)];
    const masqNodes = numbered(12).map((name, i) =>
      masqNodeObject(name, 'plan-a', {
        conditions: conditions(`line ${i}\n\u001b[31mred\t${'x'.repeat(200)}`),
      }),
    );
    const text = textOf(await statusOf({ masqNodes, nodes: numbered(12).map(name => nodeObject(name)) }));
    const lines = text.split('\n');
    expect(lines[0]).toBe('12 problems:');
    expect(lines[1]).toBe(`  node n0000: ProgrammingFailed: line 0 [31mred ${'x'.repeat(200)}`);
    expect(lines[11]).toBe('  … and 2 more (see -o json)');
    expect(text).not.toContain('\u001b');
    expect(lines.filter(line => line.startsWith('n0')).every(line => line.endsWith('x…'))).toBe(true);
  });

  it('says long times in larger units', async () => {
    const masqNodes = [
      masqNodeObject('n1', 'plan-a', { lastVerifiedTime: secondsAgo(1199) }),
      masqNodeObject('n2', 'plan-a', { lastVerifiedTime: secondsAgo(90_000) }),
    ];
    const text = textOf(await statusOf({ masqNodes }));
    expect(text).toMatch(/^n1 .* 19 min ago /m);
    expect(text).toMatch(/^n2 .* 25 h ago /m);
  });
});

describe('what cannot be read', () => {
  it('the kinds of ours', async () => {
    const { masqNodes: _, ...without } = HEALTHY;
    await expect(objectsOf(clusterFake(without), 'natoutgoing', signal)).rejects.toThrow(
      'the cluster has no MasqNodes: the CustomResourceDefinitions of natoutgoing.io are not installed',
    );
  });

  it("a lease that may not be read is not 'no operator'", async () => {
    const api = clusterFake(HEALTHY, path => (path === LEASE ? refusal(403) : undefined));
    await expect(objectsOf(api, 'natoutgoing', signal)).rejects.toThrow(
      `GET ${LEASE}: 403: the server says 403 (its account needs the verb get on leases.coordination.k8s.io)`,
    );
  });

  it('a namespace is a name, whatever is in it', async () => {
    const api = clusterFake(HEALTHY);
    expect((await objectsOf(api, 'a/../b?', signal)).lease).toBeUndefined();
    expect(api.requests.map(({ path }) => path)).toContain(LEASE.replace('/natoutgoing/', '/a%2F..%2Fb%3F/'));
  });

  it("Calico's group is a problem of the cluster, and no error", async () => {
    const { v1: _, ...without } = HEALTHY;
    const status = clusterStatus(await objectsOf(clusterFake(without), 'natoutgoing', signal), NOW);
    expect(status).toMatchObject({ healthy: false, calicoGroup: null });
    expect(status.problems).toEqual([expect.stringMatching(/^Calico's IPPools are not served/)]);
    expect(textOf(status)).toContain('calico    not served\n');
  });
});
