// What `status` says of nodes and of the plans that they are pointed at.
import { describe, expect, it } from 'vitest';
import {
  condition,
  masqNodeObject,
  nodeObject,
  numbered,
  planObject,
  problemsOf,
  secondsAgo,
  type Served,
  statusOf,
} from './cli-cluster-fake.ts';

describe('nodes', () => {
  const oneNode = (status: object): Served => ({
    masqNodes: [masqNodeObject('n1', 'plan-a', status), masqNodeObject('n2', 'plan-a')],
  });

  it.each([
    ['has said nothing', { conditions: [] }, 'its applier has not reported yet'],
    [
      'fails',
      { conditions: [condition('Ready', 'False', 'ProgrammingFailed', 'ipv4: exit code 4')] },
      'ProgrammingFailed: ipv4: exit code 4',
    ],
    ['holds an older plan', { contentHash: 'older' }, 'its kernel does not hold the present plan yet'],
    [
      'holds older values of its own',
      { observedGeneration: 0 },
      'its kernel does not hold the present plan yet',
    ],
    [
      'has fallen silent',
      { lastVerifiedTime: secondsAgo(4000) },
      'Silent: its applier has not reported since',
    ],
    [
      'is contended',
      { conditions: [condition('Ready', 'True'), condition('Contended', 'True', 'PlaceContended', 'Felix')] },
      'PlaceContended: Felix',
    ],
    [
      'uses the other backend',
      {
        conditions: [
          condition('Ready', 'True'),
          condition('BackendMismatch', 'True', 'OtherBackendInUse', 'nft'),
        ],
      },
      'OtherBackendInUse: nft',
    ],
  ])('one %s', async (_, status, trouble) => {
    const { problems, nodes, totals } = await statusOf(oneNode(status));
    expect(problems).toEqual([expect.stringContaining(`node n1: ${trouble}`)]);
    expect(nodes.map(row => row.trouble !== '')).toEqual([true, false]);
    expect(totals).toMatchObject({ nodes: 2, withTrouble: 1 });
  });

  it('that are silent are not ready, and do not count as programmed', async () => {
    const { nodes, plans, totals } = await statusOf(oneNode({ lastVerifiedTime: secondsAgo(4000) }));
    expect(nodes[0]).toMatchObject({ name: 'n1', ready: 'Unknown', verifiedSecondsAgo: 4000 });
    expect(plans).toMatchObject([{ programmed: 1, nodes: 2 }]);
    expect(totals.ready).toBe(1);
  });

  it('are summed up', async () => {
    const contended = [condition('Ready', 'True'), condition('Contended', 'True')];
    const masqNodes = [
      masqNodeObject('n1', 'plan-a', { driftRepairs: 3, conditions: contended }),
      masqNodeObject('n2', 'plan-a', { driftRepairs: 4 }),
    ];
    expect((await statusOf({ masqNodes })).totals).toMatchObject({ driftRepairs: 7, contended: 1 });
  });

  it('without a plan, and MasqNodes whose Node has gone', async () => {
    const masqNodes = [masqNodeObject('n1', 'plan-a'), masqNodeObject('gone', 'plan-a', { conditions: [] })];
    const { problems, nodes, totals } = await statusOf({ masqNodes });
    expect(problems).toEqual(['node n2: the operator has given it no plan']);
    expect(nodes.map(({ name }) => name)).toEqual(['n1']);
    expect(totals).toMatchObject({ nodes: 2, ready: 1, withTrouble: 1 });
  });

  it('a plan that lacks parts, or is not there', async () => {
    const plans = [planObject('plan-a', 0, 3), planObject('plan-a', 2, 3), planObject('plan-a', 7, 3)];
    const found = await statusOf({ plans });
    expect(found.problems).toEqual(['plan plan-a: only 2 of its 3 parts are there']);
    expect(found.plans).toMatchObject([{ parts: 2, of: 3 }]);
    expect(await problemsOf({ plans: [planObject('plan-a', 1, 2)] })).toEqual([
      'plan plan-a: its first part is not there',
      'nodes n1, n2: its plan is not there',
    ]);
    expect(await problemsOf({ plans: [planObject('plan-a'), planObject('plan-new', 1, 2)] })).toEqual([]);
  });

  it('5,000 of them are told in few lines', async () => {
    const names = numbered(5000);
    const masqNodes = names.map((name, i) =>
      masqNodeObject(name, 'plan-a', i % 2 === 0 ? { contentHash: 'older' } : {}),
    );
    const status = await statusOf({ masqNodes, nodes: names.map(name => nodeObject(name)) });
    expect(status.problems).toEqual([
      'nodes n0000, n0002, n0004 and 2497 more: its kernel does not hold the present plan yet',
    ]);
    expect(status.totals).toMatchObject({ nodes: 5000, ready: 5000, withTrouble: 2500 });
  });
});
