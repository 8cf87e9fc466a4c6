// Every child process of a change in turn fails, does half of its work, or says that it did it: the next apply makes
// it right, by the same process and by a new one.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Command, CommandResult } from '../../src/kernel/exec.ts';
import type { FamilyTables } from '../../src/render/tables.ts';
import { cleanup } from '../../src/kernel/cleanup.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { poolTables, rule, tablesOf } from '../unit/kernel-tables.ts';
import { type Bench, ipv4, openBench, writesOf } from './driver-support.ts';

const rules = (...policies: readonly string[]): FamilyTables =>
  tablesOf(
    4,
    {
      'all-pools': ['10.0.0.0/16', ...policies.map((_, i) => `10.${i + 1}.0.0/16`)],
      'masq-pools': policies.map((_, i) => `10.${i + 1}.0.0/16`),
      ...Object.fromEntries(policies.map(name => [`${name}-src`, ['10.0.0.0/16', '!10.0.9.0/24']])),
    },
    {
      'masq-POSTROUTING': [
        ...policies.map(name => rule(`-j masq-p-${name}`, name)),
        rule(
          '-m set --match-set masq4-masq-pools src -m set ! --match-set masq4-all-pools dst -j MASQUERADE',
        ),
      ],
      ...Object.fromEntries(
        policies.map(name => [
          `masq-p-${name}`,
          [rule(`-m set --match-set masq4-${name}-src src -j NETMAP --to 0.0.0.0/0`, name)],
        ]),
      ),
    },
  );

/** Two live sets change, a policy goes and another one comes: everything that a change can be, staged. */
const OLD = rules('one', 'two');
const NEW = rules('two', 'three', 'four');

type Fault = (command: Command, run: (command: Command) => Promise<CommandResult>) => Promise<CommandResult>;

const ended = (part: Partial<CommandResult>): Promise<CommandResult> =>
  Promise.resolve({ code: 0, stdout: '', stderr: '', timedOut: false, ...part });

const FAULTS: readonly (readonly [string, Fault])[] = [
  ['fails', () => ended({ code: 1, stderr: 'something is wrong' })],
  ['is killed after its time', () => ended({ code: null, timedOut: true })],
  ['does nothing and says that all is well', () => ended({})],
  [
    'does its work and fails',
    async (command, run) => ({ ...(await run(command)), code: 1, stderr: 'something is wrong' }),
  ],
  [
    'does half of its work and fails',
    async (command, run) => {
      const lines = command.stdin?.split('\n') ?? [];
      const half = lines.slice(0, lines.length / 2).map(line => `${line}\n`);
      return { ...(await run({ ...command, stdin: half.join('') })), code: 1, stderr: 'something is wrong' };
    },
  ],
];

describe.each(['nft', 'legacy'] as const)('%s', backend => {
  let bench: Bench;
  let wanted: string;

  beforeAll(async () => {
    bench = await openBench(backend);
    await bench.driver().apply([NEW]);
    wanted = await bench.dump();
  });

  afterAll(() => bench.ns.close());

  /** Starts from the old rules; the command of that number is spoiled. Returns whether there was one. */
  async function changeWithFault(at: number, fault: Fault, restarts: boolean): Promise<boolean> {
    await cleanup({ exec: bench.ns.exec, log: silentLog, dryRun: false });
    const driver = bench.driver();
    expect(ipv4(await driver.apply([OLD]))).toMatchObject({ ok: true, changed: true });
    let number = 0;
    bench.spoil = (command, run) => (number++ === at ? fault(command, run) : undefined);
    await (restarts ? bench.driver() : driver).apply([NEW]);
    bench.spoil = () => undefined;
    // What waits for its removal is due by then.
    bench.clock.forward(3_600_000);
    // A tool that lies is found out by looking, not by the next change.
    const mender = restarts ? bench.driver() : driver;
    expect(ipv4(await mender.apply([NEW]))).toMatchObject({ ok: true });
    bench.clock.forward(3_600_000);
    expect(ipv4(await mender.verify())).toMatchObject({ ok: true, pendingDestroys: [] });
    expect(await bench.dump()).toBe(wanted);
    bench.commands.length = 0;
    expect(await bench.driver().apply([NEW])).toMatchObject({ changed: false });
    expect(writesOf(bench)).toEqual([]);
    return number > at;
  }

  describe.each([
    ['the same process', false],
    ['a new process', true],
  ])('mended by %s', (_, restarts) => {
    it.each(FAULTS)(
      'a child %s',
      async (_name, fault) => {
        let at = 0;
        while (await changeWithFault(at, fault, restarts)) at++;
        // A staged change alone is four restores, with a belief or without.
        expect(at).toBeGreaterThanOrEqual(4);
      },
      120_000,
    );
  });
});

