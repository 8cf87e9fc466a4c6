// Listing chains with an iptables-restore that lists them all, some of them, none, or not to be believed.
import { describe, expect, it } from 'vitest';
import type { Backend } from '../../src/kernel/backend.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import type { Command, CommandResult } from '../../src/kernel/exec.ts';
import type { Listing } from '../../src/kernel/iptables.ts';
import { followChains, listTable } from '../../src/kernel/list-chains.ts';
import type { RunContext } from '../../src/kernel/run.ts';
import { fakeKernel } from './kernel-fake.ts';

const clock: Clock = { now: () => 0, sleep: () => Promise.resolve() };

/** A command instead of the fake kernel's; undefined lets it through. */
type Spoil = (command: Command, result: CommandResult) => CommandResult | undefined;

const CHAINS: Readonly<Record<string, readonly string[]>> = {
  POSTROUTING: ['-j masq-POSTROUTING', '-j KUBE-POSTROUTING'],
  'masq-POSTROUTING': ['-j masq-a', '-j masq-b'],
  'masq-a': ['-s 10.0.0.1/32 -j RETURN'],
  'masq-b': [],
};

function setUp(spoil: Spoil = () => undefined, chains = CHAINS) {
  const kernel = fakeKernel();
  kernel.chains = new Map(Object.entries(chains));
  const asked: string[] = [];
  const context: RunContext = {
    exec: {
      run: async command => {
        const chain = command.args[command.args.indexOf('-S') + 1];
        const alone = chain === undefined ? 'everything' : chain;
        asked.push(command.stdin?.match(/(?<=-S ).*/g)?.join(' ') ?? `alone: ${alone}`);
        const result = await kernel.exec.run(command);
        return spoil(command, result) ?? result;
      },
    },
    clock,
    lockWaitMs: 0,
    childTimeoutMs: 1000,
  };
  const tools = (backend: Backend) => ({ backend, suffix: `-${backend}` });
  return {
    kernel,
    asked,
    follow: (known: readonly string[], backend: Backend = 'nft') =>
      followChains(context, tools(backend), 4, known),
    table: () => listTable(context, tools('nft'), 4),
  };
}

const textOf = (listing: Listing): Readonly<Record<string, readonly string[]>> =>
  Object.fromEntries([...listing].map(([name, rules]) => [name, rules.map(rule => rule.args.join(' '))]));

const isTogether = ({ tool }: Command): boolean => tool.endsWith('-restore');
const ended = (result: CommandResult, part: Partial<CommandResult>): CommandResult => ({
  ...result,
  ...part,
});

const { 'masq-b': _, ...WITHOUT_B } = CHAINS;

