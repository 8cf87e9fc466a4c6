// What is understood of what nft prints, and that the rest stays unknown.
import { describe, expect, it } from 'vitest';
import type { Json } from '../../src/kernel/foreign/json.ts';
import type { ForeignRule } from '../../src/kernel/foreign/model.ts';
import { readBases, readNftRule, readTexts } from '../../src/kernel/foreign/nft.ts';

/** The conditions without their texts. */
const asked = ({ conditions }: ForeignRule): readonly object[] =>
  conditions.map(({ text, ...rest }) => {
    expect(text).not.toBe('');
    return rest;
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
