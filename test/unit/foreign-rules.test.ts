// What is understood of the rules that iptables and nft print, and that the rest stays unknown.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readListing, readRule } from '../../src/kernel/foreign-iptables.ts';
import type { Json } from '../../src/kernel/foreign-json.ts';
import type { ForeignRule } from '../../src/kernel/foreign-model.ts';
import { readBases, readNftRule, readTexts } from '../../src/kernel/foreign-nft.ts';
import { printedLines } from '../../src/kernel/foreign-tokens.ts';

/** As iptables 1.8.9 prints a word: quoted when it holds anything but these, with quotes and backslashes escaped. */
const printed = (word: string): string =>
  /^[\w.,:/+=@%!-]+$/.test(word) ? word : `"${word.replaceAll(/["'\\]/g, String.raw`\$&`)}"`;

describe('printedLines', () => {
  it('gives back the words that were printed', () => {
    const words = fc.array(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(fc.array(words), lines => {
        const text = lines.map(line => `${line.map(printed).join(' ')}\n`).join('');
        expect(printedLines(text).map(line => line.words)).toEqual(lines);
      }),
    );
  });

  it('takes a line feed in quotes as part of the word', () => {
    const text = '-A A -m comment --comment "x\n-A A -j ACCEPT" -j RETURN\n-A A -j DROP\n';
    expect(printedLines(text)).toMatchObject([
      {
        text: '-A A -m comment --comment "x\n-A A -j ACCEPT" -j RETURN',
        words: ['-A', 'A', '-m', 'comment', '--comment', 'x\n-A A -j ACCEPT', '-j', 'RETURN'],
      },
      { words: ['-A', 'A', '-j', 'DROP'] },
    ]);
  });

  it.each(['-A A --comment "x', '-A A --comment "x\n-A A -j ACCEPT\n', '-A A \\'])(
    'refuses what was cut: %j',
    text => {
      expect(() => printedLines(text)).toThrow(SyntaxError);
    },
  );
});

describe('readListing', () => {
  it('sorts rules into chains', () => {
    const chains = readListing(
      '-P POSTROUTING DROP\n-N A\n# Warning: x\n-A POSTROUTING -j A\n-A A -j RETURN\n',
    );
    expect(
      [...chains].map(([name, { policy, lines }]) => [name, policy, lines.map(({ text }) => text)]),
    ).toEqual([
      ['POSTROUTING', 'drop', ['-A POSTROUTING -j A']],
      ['A', undefined, ['-A A -j RETURN']],
    ]);
  });

  it('refuses a line that -S does not print', () => {
    expect(() => readListing('-N A\nI am no rule\n')).toThrow('I am no rule');
    expect(() => readListing('-A A -j RETURN\n')).toThrow(SyntaxError);
  });
});

const rule = (text: string, family: 4 | 6 = 4): ForeignRule => {
  const [line] = printedLines(`-A A ${text}`);
  if (line === undefined) throw new Error('no rule');
  return readRule(line, family);
};

/** The conditions without their texts. */
const asked = ({ conditions }: ForeignRule): readonly object[] =>
  conditions.map(({ text, ...rest }) => {
    expect(text).not.toBe('');
    return rest;
  });

