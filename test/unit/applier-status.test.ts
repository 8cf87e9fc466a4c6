// What a node says of itself, and when.
import { describe, expect, it } from 'vitest';
import { type NodeFacts, type NodeStatus, nodeStatus } from '../../src/applier/status.ts';
import { createStatusWriter, type StatusOfNode } from '../../src/applier/status-writer.ts';
import type { Outcome } from '../../src/cluster/apply.ts';
import type { Rivals } from '../../src/kernel/foreign/rivals.ts';
import type { DriverReport, FamilyReport } from '../../src/kernel/report.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { settle, virtualClock } from './cluster-fake.ts';

const NOW = new Date('2026-01-31T12:00:00.500Z');
const FAMILY: FamilyReport = {
  ok: true,
  changed: false,
  sets: 3,
  entries: 10,
  chains: 2,
  rules: 4,
  writes: { ipsetRestores: 0, iptablesRestores: 0 },
  repairs: [],
  jumpPosition: 1,
  foreignAbove: [],
  pendingDestroys: [],
  warnings: [],
};
const UNAVAILABLE: FamilyReport = { ...FAMILY, unavailable: true, entries: 0 };
const failed = (kind: 'other' | 'unsupported', entries: number): FamilyReport => ({
  ...FAMILY,
  ok: false,
  entries,
  error: { kind, message: 'it does not work', tool: 'iptables', stderr: '' },
});
const reportOf = (ipv4: FamilyReport, ipv6: FamilyReport = FAMILY): DriverReport => ({
  backend: 'nft',
  why: 'KUBE-IPTABLES-HINT found by iptables-nft',
  changed: false,
  families: { ipv4, ipv6 },
});
const APPLIED = { origin: { name: 'plan-a', generation: 7, contentHash: '0123456789abcdef' }, at: NOW };
const FACTS: NodeFacts = {
  generation: 3,
  applied: APPLIED,
  report: reportOf(FAMILY),
  verifiedAt: NOW,
  driftRepairs: 0,
};

const NO_RIVALS: Rivals = { rules: [], gaps: [] };
const rival = (rule: string): Rivals['rules'][number] => ({
  certainty: 'wins',
  doubts: [],
  rule,
  place: 'iptables-legacy nat POSTROUTING rule 1',
  effect: 'masquerades',
  sentence: 'It masquerades.',
});

/** No half of a character at its end. */
const wellFormed = (text: string): boolean => !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])/.test(text);

const conditionOf = (status: NodeStatus, type: string) => status.conditions.find(it => it.type === type);