describe('chains', () => {
  it('are listed by one process, and those that their rules lead to by a second', async () => {
    const { follow, asked, kernel } = setUp();
    expect(textOf(await follow(['masq-POSTROUTING', 'masq-a', 'masq-b', 'masq-a']))).toEqual(CHAINS);
    expect(textOf(await follow([]))).toEqual(CHAINS);
    expect(asked).toEqual([
      'POSTROUTING masq-POSTROUTING masq-a masq-b',
      'POSTROUTING',
      'masq-POSTROUTING',
      'masq-a masq-b',
    ]);
    expect(kernel.inputs).toEqual([]);
  });

  it('that cannot be listed are asked for alone, and left out; the others are listed behind them', async () => {
    const { follow, asked } = setUp(undefined, WITHOUT_B);
    expect(textOf(await follow(['masq-x', 'masq-POSTROUTING', 'masq-b', 'masq-a']))).toEqual(WITHOUT_B);
    expect(asked).toEqual([
      'POSTROUTING masq-x masq-POSTROUTING masq-b masq-a',
      'alone: masq-x',
      'masq-POSTROUTING masq-b masq-a',
      'alone: masq-b',
      'masq-a',
    ]);
  });

  it('are read from the whole table on legacy when one of them cannot be listed', async () => {
    const { follow, asked } = setUp(undefined, WITHOUT_B);
    expect(textOf(await follow(['masq-x', 'masq-y', 'masq-b'], 'legacy'))).toEqual(WITHOUT_B);
    expect(asked).toEqual(['POSTROUTING masq-x masq-y masq-b', 'alone: everything']);
  });

  it.each<[string, Partial<CommandResult>]>([
    ['does not know -S', { code: 2, stdout: '', stderr: 'unknown option "-S"' }],
    ['prints nothing for it', { stdout: '' }],
    [
      'says by exit code 0 alone that it cannot',
      { stdout: "# Table `nat' is incompatible, use 'nft' tool.\n" },
    ],
    [
      'fails for a reason of its own, in the middle of a chain',
      {
        code: 1,
        stdout: '-P POSTROUTING ACCEPT\n-A POSTROUTING -j masq-POSTROUTING\n',
        stderr: 'something is wrong',
      },
    ],
  ])('are listed one by one when iptables-restore %s', async (_, part) => {
    const { follow, kernel } = setUp((command, result) =>
      isTogether(command) ? ended(result, part) : undefined,
    );
    expect(textOf(await follow(['masq-x', 'masq-a']))).toEqual(CHAINS);
    expect(kernel.inputs).toEqual([]);
  });

  it('with a name that is not of our making are never part of a transaction', async () => {
    const odd = 'masq-"a\n-F POSTROUTING\n"';
    const { follow, kernel } = setUp(undefined, {
      ...CHAINS,
      POSTROUTING: [`-j "${odd.replaceAll('"', '\\"')}"`],
    });
    expect((await follow([odd])).get('POSTROUTING')?.[0]?.features.target).toBe(odd);
    expect(kernel.inputs).toEqual([]);
  });
});

describe('what cannot be read is never empty', () => {
  const silent = "# Table `nat' is incompatible, use 'nft' tool.\n";

  it('exit code 0 without the chain, also for the chain alone', async () => {
    const { follow } = setUp((_, result) => ended(result, { code: 0, stdout: silent }));
    await expect(follow(['masq-a'])).rejects.toMatchObject({
      kind: 'incompatible',
      message: `iptables-nft ended with exit code 0 and did not list chain POSTROUTING: ${silent.trim()}`,
    });
  });

  it.each<[string, Partial<CommandResult>, string]>([
    ['did not end in time', { code: null, timedOut: true }, 'timeout'],
    ['was killed', { code: null }, 'other'],
    ['did not get the lock', { code: 4, stderr: 'Another app is holding the xtables lock.' }, 'busy-lock'],
  ])('a process that %s, whatever it had printed', async (_, part, kind) => {
    const { follow, asked } = setUp((command, result) =>
      isTogether(command)
        ? ended(result, { ...part, stdout: result.stdout.replace(/-A masq-POSTROUTING -j masq-b\n[^]*/, '') })
        : undefined,
    );
    await expect(follow(['masq-POSTROUTING', 'masq-a', 'masq-b'])).rejects.toMatchObject({ kind });
    expect(asked).toHaveLength(1);
  });

  it('a table that is not listed whole, whatever the exit code', async () => {
    const stderr = "iptables v1.8.9 (nf_tables): table `nat' is incompatible, use 'nft' tool.";
    const { table } = setUp();
    expect(textOf((await table()) ?? new Map())).toEqual(CHAINS);
    expect(await setUp((_, result) => ended(result, { stdout: silent })).table()).toBeUndefined();
    expect(
      await setUp((_, result) => ended(result, { code: 1, stdout: '', stderr })).table(),
    ).toBeUndefined();
    const refused = setUp((_, result) => ended(result, { code: 4, stdout: '', stderr: 'Permission denied' }));
    await expect(refused.table()).rejects.toMatchObject({ kind: 'permission' });
  });
});