describe('readRule', () => {
  it.each([
    [
      '-s 10.0.0.0/30',
      { kind: 'addresses', side: 'source', ranges: [[167772160n, 167772163n]], negated: false },
    ],
    [
      '! -d 10.0.0.1/32',
      { kind: 'addresses', side: 'destination', ranges: [[167772161n, 167772161n]], negated: true },
    ],
    [
      '-s 10.0.0.7/255.0.255.0',
      { kind: 'masked', side: 'source', value: 0x0a000000n, mask: 0xff00ff00n, negated: false },
    ],
    ['! -o docker0', { kind: 'outInterface', patterns: ['docker0'], negated: true }],
    ['-o eth+', { kind: 'outInterface', patterns: ['eth+'], negated: false }],
    ['! -p tcp -m tcp', { kind: 'protocol', numbers: [6], negated: true }],
    ['-p 89', { kind: 'protocol', numbers: [89], negated: false }],
    ['-m mark ! --mark 0x4000/0x4000', { kind: 'mark', value: 0x4000, mask: 0x4000, negated: true }],
    ['-m mark --mark 0x1', { kind: 'mark', value: 1, mask: 0xffffffff, negated: false }],
    [
      '-m set ! --match-set cali40network-ip-pools dst',
      {
        kind: 'set',
        set: { kind: 'ipset', name: 'cali40network-ip-pools' },
        sides: ['destination'],
        negated: true,
      },
    ],
    [
      '-m set --match-set KUBE-LOOP-BACK dst,dst,src',
      {
        kind: 'set',
        set: { kind: 'ipset', name: 'KUBE-LOOP-BACK' },
        sides: ['destination', 'destination', 'source'],
        negated: false,
      },
    ],
    ['-m addrtype ! --dst-type LOCAL', { kind: 'local', side: 'destination', negated: true }],
    ['-m conntrack --ctstate NEW', { kind: 'state', states: ['NEW'], negated: false }],
    [
      '-m iprange --dst-range 10.0.0.1-10.0.0.3',
      { kind: 'addresses', side: 'destination', ranges: [[167772161n, 167772163n]], negated: false },
    ],
    [
      '-m multiport ! --dports 80,400:500',
      {
        kind: 'destinationPort',
        ranges: [
          [80n, 80n],
          [400n, 500n],
        ],
        negated: true,
      },
    ],
  ])('understands %s', (text, condition) => {
    expect(asked(rule(`${text} -j ACCEPT`))).toEqual([condition]);
    expect(rule(`${text} -j ACCEPT`).outcome).toEqual({ kind: 'accept' });
  });

  it.each([
    ['-m statistic --mode random --probability 0.5', 1],
    ['-m addrtype ! --src-type LOCAL --limit-iface-out', 1],
    ['-m addrtype --dst-type MULTICAST', 1],
    ['-m set --match-set a src --return-nomatch', 1],
    ['-m set --match-set -a src', 1],
    ['-m set [unsupported revision]', 1],
    ['-m mark --mark 0x1/', 1],
    ['-m tcp --tcp-flags SYN,ACK SYN', 1],
    ['-m udp --sport 53', 1],
    ['-m socket', 1],
    ['-p no-such-protocol', 1],
    ['-s 10.0.0.256/32', 1],
    ['-s fd00::/8', 1],
    ['-i eth0', 1],
    ['-f', 1],
  ])('leaves %s unknown', (text, count) => {
    const read = rule(`${text} -j MASQUERADE`);
    expect(asked(read)).toEqual(Array.from({ length: count }, () => ({ kind: 'unknown', negated: false })));
    expect(read.conditions[0]?.text).toBe(text);
    expect(read.outcome).toEqual({ kind: 'masquerade' });
  });

  it('passes over comments, whatever they look like', () => {
    expect(rule('-m comment --comment "-j DROP" -j RETURN')).toMatchObject({
      conditions: [],
      outcome: { kind: 'return' },
    });
    expect(rule('-m comment --comment -j -j ACCEPT')).toMatchObject({
      conditions: [],
      outcome: { kind: 'accept' },
    });
    expect(rule('-m comment --comment ! -m mark --mark 0x1')).toMatchObject({
      conditions: [{ kind: 'mark' }],
    });
  });

  it.each([
    ['', { kind: 'continue' }],
    ['-j cali-POSTROUTING', { kind: 'jump', chain: 'cali-POSTROUTING' }],
    ['-g A', { kind: 'goto', chain: 'A' }],
    ['-j LOG --log-prefix "-j ACCEPT"', { kind: 'continue' }],
    ['-j MASQUERADE --to-ports 1000-2000 --random', { kind: 'masquerade' }],
    [
      '-j SNAT --to-source 1.2.3.4-1.2.3.6:100-200 --random-fully',
      { kind: 'snat', to: '1.2.3.4-1.2.3.6:100-200' },
    ],
    ['-j NETMAP --to 0.0.0.0/0', { kind: 'netmap', network: 0n, prefix: 0 }],
    ['-j NETMAP --to 10.7.0.0/16', { kind: 'netmap', network: 0x0a070000n, prefix: 16 }],
  ])('reads the target %j', (text, outcome) => {
    expect(rule(`-s 1.1.1.1/32 ${text}`).outcome).toEqual(outcome);
  });

  it.each([
    ['-j MARK --set-xmark 0x4000/0x0', { keep: 0xffffffff, flip: 0x4000, unknown: 0 }],
    ['-j MARK --set-xmark 0x3/0xffffffff', { keep: 0, flip: 3, unknown: 0 }],
    ['-j MARK --no-such-option 1', { keep: 0, flip: 0, unknown: 0xffffffff }],
    ['-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xf', { keep: 0xffffff00, flip: 0, unknown: 0xf }],
    ['-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xf', undefined],
  ])('knows what %s does to the mark', (text, mark) => {
    expect(rule(text).mark).toEqual(mark);
  });
});

const TABLE = { family: 'inet', table: 'calico' } as const;

