// Tools that cannot show what is there, errors read from their words, and the place of the jump.
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../src/kernel/clock.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import { commandError, type ErrorKind } from '../../src/kernel/errors.ts';
import type { CommandResult, Exec } from '../../src/kernel/exec.ts';
import { deleteLine, parseListing } from '../../src/kernel/iptables.ts';
import { wordsOf } from '../../src/kernel/printed-lines.ts';
import { type ObservedSet, parseList, parseSave } from '../../src/kernel/ipset.ts';
import { planJump } from '../../src/kernel/jump.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { commentOf } from '../../src/render/chain.ts';
import { fakeKernel } from './kernel-fake.ts';
import { jump, poolTables } from './kernel-tables.ts';

const clock: Clock = { now: () => 0, sleep: () => Promise.resolve() };
const TABLES = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16'])];

describe('an iptables that does not show what it was given', () => {
  it.each([
    ['drops a set match', (text: string) => text.replaceAll(/ -m set ! --match-set \S+ dst/g, '')],
    ['drops an inversion', (text: string) => text.replaceAll('! --match-set', '--match-set')],
    ['shows another target', (text: string) => text.replaceAll('-j MASQUERADE', '-j [unsupported revision]')],
  ])('%s: is reported after one more try, and not fought', async (_, spoil) => {
    const kernel = fakeKernel();
    const exec: Exec = {
      run: async command => {
        const result = await kernel.exec.run(command);
        return command.tool === 'ipset' ? result : { ...result, stdout: spoil(result.stdout) };
      },
    };
    const driver = createDriver({ exec, clock, backend: 'nft', log: silentLog });
    const readback = {
      ok: false,
      error: { kind: 'readback', message: expect.stringMatching(/chain masq-nat-outgoing is shown without/) },
    };
    expect((await driver.apply(TABLES)).families.ipv4).toMatchObject({ ...readback, changed: true });
    kernel.inputs.length = 0;
    expect((await driver.verify()).families.ipv4).toMatchObject({ ...readback, changed: false });
    expect((await driver.apply(TABLES)).families.ipv4).toMatchObject({ ...readback, changed: false });
    expect(kernel.inputs).toEqual([]);
    // A new process tries once.
    const restarted = createDriver({ exec, clock, backend: 'nft', log: silentLog });
    expect((await restarted.apply(TABLES)).families.ipv4).toMatchObject(readback);
    expect(kernel.inputs).toHaveLength(1);
    expect((await restarted.verify()).families.ipv4).toMatchObject({ ...readback, changed: false });
    // A change of the set goes on all the same.
    const more = [poolTables(4, ['10.0.0.0/16'], ['10.0.0.0/16', '10.1.0.0/16'])];
    await restarted.apply(more);
    expect([...(kernel.sets.get('masq4-all-pools')?.entries.keys() ?? [])]).toContain('10.1.0.0/16');
  });
});

