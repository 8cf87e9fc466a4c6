// When a flush looks and when not, what it asks, how few deletions it makes, and what happens when tools fail.
import { describe, expect, it } from 'vitest';
import { flushChanged, type FlushReport } from '../../src/applier/flush.ts';
import type { PlannedNode } from '../../src/applier/changed.ts';
import { FAMILIES } from '../../src/cidr/address.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import type { ConntrackEntry } from '../../src/kernel/conntrack.ts';
import type { NodeValues, Plan } from '../../src/planner/plan.ts';
import { planOf, type RuleSketch } from '../oracle/hand-made.ts';
import { address } from '../oracle/universe.ts';
import { type FakeTable, fakeTable, type Interference } from './flush-fake.ts';

const POD = '10.244.0.5';
const NODE = '192.168.50.10';
const BANK = '192.0.2.7';
const SETS = { pods: ['10.244.0.0/16', 'fd00:244::/48'], bank: ['192.0.2.0/24', '2001:db8:2::/48'] };

const withRules = (rules: readonly RuleSketch[], connectionPolicy: 'Keep' | 'FlushChanged'): Plan =>
  planOf({ sets: SETS, policies: [{ name: 'bank', connectionPolicy, rules }] });

const MASQUERADE = withRules([{ to: 'bank', action: 'Masquerade' }], 'FlushChanged');
const PRESERVE = withRules([{ to: 'bank' }], 'FlushChanged');

const snat = (text: string, more: RuleSketch = {}): Plan =>
  withRules(
    [{ to: 'bank', action: 'SNAT', snat: { addresses: { 4: address(text) } }, ...more }],
    'FlushChanged',
  );

const on = (plan: Plan, values: NodeValues = new Map()): PlannedNode => ({
  plan,
  node: { values, localAddresses: [{ interface: 'eth0', address: address(NODE) }] },
});

interface Sketch {
  readonly to?: string;
  readonly became?: string;
  readonly port?: number;
  readonly sourcePort?: number;
  readonly replyPort?: number;
  readonly zone?: number;
  readonly directionalZone?: boolean;
}

/** Connections of TCP from the pod; ids from 1. */
const connections = (...sketches: readonly Sketch[]): readonly ConntrackEntry[] =>
  sketches.map(({ to = BANK, became = NODE, port = 443, ...more }, index) => ({
    family: 4,
    protocol: 6,
    zone: more.zone ?? 0,
    id: index + 1,
    directionalZone: more.directionalZone ?? false,
    original: {
      source: address(POD),
      destination: address(to),
      sourcePort: more.sourcePort ?? 1000 + index,
      destinationPort: port,
    },
    reply: {
      source: address(to),
      destination: address(became),
      sourcePort: port,
      destinationPort: more.replyPort ?? 2000 + index,
    },
  }));

const flush = (
  table: FakeTable,
  before: PlannedNode | undefined,
  after: PlannedNode,
  more: { readonly signal?: AbortSignal; readonly clock?: Clock; readonly limitMs?: number } = {},
): Promise<FlushReport> => flushChanged({ before, after, exec: table.exec, clock: systemClock, ...more });

const deletionsOf = (table: FakeTable): readonly string[] =>
  table.commands.filter(command => command.startsWith('conntrack -D'));

describe('no entry is looked at', () => {
  const kept = withRules([{ to: 'bank' }], 'Keep');
  const dry = planOf({
    sets: SETS,
    policies: [{ name: 'bank', dryRun: true, connectionPolicy: 'FlushChanged', rules: [{ to: 'bank' }] }],
  });

  it.each([
    ['no policy asks for a flush', on(withRules([], 'Keep')), on(kept), 'noFlushPolicy'],
    ['only a dry run asks for it', on(kept), on(dry), 'noFlushPolicy'],
    ['the plan before is not known', undefined, on(PRESERVE), 'unknownBefore'],
  ] as const)('when %s', async (_when, before, after, notLooked) => {
    const table = fakeTable(connections({}));
    expect(await flush(table, before, after)).toEqual({
      looked: 0,
      deleted: 0,
      perPolicy: [],
      skipped: [],
      errors: [],
      notLooked,
    });
    expect(table.commands).toEqual([]);
  });

  it('when plan and values are the same', async () => {
    const side = on(PRESERVE);
    const table = fakeTable(connections({}));
    const report = await flush(table, side, { ...side, node: { ...side.node, localAddresses: [] } });
    expect(report.notLooked).toBe('samePlan');
    expect(table.commands).toEqual([]);
  });
});