const nft = (...expressions: readonly Json[]): ForeignRule =>
  readNftRule({ handle: 1, expressions }, 'text', TABLE);

const match = (left: Json, right: Json, op = '=='): Json => ({ match: { op, left, right } });

const meta = (key: string): Json => ({ meta: { key } });
const payload = (protocol: string, field: string): Json => ({ payload: { protocol, field } });

describe('readNftRule', () => {
  const ipv4 = { kind: 'family', family: 4, negated: false };

  it("understands Felix's rule", () => {
    const read = nft(
      match(payload('ip', 'saddr'), '@cali40masq-ipam-pools'),
      match(payload('ip', 'daddr'), '@cali40network-ip-pools', '!='),
      { counter: { packets: 2, bytes: 64 } },
      { masquerade: { flags: 'fully-random' } },
    );
    const set = (name: string, side: string, negated: boolean): object => ({
      kind: 'set',
      set: { kind: 'nft', ...TABLE, name },
      sides: [side],
      negated,
    });
    expect(asked(read)).toEqual([
      ipv4,
      set('cali40masq-ipam-pools', 'source', false),
      ipv4,
      set('cali40network-ip-pools', 'destination', true),
    ]);
    expect(read).toMatchObject({ text: 'text', outcome: { kind: 'masquerade' } });
  });

  it("understands kube-proxy's rules", () => {
    expect(asked(nft(match({ '&': [meta('mark'), 0x4000] }, 0), { return: null }))).toEqual([
      { kind: 'mark', value: 0, mask: 0x4000, negated: false },
    ]);
    const mark = { mangle: { key: meta('mark'), value: { '^': [meta('mark'), 0x4000] } } };
    expect(nft(mark).mark).toEqual({ keep: 0xffffffff, flip: 0x4000, unknown: 0 });
  });

  it.each([
    [
      match(payload('ip', 'saddr'), { prefix: { addr: '10.0.0.0', len: 30 } }),
      [ipv4, { kind: 'addresses', side: 'source', ranges: [[167772160n, 167772163n]], negated: false }],
    ],
    [
      match(payload('ip', 'daddr'), { set: ['1.1.1.1', { range: ['2.2.2.2', '2.2.2.3'] }] }, '!='),
      [
        ipv4,
        {
          kind: 'addresses',
          side: 'destination',
          ranges: [
            [16843009n, 16843009n],
            [33686018n, 33686019n],
          ],
          negated: true,
        },
      ],
    ],
    [
      match({ '&': [payload('ip', 'saddr'), '255.0.255.0'] }, '10.0.0.0'),
      [ipv4, { kind: 'masked', side: 'source', value: 0x0a000000n, mask: 0xff00ff00n, negated: false }],
    ],
    [
      match(payload('udp', 'dport'), { range: [1, 5] }, '!='),
      [
        { kind: 'protocol', numbers: [17], negated: false },
        { kind: 'destinationPort', ranges: [[1n, 5n]], negated: true },
      ],
    ],
    [match(payload('th', 'dport'), 53), [{ kind: 'destinationPort', ranges: [[53n, 53n]], negated: false }]],
    [
      match(meta('l4proto'), { set: ['tcp', 'udp'] }),
      [{ kind: 'protocol', numbers: [6, 17], negated: false }],
    ],
    [match(meta('oifname'), 'eth*', '!='), [{ kind: 'outInterface', patterns: ['eth+'], negated: true }]],
    [match(meta('nfproto'), 'ipv6'), [{ kind: 'family', family: 6, negated: false }]],
    [
      match({ fib: { result: 'type', flags: ['daddr'] } }, 'local', '!='),
      [{ kind: 'local', side: 'destination', negated: true }],
    ],
    [
      match({ ct: { key: 'state' } }, ['established', 'new'], 'in'),
      [{ kind: 'state', states: ['ESTABLISHED', 'NEW'], negated: false }],
    ],
  ])('understands %j', (expression, conditions) => {
    expect(asked(nft(expression, { accept: null }))).toEqual(conditions);
  });

  it.each<[Json, string]>([
    [match({ ct: { key: 'mark' } }, 5), 'ct mark'],
    [match({ ct: { key: 'status' } }, 'dnat', 'in'), 'ct status'],
    [match(meta('iifname'), 'eth0'), 'meta iifname'],
    [match(meta('oifname'), 'odd+'), 'meta oifname'],
    [match(payload('ip', 'saddr'), '@odd name'), 'ip saddr'],
    [match(payload('tcp', 'flags'), 'syn', 'in'), 'tcp flags'],
    [match({ fib: { result: 'type', flags: ['daddr', 'oif'] } }, 'local'), 'fib'],
    [match({ concat: [payload('ip', 'daddr'), payload('tcp', 'dport')] }, '@s'), 'concat'],
    [{ limit: { rate: 1, per: 'second' } }, 'limit'],
    [{ xt: { type: 'match', name: 'statistic' } }, '-m statistic'],
    ['nonsense', ''],
  ])('leaves %j unknown', (expression, text) => {
    const read = nft(expression, { masquerade: null });
    expect(read.conditions).toEqual([{ kind: 'unknown', negated: false, text }]);
    expect(read.outcome).toEqual({ kind: 'masquerade' });
  });

  it('does not judge what is asked after a change of the mark', () => {
    const read = nft({ mangle: { key: meta('mark'), value: 5 } }, match(meta('mark'), 5), { accept: null });
    expect(asked(read)).toEqual([{ kind: 'unknown', negated: false }]);
    expect(read.mark).toEqual({ keep: 0, flip: 5, unknown: 0 });
  });

  it.each<[Json, object]>([
    [{ snat: { addr: '1.2.3.4', port: 5 } }, { kind: 'snat', to: '1.2.3.4' }],
    [{ snat: { addr: { range: ['1.1.1.1', '1.1.1.5'] } } }, { kind: 'snat', to: '1.1.1.1-1.1.1.5' }],
    [{ snat: { addr: { map: {} } } }, { kind: 'snat', to: undefined }],
    [{ xt: { type: 'target', name: 'MASQUERADE' } }, { kind: 'masquerade' }],
    [{ xt: { type: 'target', name: 'NETMAP' } }, { kind: 'snat', to: undefined }],
    [{ xt: { type: 'target', name: 'ODD' } }, { kind: 'unknown', what: '-j ODD' }],
    [{ jump: { target: 'd' } }, { kind: 'jump', chain: 'd' }],
    [{ goto: { target: 'd' } }, { kind: 'goto', chain: 'd' }],
    [{ vmap: { key: meta('oifname'), data: '@m' } }, { kind: 'unknown', what: 'vmap' }],
    [{ drop: null }, { kind: 'drop' }],
  ])('reads the outcome %j', (expression, outcome) => {
    expect(nft({ counter: null }, expression).outcome).toEqual(outcome);
  });

  it.each<[Json, object]>([
    [{ '&': [meta('mark'), 0xf] }, { keep: 0xf, flip: 0, unknown: 0 }],
    [{ '|': [{ '&': [meta('mark'), 0xffff0005] }, 5] }, { keep: 0xffff0000, flip: 5, unknown: 0 }],
    [{ '^': [{ '|': [meta('mark'), 6] }, 3] }, { keep: 0xfffffff9, flip: 5, unknown: 0 }],
    [{ ct: { key: 'mark' } }, { keep: 0, flip: 0, unknown: 0xffffffff }],
  ])('knows what setting the mark to %j does', (value, mark) => {
    expect(nft({ mangle: { key: meta('mark'), value } }).mark).toEqual(mark);
  });
});