describe('errors', () => {
  const kindOf = (part: Partial<CommandResult>, args: readonly string[] = []): ErrorKind =>
    commandError(
      { tool: 'tool', args, timeoutMs: 5 },
      { code: 1, stdout: '', stderr: '', timedOut: false, ...part },
    ).kind;

  it.each<[string, ErrorKind]>([
    ['Another app is currently holding the xtables lock. Stopped waiting after 1s.', 'busy-lock'],
    ["iptables-restore v1.8.9 (legacy): Set nosuch doesn't exist.", 'missing-set'],
    ['ipset v7.17: Error in line 3: The set with the given name does not exist', 'missing-set'],
    [
      "iptables v1.8.9 (nf_tables): chain `NO' in table `nat' is incompatible, use 'nft' tool.",
      'missing-chain',
    ],
    ["iptables v1.8.9 (nf_tables): table `nat' is incompatible, use 'nft' tool.", 'incompatible'],
    [
      "iptables-restore v1.8.9 (legacy): Couldn't load target `masq-x':No such file or directory",
      'missing-chain',
    ],
    ["iptables-nft-restore v1.8.9 (nf_tables): Chain 'masq-x' does not exist", 'missing-chain'],
    ["iptables-restore v1.8.9 (legacy): Couldn't load match `set':No such file or directory", 'unsupported'],
    ['iptables-nft-restore v1.8.9 (nf_tables): unknown option "--random-fully"', 'unsupported'],
    ['ipset v7.17: Error in line 1: Kernel error received: set type not supported', 'unsupported'],
    ["can't initialize ip6tables table `nat': Table does not exist (do you need to insmod?)", 'unsupported'],
    ['Could not fetch rule set generation id: Permission denied (you must be root)', 'permission'],
    ["can't initialize iptables table `nat': Permission denied (you must be root)", 'permission'],
    ['ipset v7.17: Kernel error received: Operation not permitted', 'permission'],
    ['Error in line 1: Set cannot be destroyed: it is in use by a kernel component', 'in-use'],
    ['line 3: CHAIN_DEL failed (Device or resource busy): chain masq-x', 'in-use'],
    ['ipset v7.17: Error in line 65: Hash is full, cannot add more elements', 'full'],
    ['something else', 'other'],
  ])('%s', (stderr, kind) => {
    expect(kindOf({ stderr })).toBe(kind);
  });

  it('tells a chain that is not there from a module that is not there, by what was asked', () => {
    const stderr = 'iptables: No chain/target/match by that name.';
    expect(kindOf({ stderr }, ['-t', 'nat', '-S', 'masq-x'])).toBe('missing-chain');
    expect(kindOf({ stderr }, ['--noflush'])).toBe('unsupported');
  });

  it('knows how a program ended without words', () => {
    expect(kindOf({ code: 4 })).toBe('busy-lock');
    expect(kindOf({ code: null, timedOut: true })).toBe('timeout');
    expect(kindOf({ code: null, spawnError: 'ENOENT' })).toBe('not-found');
    expect(kindOf({ code: null, spawnError: 'EMFILE' })).toBe('other');
  });

  it('quotes the line of the input, and leaves out hints and warnings', () => {
    const stderr =
      "# Warning: iptables-legacy tables present\nipt: bad thing\nError occurred at line: 2\nTry `ipt -h' for more.";
    const error = commandError(
      { tool: 'ipt', args: [], stdin: 'one\ntwo\nthree\n', timeoutMs: 5 },
      { code: 2, stdout: '', stderr, timedOut: false },
    );
    expect(error.line).toBe(2);
    expect(error.message).toBe(
      'ipt ended with exit code 2: ipt: bad thing Error occurred at line: 2; the line is: two',
    );
  });
});