describe('what is deleted', () => {
  it('follows the values of the node, where the plan stays', async () => {
    const key = 'address:ExternalIP';
    const plan = withRules([{ to: 'bank', action: 'SNAT', snat: { nodeValue: key } }], 'FlushChanged');
    const value = (text: string): NodeValues => new Map([[key, { 4: address(text) }]]);
    const table = fakeTable(connections({ became: '198.51.100.7' }, { became: '198.51.100.8' }));
    const report = await flush(table, on(plan, value('198.51.100.7')), on(plan, value('198.51.100.8')));
    expect(report).toMatchObject({ looked: 2, deleted: 1, perPolicy: [{ policy: 'bank', deleted: 1 }] });
    expect(table.left()).toEqual([2]);
  });

  it('is what only the policy before, or only the one after, asks for', async () => {
    const keeping = withRules([{ to: 'bank' }], 'Keep');
    const none = planOf({ sets: SETS });
    const pairs = [
      [MASQUERADE, keeping],
      [withRules([{ to: 'bank', action: 'Masquerade' }], 'Keep'), PRESERVE],
      [MASQUERADE, none],
    ] as const;
    for (const [before, after] of pairs) {
      const table = fakeTable(connections({}));
      expect(await flush(table, on(before), on(after))).toMatchObject({ deleted: 1 });
    }
  });

  it('is one deletion for all clients of one service, and names no other connection', async () => {
    const table = fakeTable(connections({}, {}, {}, { port: 80 }, { to: '8.8.8.8' }));
    expect(await flush(table, on(MASQUERADE), on(PRESERVE))).toMatchObject({ looked: 5, deleted: 4 });
    expect(table.left()).toEqual([5]);
    expect(deletionsOf(table)).toEqual([
      `conntrack -D -f ipv4 -o id -w 0 -p 6 -s ${POD} -d ${BANK} -r ${BANK} -q ${NODE} --dport 443 --reply-port-src 443`,
      `conntrack -D -f ipv4 -o id -w 0 -p 6 -s ${POD} -d ${BANK} -r ${BANK} -q ${NODE} --dport 80 --reply-port-src 80`,
    ]);
  });

  it('is named with its zone, and left where the zone cannot be named', async () => {
    const table = fakeTable(connections({}, { zone: 7 }, { port: 80 }, { port: 80, directionalZone: true }));
    expect(await flush(table, on(MASQUERADE), on(PRESERVE))).toMatchObject({
      deleted: 2,
      skipped: [{ reason: 'zones', entries: 2 }],
    });
    expect(table.left()).toEqual([3, 4]);
  });

  it('is named alone where new connections look like old ones: when only ports changed', async () => {
    const ranged = snat('198.51.100.7', { portRange: { start: 2000, end: 2001 } });
    const became = '198.51.100.7';
    const table = fakeTable(connections({ became }, { became }, { became }, { became, replyPort: 9 }));
    expect(await flush(table, on(snat(became)), on(ranged))).toMatchObject({ deleted: 2 });
    expect(table.left()).toEqual([1, 2]);
    const all = fakeTable(connections({ became, replyPort: 9 }));
    expect(await flush(all, on(snat(became)), on(ranged))).toMatchObject({ deleted: 1 });
    expect(deletionsOf(all)).toEqual([expect.stringContaining('--sport 1000 --dport 443')]);
  });

  it('is not what others translated, what is right already, and what stays on the node', async () => {
    const table = fakeTable(
      connections({ became: POD }, { became: '10.244.0.1' }, { became: '198.51.100.7' }, { to: NODE }),
    );
    const everywhere = (action: 'Masquerade' | 'Preserve'): Plan => withRules([{ action }], 'FlushChanged');
    expect(await flush(table, on(everywhere('Masquerade')), on(everywhere('Preserve')))).toEqual({
      looked: 4,
      deleted: 0,
      perPolicy: [],
      skipped: [{ reason: 'translatedByOthers', entries: 3 }],
      errors: [],
    });
    const masqueraded = fakeTable(connections({ became: NODE }));
    expect(await flush(masqueraded, on(MASQUERADE), on(snat(NODE)))).toMatchObject({
      deleted: 0,
      skipped: [],
    });
  });
});