describe('the status of a node', () => {
  it('says what the kernel holds', () => {
    expect(nodeStatus(FACTS, undefined, NOW)).toMatchObject({
      observedGeneration: 3,
      plan: 'plan-a',
      planGeneration: 7,
      contentHash: '0123456789abcdef',
      backend: 'nft',
      families: { ipv4: { state: 'Programmed', sets: 3, entries: 10, rules: 4, jumpPosition: 1 } },
      lastAppliedTime: '2026-01-31T12:00:00Z',
      lastVerifiedTime: '2026-01-31T12:00:00Z',
    });
  });

  it.each<[string, Partial<NodeFacts>, string, string]>([
    ['all is well', {}, 'True', 'Programmed'],
    ['nothing was applied yet', { applied: undefined } as never, 'Unknown', 'Pending'],
    ['a family fails', { report: reportOf(failed('other', 1)) }, 'False', 'ProgrammingFailed'],
    [
      'a family is not supported and has something to do',
      { report: reportOf(FAMILY, failed('unsupported', 1)) },
      'False',
      'ProgrammingFailed',
    ],
    [
      'a family is not supported and has nothing to do',
      { report: reportOf(FAMILY, UNAVAILABLE) },
      'True',
      'Programmed',
    ],
    [
      'the plan is not understood',
      { trouble: { reason: 'PlanNotUnderstood', message: 'version 2' } },
      'False',
      'PlanNotUnderstood',
    ],
  ])('is Ready or not when %s', (_, change, status, reason) => {
    expect(conditionOf(nodeStatus({ ...FACTS, ...change }, undefined, NOW), 'Ready')).toMatchObject({
      status,
      reason,
    });
  });

  it('tells of a rival with the remedy, and of another backend', () => {
    const rival = { ...FAMILY, contended: { foreign: '-A POSTROUTING -j cali-POSTROUTING' } };
    const status = nodeStatus(
      { ...FACTS, report: reportOf(rival), otherBackend: 'others use legacy' },
      undefined,
      NOW,
    );
    expect(conditionOf(status, 'Contended')).toMatchObject({
      status: 'True',
      message: expect.stringContaining('chainInsertMode: Append'),
    });
    expect(conditionOf(status, 'BackendMismatch')).toMatchObject({
      status: 'True',
      message: 'others use legacy',
    });
  });

  it('keeps the time of a condition whose status stays', () => {
    const first = nodeStatus(FACTS, undefined, NOW);
    const later = new Date(NOW.getTime() + 60_000);
    const trouble = { reason: 'PlanInvalid', message: 'x' };
    const second = nodeStatus({ ...FACTS, trouble }, first, later);
    expect(conditionOf(second, 'Ready')?.lastTransitionTime).toBe('2026-01-31T12:01:00Z');
    expect(conditionOf(second, 'Contended')?.lastTransitionTime).toBe('2026-01-31T12:00:00Z');
  });

  it('cuts what is too long for its schema', () => {
    const long = '\u{1F600}'.repeat(5000);
    const report = reportOf({
      ...failed('other', 1),
      error: { kind: 'other', message: long, tool: '', stderr: '' },
    });
    const rivals = {
      ipv4: { rules: Array.from({ length: 40 }, () => rival(long)), gaps: [] },
      ipv6: NO_RIVALS,
    };
    const { families, conditions } = nodeStatus({ ...FACTS, report, rivals }, undefined, NOW);
    expect(families.ipv4?.error?.length).toBeLessThanOrEqual(4096);
    expect(families.ipv4?.foreignRules?.length).toBe(16);
    expect(families.ipv4?.foreignRules?.every(rule => rule.length <= 1024 && wellFormed(rule))).toBe(true);
    expect(conditions.every(({ message }) => message.length <= 4096 && wellFormed(message))).toBe(true);
  });
});

describe('rules of others that are asked before ours', () => {
  const said = (rivals: NodeFacts['rivals']) => {
    const facts = rivals === undefined ? FACTS : { ...FACTS, rivals };
    const status = nodeStatus(facts, undefined, NOW);
    const { status: is, reason, message } = conditionOf(status, 'Overruled') ?? expect.fail('no condition');
    return { is, reason, message, foreignRules: status.families.ipv4?.foreignRules };
  };
  const both = (ipv4: Rivals) => ({ ipv4, ipv6: NO_RIVALS });

  it('are not known before somebody looked', () => {
    expect(said(undefined)).toMatchObject({ is: 'Unknown', reason: 'NotLooked', foreignRules: undefined });
  });

  it('are none', () => {
    expect(said(both(NO_RIVALS))).toMatchObject({
      is: 'False',
      reason: 'NoForeignRule',
      foreignRules: undefined,
    });
  });

  it('cannot be read', () => {
    const gaps = ['Chains of nftables are not known: nft is not installed or not in PATH.'];
    expect(said(both({ rules: [], gaps }))).toMatchObject({
      is: 'Unknown',
      reason: 'NotReadable',
      message: gaps[0],
    });
  });

  it('win or may win; the message says whose they are and what to do', () => {
    const felix = { ...rival('-A POSTROUTING -j cali-POSTROUTING'), program: "Calico's Felix" };
    expect(said(both({ rules: [felix], gaps: [] }))).toEqual({
      is: 'True',
      reason: 'ForeignRuleWins',
      message:
        "rules of others are asked before ours for what pods send; set chainInsertMode: Append in the FelixConfiguration, or natOutgoing: false on the IPPools that policies are about. They are: ipv4: Calico's Felix: -A POSTROUTING -j cali-POSTROUTING (iptables-legacy nat POSTROUTING rule 1; wins)",
      foreignRules: [
        "Calico's Felix: -A POSTROUTING -j cali-POSTROUTING (iptables-legacy nat POSTROUTING rule 1; wins)",
      ],
    });
    const doubtful = { ...rival('-j MASQUERADE'), certainty: 'may win' as const, doubts: ['it depends'] };
    expect(said(both({ rules: [doubtful], gaps: [] }))).toMatchObject({
      is: 'True',
      reason: 'ForeignRuleMayWin',
      message: expect.stringContaining('remove or narrow the rule'),
    });
  });

  it.each([
    ['-A POSTROUTING -m comment --comment "cali:abc" -j cali-POSTROUTING', 'chainInsertMode'],
    ['-A POSTROUTING -j FLANNEL-POSTRTG', '--ip-masq'],
    ['-A POSTROUTING -j MASQUERADE', 'remove or narrow the rule, '],
  ])('a fight with %s is told with its remedy', (foreign, remedy) => {
    const report = reportOf({ ...FAMILY, contended: { foreign } });
    const { message } = conditionOf(nodeStatus({ ...FACTS, report }, undefined, NOW), 'Contended') ?? {};
    expect(message).toContain(foreign);
    expect(message).toContain(remedy);
  });
});