describe('reading', () => {
  it('splits printed rules as the tools quote them', () => {
    expect(wordsOf('-A X -m comment --comment "it\\\'s a \\"q\\" \\\\ b" -j Y')).toEqual([
      '-A',
      'X',
      '-m',
      'comment',
      '--comment',
      'it\'s a "q" \\ b',
      '-j',
      'Y',
    ]);
    expect(wordsOf('-A X --comment "" -j Y')).toEqual(['-A', 'X', '--comment', '', '-j', 'Y']);
  });

  it('a line feed in a comment does not make a rule', () => {
    const text =
      '-N masq-POSTROUTING\n' +
      '-A POSTROUTING -m comment --comment "x\n-A masq-POSTROUTING -j ACCEPT\n" -j ACCEPT\n' +
      '-A masq-POSTROUTING -j RETURN\n';
    const listing = parseListing(text);
    expect(listing.get('masq-POSTROUTING')).toMatchObject([{ args: ['-j', 'RETURN'] }]);
    expect(listing.get('POSTROUTING')).toHaveLength(1);
    expect(() => parseListing(text.slice(0, 60))).toThrow('a quote is not closed');
  });

  it('passes over the chains of others', () => {
    const listing = parseListing(
      '-P PREROUTING ACCEPT\n-P POSTROUTING ACCEPT\n-N masq-a\n-N KUBE-SVC\n-A KUBE-SVC -j masq-a\n# noise\n',
    );
    expect([...listing]).toEqual([
      ['POSTROUTING', []],
      ['masq-a', []],
    ]);
  });

  it('reads headers and members of sets', () => {
    const sets = new Map<string, ObservedSet>();
    parseSave(
      'create masq4-a hash:net family inet hashsize 64 maxelem 9 timeout 4 comment bucketsize 12 initval 0x1\nadd masq4-a 1.2.3.4 nomatch\ncreate masq4-l list:set size 8\n',
      sets,
    );
    parseList(
      'Name: masq6-b\nType: hash:net\nRevision: 7\nHeader: family inet6 hashsize 64 maxelem 9 bucketsize 12 initval 0x1\nReferences: 1\nNumber of entries: 3\n',
      sets,
    );
    expect(Object.fromEntries(sets)).toEqual({
      'masq4-a': {
        header: { type: 'hash:net', family: 'inet', maxelem: 9, extensions: 'timeout 4 comment' },
        content: { kind: 'printed', members: ['1.2.3.4 nomatch'] },
      },
      'masq4-l': {
        header: { type: 'list:set', family: '', maxelem: 0, extensions: 'size 8' },
        content: { kind: 'printed', members: [] },
      },
      'masq6-b': {
        header: { type: 'hash:net', family: 'inet6', maxelem: 9, extensions: '' },
        content: { kind: 'counted', count: 3 },
      },
    });
  });

  it('never deletes a rule of others, nor one with characters that are not written back', () => {
    const rulesOf = (text: string) => parseListing(text).get('POSTROUTING')!.map(deleteLine);
    expect(
      rulesOf(
        '-A POSTROUTING -j MASQUERADE\n-A POSTROUTING -m comment --comment "x\\"y" -j masq-a\n-A POSTROUTING -m comment --comment "a b" -g masq-a',
      ),
    ).toEqual([undefined, undefined, '-D POSTROUTING -m comment --comment "a b" -g masq-a']);
  });
});

describe('the place of the jump', () => {
  const OURS = `-A POSTROUTING -m comment --comment "${commentOf(jump)}" -j masq-POSTROUTING`;
  const plan = (lines: readonly string[], mayMove = true) =>
    planJump(
      { readable: true, rules: parseListing(lines.join('\n')).get('POSTROUTING') ?? [] },
      jump,
      mayMove,
    );

  it.each([
    '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
    '-A POSTROUTING -j CNI-HOSTPORT-MASQ',
    '-A POSTROUTING -s 10.0.0.0/8 -j LOG',
  ])('below %s it stays', above => {
    expect(plan([above, OURS])).toEqual({ lines: [], moves: false, position: 2, foreignAbove: [above] });
  });

  it.each([
    '-A POSTROUTING -j cali-POSTROUTING',
    '-A POSTROUTING -s 10.0.0.0/8 -j RETURN',
    '-A POSTROUTING -j ACCEPT',
    '-A POSTROUTING -s 10.0.0.0/8',
  ])('below %s it goes to the top in one transaction, or says who is in the way', above => {
    const { lines, moves, position } = plan(['-A POSTROUTING -j KUBE-POSTROUTING', above, OURS]);
    expect({ lines, moves, position }).toEqual({
      lines: [OURS.replace('-A', '-D'), OURS.replace('-A POSTROUTING', '-I POSTROUTING 1')],
      moves: true,
      position: 1,
    });
    expect(plan([above, OURS], false)).toEqual({
      lines: [],
      moves: false,
      position: 2,
      foreignAbove: [above],
      contendedBy: above,
    });
  });

  it('takes a rule with its comment and more matches for a stranger', () => {
    const odd = OURS.replace('-A POSTROUTING', '-A POSTROUTING -s 10.0.0.0/8');
    expect(plan([odd]).fault).toBe('is missing');
  });

  it('is inserted beside rules that cannot be read, when it is not there', () => {
    expect(planJump({ readable: false, hasJump: true }, jump, true).lines).toEqual([]);
    expect(planJump({ readable: false, hasJump: false }, jump, true).lines).toHaveLength(1);
  });
});
