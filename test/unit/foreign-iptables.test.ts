// What is understood of the rules that iptables prints, and that the rest stays unknown.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readListing, readRule } from '../../src/kernel/foreign/iptables.ts';
import type { ForeignRule } from '../../src/kernel/foreign/model.ts';
import { printedLines } from '../../src/kernel/printed-lines.ts';

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