describe('a rule that asks for an interface', () => {
  const byEth1 = withRules([{ outInterfaces: ['eth1'] }], 'FlushChanged');
  const masquerade = withRules([{ action: 'Masquerade' }], 'FlushChanged');
  const routes: Interference = ({ tool, args, stdin = '' }) => {
    if (tool !== 'ip' || !args.includes('-batch')) return undefined;
    const answers: Readonly<Record<string, string>> = {
      [`route get ${POD}`]: `[{"dst":"${POD}","dev":"cali1"}]`,
      [`route get ${BANK} from ${POD} iif cali1`]: `[{"dst":"${BANK}","from":"${POD}","dev":"eth1","iif":"cali1"}]`,
      [`route get ${NODE} from ${POD} iif cali1`]: `[{"type":"local","dst":"${NODE}","from":"${POD}","dev":"lo"}]`,
    };
    const stdout = stdin.split('\n').flatMap(line => answers[line] ?? []);
    return { stdout: stdout.join('\n'), code: 1, stderr: 'RTNETLINK answers: Network is unreachable' };
  };

  it('is judged by the route; without one the entry stays', async () => {
    const table = fakeTable(connections({}, { port: 80 }, { to: '8.8.8.8' }), routes);
    expect(await flush(table, on(masquerade), on(byEth1))).toMatchObject({
      looked: 3,
      deleted: 2,
      skipped: [{ reason: 'uncertain', entries: 1 }],
    });
    expect(table.left()).toEqual([3]);
    expect(table.commands.filter(command => command.startsWith('ip '))).toHaveLength(2);
  });

  it('is asked about though it decides nothing itself, but lets a later policy decide', async () => {
    const keeping: RuleSketch[] = [{ action: 'Masquerade' }];
    const policies = [
      { name: 'first', rules: [{ outInterfaces: ['eth1'], action: 'Continue' as const }, ...keeping] },
      { name: 'bank', connectionPolicy: 'FlushChanged' as const, rules: [{}] },
    ];
    const table = fakeTable(connections({ became: POD }), routes);
    const after = planOf({ sets: SETS, policies: [{ name: 'first', rules: keeping }] });
    expect(await flush(table, on(planOf({ sets: SETS, policies })), on(after))).toMatchObject({
      deleted: 1,
      perPolicy: [{ policy: 'bank', deleted: 1 }],
    });
  });

  it('leaves all such entries when routing cannot be asked, and says so', async () => {
    const table = fakeTable(connections({}), ({ tool }) =>
      tool === 'ip' ? { code: null, spawnError: 'ENOENT' } : undefined,
    );
    const report = await flush(table, on(masquerade), on(byEth1));
    expect(report).toMatchObject({ deleted: 0, skipped: [{ reason: 'uncertain', entries: 1 }] });
    expect(report.errors.map(({ message }) => message)).toEqual(['ip is not installed or not in PATH']);
  });
});

describe('what goes wrong', () => {
  it('is told when the tool is missing, once for each family', async () => {
    const table = fakeTable(connections({}), () => ({ code: null, spawnError: 'ENOENT' }));
    const report = await flush(table, on(MASQUERADE), on(PRESERVE));
    expect(report).toMatchObject({ looked: 0, deleted: 0 });
    expect(report.errors.map(({ kind, tool }) => [kind, tool])).toEqual(
      FAMILIES.map(() => ['not-found', 'conntrack']),
    );
  });

  it('in one family does not stop the other', async () => {
    const table = fakeTable(connections({}), ({ args }) =>
      args.includes('ipv6') ? { code: 1, stderr: 'Operation failed: sorry' } : undefined,
    );
    const report = await flush(table, on(MASQUERADE), on(PRESERVE));
    expect(report).toMatchObject({ looked: 1, deleted: 1, errors: [{ kind: 'other', tool: 'conntrack' }] });
  });

  it('is tried again when an entry ended while the tool was at it', async () => {
    let races = 2;
    const table = fakeTable(connections({}), ({ args }) =>
      args[0] === '-D' && races-- > 0
        ? { code: 1, stderr: "conntrack v1.4.7: Operation failed: such conntrack doesn't exist" }
        : undefined,
    );
    expect(await flush(table, on(MASQUERADE), on(PRESERVE))).toMatchObject({ deleted: 1, errors: [] });
    expect(deletionsOf(table)).toHaveLength(3);
  });

  it('is not that an entry is gone already', async () => {
    const table = fakeTable(connections({}), ({ args }) =>
      args[0] === '-D'
        ? { code: 1, stderr: 'conntrack v1.4.7: 0 flow entries have been deleted.' }
        : undefined,
    );
    expect(await flush(table, on(MASQUERADE), on(PRESERVE))).toMatchObject({ deleted: 0, errors: [] });
  });

  it('is counted when there is no time left', async () => {
    const table = fakeTable(connections({}, { port: 80 }, { port: 80 }));
    let time = 0;
    const clock: Clock = { ...systemClock, now: () => (time += 1000) };
    // The start, then one look before each of two deletions, the larger first.
    expect(await flush(table, on(MASQUERADE), on(PRESERVE), { clock, limitMs: 1500 })).toMatchObject({
      deleted: 2,
      skipped: [{ reason: 'timeLimit', entries: 1 }],
    });
  });

  it('is an abort, by which nothing more is run', async () => {
    const stop = new AbortController();
    const table = fakeTable(connections({}), ({ args }) => {
      if (args[0] === '-L') stop.abort(new Error('stop'));
      return undefined;
    });
    await expect(flush(table, on(MASQUERADE), on(PRESERVE), { signal: stop.signal })).rejects.toThrow('stop');
    expect(table.commands).toHaveLength(1);
  });
});