describe('the writer of statuses', () => {
  const start = (
    answer: () => Outcome | Error = () => ({ result: 'done', object: { metadata: { name: 'n' } } }),
  ) => {
    const clock = virtualClock();
    const sent: { readonly at: number; readonly target: StatusOfNode }[] = [];
    const stop = new AbortController();
    const writer = createStatusWriter({
      clock,
      random: () => 0.5,
      log: silentLog,
      send: target => {
        sent.push({ at: clock.now(), target });
        const outcome = answer();
        return outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome);
      },
    });
    const running = writer.run(stop.signal);
    const end = async (): Promise<void> => {
      stop.abort();
      await running;
    };
    return { clock, sent, writer, end };
  };
  const statusOf = (driftRepairs: number, uid = 'u'): StatusOfNode => ({
    uid,
    status: nodeStatus({ ...FACTS, driftRepairs }, undefined, NOW),
  });

  it('writes news at once, folds what follows within a second, and the same never', async () => {
    const { clock, sent, writer, end } = start();
    writer.offer(statusOf(0));
    await settle();
    for (let i = 1; i <= 50; i++) writer.offer(statusOf(i));
    await settle();
    expect(sent.length).toBe(1);
    await clock.advance(1_000);
    expect(sent.map(({ target }) => target.status.driftRepairs)).toEqual([0, 50]);
    writer.offer(statusOf(50));
    await clock.advance(60_000);
    expect(sent.length).toBe(2);
    await end();
  });

  it('gives a sign of life after a quarter of an hour, and not for a look at the kernel', async () => {
    const { clock, sent, writer, end } = start();
    writer.offer(statusOf(0));
    await settle();
    const later = { uid: 'u', status: { ...statusOf(0).status, lastVerifiedTime: '2026-01-31T12:10:00Z' } };
    writer.offer(later);
    await clock.advance(899_000);
    expect(sent.length).toBe(1);
    await clock.advance(2_000);
    expect(sent[1]?.target).toEqual(later);
    await end();
  });

  it('tells a MasqNode that was made anew everything again', async () => {
    const { clock, sent, writer, end } = start();
    writer.offer(statusOf(0));
    await settle();
    writer.offer(statusOf(0, 'other'));
    await clock.advance(1_000);
    expect(sent.map(({ target }) => target.uid)).toEqual(['u', 'other']);
    await end();
  });

  it.each<[string, Outcome | Error]>([
    ['an error', new Error('no answer')],
    ['a conflict', { result: 'conflict', message: 'x' }],
    ['a refusal', { result: 'refused', message: 'x' }],
  ])('tries again after %s, ever more seldom', async (_, outcome) => {
    const { clock, sent, writer, end } = start(() => outcome);
    writer.offer(statusOf(0));
    await settle();
    await clock.advance(300_000);
    expect(sent.length).toBeGreaterThan(8);
    expect(sent.length).toBeLessThan(30);
    await end();
  });
});