describe('errors', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await openBench('nft');
  });

  afterAll(() => bench.ns.close());

  it('names the line and what the set is for, and the other family is done', async () => {
    const full = tablesOf(
      4,
      { small: ['10.0.0.0/16', '10.1.0.0/16'] },
      { 'masq-POSTROUTING': [rule('-m set --match-set masq4-small src -j MASQUERADE', 'payments/bank')] },
      1,
    );
    const report = await bench.driver().apply([full, poolTables(6, ['fd00::/64'], ['fd00::/64'])]);
    expect(report.families).toMatchObject({
      ipv4: { ok: false, error: { kind: 'full', tool: 'ipset' } },
      ipv6: { ok: true, changed: true },
    });
    expect(ipv4(report).error?.message).toMatch(
      /Error in line 3: Hash is full.*the line is: add masq4-small 10\.1\.0\.0\/16 -exist; the set is for payments\/bank/,
    );
  });

  it('names the line of a rule that iptables does not take', async () => {
    const bad = tablesOf(4, {}, { 'masq-POSTROUTING': [rule('-j MASQUERADE --random-fuller', 'odd')] });
    const { error } = ipv4(await bench.driver().apply([bad]));
    expect(error).toMatchObject({ kind: 'unsupported', tool: 'iptables-nft-restore' });
    expect(error?.message).toMatch(
      /the line is: -A masq-POSTROUTING .*natoutgoing:\w+ odd" -j MASQUERADE --random-f/,
    );
  });

  it('says in one sentence which tool is missing, and does the other family', async () => {
    bench.spoil = ({ tool }) =>
      tool.startsWith('ip6tables') ? ended({ code: null, spawnError: 'ENOENT' }) : undefined;
    const tables = [poolTables(4, ['10.0.0.0/16'], []), poolTables(6, ['fd00::/64'], [])];
    const report = await bench.driver().apply(tables);
    expect(report.families).toMatchObject({
      ipv4: { ok: true },
      ipv6: {
        ok: false,
        error: { kind: 'not-found', message: 'ip6tables-nft is not installed or not in PATH' },
      },
    });
    const unneeded = tables.map(t => ({ ...t, needed: t.family === 4 }));
    expect((await bench.driver().apply(unneeded)).families.ipv6).toMatchObject({
      ok: true,
      warnings: ['ipv6 is not programmed: ip6tables-nft is not installed or not in PATH'],
    });
    bench.spoil = () => undefined;
  });

  it('stops at once when it is told to', async () => {
    const stop = new AbortController();
    bench.spoil = () => {
      stop.abort(new Error('enough'));
      return undefined;
    };
    await expect(bench.driver().apply([NEW], stop.signal)).rejects.toThrow('enough');
    bench.spoil = () => undefined;
  });
});

describe('a busy xtables lock', () => {
  it('is waited for, and given up after the limit', async () => {
    const bench = await openBench('legacy');
    const holder = bench.ns.exec.run({
      tool: 'sh',
      args: ['-c', 'flock /run/xtables.lock sh -c "touch /run/held; sleep 8"'],
      timeoutMs: 20_000,
    });
    await bench.ns.sh('for i in $(seq 200); do test -e /run/held && exit 0; sleep 0.05; done; exit 1');
    const short = ipv4(await bench.driver({ lockWaitMs: 0 }).apply([NEW]));
    expect(short).toMatchObject({ ok: false, error: { kind: 'busy-lock' } });
    expect(ipv4(await bench.driver().apply([NEW]))).toMatchObject({ ok: true });
    await holder;
    await bench.ns.close();
  });
});