describe("nft's answers", () => {
  it('hold base chains of nat POSTROUTING among others', () => {
    const chain = (more: object): object => ({
      chain: { family: 'ip', table: 't', name: 'c', handle: 3, ...more },
    });
    const hooked = { type: 'nat', hook: 'postrouting', prio: 110, policy: 'accept' };
    const answer = {
      nftables: [
        { metainfo: { version: '1.0.6' } },
        chain({}),
        chain(hooked),
        chain({ ...hooked, hook: 'output' }),
        chain({ ...hooked, type: 'filter' }),
        chain({ ...hooked, family: 'ip6' }),
        chain({ ...hooked, family: 'inet', policy: 'drop', prio: 90 }),
      ],
    };
    expect(readBases(JSON.stringify(answer), ['ip', 'inet'])).toEqual([
      { family: 'ip', table: 't', name: 'c', handle: 3, priority: 110, policy: 'accept' },
      { family: 'inet', table: 't', name: 'c', handle: 3, priority: 90, policy: 'drop' },
    ]);
    expect(() => readBases('{}', ['ip'])).toThrow(SyntaxError);
    expect(() => readBases('Error', ['ip'])).toThrow(SyntaxError);
  });

  it('hold texts by handle', () => {
    const text =
      'table ip t {\n\tchain c { # handle 1\n\t\tip saddr 10.0.0.0/8 masquerade comment "a # handle 9" # handle 3\n\t}\n}\n';
    expect(readTexts(text).get(3)).toBe('ip saddr 10.0.0.0/8 masquerade comment "a # handle 9"');
  });
});
