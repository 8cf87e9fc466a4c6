// The way of a packet through chains, and the order of base chains: small made-up rules, one question each.
import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/cidr/address.ts';
import { readRule } from '../../src/kernel/foreign/iptables.ts';
import { NO_FACTS } from '../../src/kernel/foreign/match.ts';
import {
  type BaseChain,
  type ForeignRule,
  type NatRules,
  trafficOf,
} from '../../src/kernel/foreign/model.ts';
import { UNKNOWN_ORDER } from '../../src/kernel/foreign/order.ts';
import { printedLines } from '../../src/kernel/printed-lines.ts';
import { type Judgement, judgeForeign } from '../../src/kernel/foreign/judge.ts';
import type { Packet } from '../../src/planner/packet.ts';

const address = (text: string): Packet['source'] => {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new Error(`${text} ${parsed.reason}`);
  return parsed.value;
};

const packet = (more: object = {}): Packet => ({
  source: address('10.244.1.5'),
  destination: address('8.8.8.8'),
  protocol: 'TCP',
  destinationPort: 443,
  ...more,
});

/** Chains by name, the base chain first: the lines behind `-A CHAIN`. */
type Made = Readonly<Record<string, readonly string[]>>;

function base(made: Made, more: Partial<BaseChain> = {}): BaseChain {
  const chains = new Map<string, readonly ForeignRule[]>();
  for (const [name, lines] of Object.entries(made)) {
    const printed = printedLines(lines.map(line => `-A ${name} ${line}\n`).join(''));
    chains.set(
      name,
      printed.map(line => readRule(line, 4)),
    );
  }
  const name = Object.keys(made)[0] ?? '';
  return { readBy: 'nft', place: name, name, priority: 100, policy: 'accept', chains, ...more };
}

const JUMP = '-j masq-POSTROUTING';
const UNSURE = '-m statistic --mode random';

/** Verdicts in short: certainty, place and effect. */
function short(hooks: readonly BaseChain[], asked: Packet = packet()) {
  const rules: NatRules = { family: 4, hooks, gaps: [] };
  const { before, after } = judgeForeign(rules, trafficOf(asked), NO_FACTS);
  const texts = (verdicts: Judgement['before']): readonly string[] =>
    verdicts.map(({ certainty, place, effect }) => `${certainty}: ${place} ${effect}`);
  return { before: texts(before), after: texts(after) };
}

const shortOf = (made: Made, asked?: Packet) => short([base(made)], asked);

describe('the way through chains', () => {
  it('RETURN of a called chain goes on behind the jump', () => {
    const made = { P: ['-j A', '-j MASQUERADE', JUMP], A: ['-j RETURN', '-j ACCEPT'] };
    expect(shortOf(made).before).toEqual(['wins: P rule 2 masquerades']);
  });

  it('goto comes back to the chain behind the last jump', () => {
    const made = { P: ['-j A', JUMP, '-j MASQUERADE'], A: ['-g B', '-j ACCEPT'], B: ['-j RETURN'] };
    expect(shortOf(made)).toEqual({ before: [], after: ['wins: P rule 3 masquerades'] });
  });

  it('goto and RETURN in the base chain end it', () => {
    expect(shortOf({ P: ['-g A', JUMP, '-j MASQUERADE'], A: [] })).toEqual({
      before: ['wins: P rule 1 leaves'],
      after: [],
    });
    expect(shortOf({ P: ['-p tcp -j RETURN', JUMP, '-j MASQUERADE'] }).before).toEqual([
      'wins: P rule 1 leaves',
    ]);
  });

  it('what may have returned makes the rest of its chain possible, and no more', () => {
    const made = {
      P: ['-j A', JUMP, '-j MASQUERADE'],
      A: [`${UNSURE} -j RETURN`, '-d 8.8.8.8/32 -j MASQUERADE'],
    };
    expect(shortOf(made)).toEqual({
      before: ['may win: P rule 1 -> chain A rule 2 masquerades'],
      after: ['wins: P rule 3 masquerades'],
    });
  });

  it('a jump that may be taken makes what it leads to possible', () => {
    const made = { P: [`${UNSURE} -j A`, JUMP, `${UNSURE} -g A`, '-j MASQUERADE'], A: ['-j ACCEPT'] };
    expect(shortOf(made)).toEqual({
      before: ['may win: P rule 1 -> chain A rule 1 accepts'],
      after: ['may win: P rule 3 -> chain A rule 1 accepts', 'wins: P rule 4 masquerades'],
    });
  });

  it('marks are followed', () => {
    const made = { P: ['-j MARK --set-xmark 0x1/0x1', '-m mark ! --mark 0x1/0x1 -j MASQUERADE', JUMP] };
    expect(shortOf(made).before).toEqual([]);
    const unsure = {
      P: [
        `${UNSURE} -j MARK --set-xmark 0x1/0x1`,
        '-m mark --mark 0x2/0x2 -j ACCEPT',
        '-m mark --mark 0x1/0x1 -j ACCEPT',
        JUMP,
      ],
    };
    expect(shortOf(unsure).before).toEqual(['may win: P rule 3 accepts']);
  });

  it('one condition that does not hold outweighs those that are not known', () => {
    expect(shortOf({ P: [`-p udp ${UNSURE} -j MASQUERADE`, JUMP] }).before).toEqual([]);
  });

  it('what the packet does not tell is not known', () => {
    const made = { P: ['-o eth0 -j MASQUERADE', '-p tcp -m tcp --dport 443 -j ACCEPT', JUMP] };
    const { source, destination } = packet();
    expect(shortOf(made, { source, destination }).before).toEqual([
      'may win: P rule 1 masquerades',
      'may win: P rule 2 accepts',
    ]);
    expect(shortOf(made, packet({ outInterface: 'eth1' })).before).toEqual(['wins: P rule 2 accepts']);
  });

  it('NETMAP to a network maps, to everything keeps', () => {
    const rules: NatRules = {
      family: 4,
      hooks: [base({ P: ['-j NETMAP --to 10.7.0.0/16', JUMP] })],
      gaps: [],
    };
    expect(judgeForeign(rules, trafficOf(packet()), NO_FACTS).before).toMatchObject([
      { effect: 'SNATs', address: '10.7.1.5' },
    ]);
    expect(shortOf({ P: ['-j NETMAP --to 0.0.0.0/0', JUMP] }).before).toEqual(['wins: P rule 1 keeps']);
  });

  it('our own chains are no verdict', () => {
    expect(
      shortOf({ P: ['-j masq-leftover', JUMP, '-j masq-POSTROUTING'], 'masq-leftover': ['-j ACCEPT'] }),
    ).toEqual({
      before: [],
      after: [],
    });
  });
});

describe('the order of base chains', () => {
  const ours = base({ P: [JUMP, `${UNSURE} -j ACCEPT`] });
  const other = (name: string, priority: number, line: string, handle?: number): BaseChain =>
    base(
      { [name]: [line] },
      { priority, ...(handle === undefined ? {} : { nft: { family: 'ip', table: 'other', handle } }) },
    );

  it('ACCEPT of an earlier chain does not keep us from being asked', () => {
    expect(short([other('early', 90, '-j ACCEPT'), ours])).toEqual({
      before: [],
      after: ['may win: P rule 2 accepts'],
    });
  });

  it('a translation of an earlier chain settles it', () => {
    expect(short([other('early', 90, '-j MASQUERADE'), ours, other('late', 110, '-j MASQUERADE')])).toEqual({
      before: ['wins: early rule 1 masquerades'],
      after: [],
    });
  });

  it('an ACCEPT that is not sure makes the rest of an earlier chain possible', () => {
    const early = base({ early: [`${UNSURE} -j ACCEPT`, '-j MASQUERADE'] }, { priority: 90 });
    expect(short([early, ours, other('late', 110, '-j MASQUERADE')])).toEqual({
      before: ['may win: early rule 2 masquerades'],
      after: ['may win: P rule 2 accepts', 'wins: late rule 1 masquerades'],
    });
  });

  it('a chain of our priority may come before or after', () => {
    const rules: NatRules = { family: 4, hooks: [ours, other('tied', 100, '-j MASQUERADE')], gaps: [] };
    const { before, after } = judgeForeign(rules, trafficOf(packet()), NO_FACTS);
    expect(before).toMatchObject([{ certainty: 'may win', doubts: [UNKNOWN_ORDER] }]);
    expect(after.at(-1)).toMatchObject({ certainty: 'wins', place: 'tied rule 1' });
  });

  it('of rivals with one priority each may win, and one of them does', () => {
    const hooks = [other('a', 90, '-j MASQUERADE'), other('b', 90, '-j SNAT --to-source 1.1.1.1'), ours];
    expect(short(hooks)).toEqual({
      before: ['may win: a rule 1 masquerades', 'may win: b rule 1 SNATs'],
      after: [],
    });
    expect(short([other('a', 90, '-j MASQUERADE'), other('b', 90, '-j ACCEPT'), ours]).before).toEqual([
      'wins: a rule 1 masquerades',
    ]);
  });

  it('in one table the younger comes first', () => {
    const hooks = [other('a', 110, '-j MASQUERADE', 1), other('b', 110, '-j SNAT --to-source 1.1.1.1', 2)];
    expect(short(hooks).after).toEqual(['wins: b rule 1 SNATs']);
  });

  it('a policy drops what comes through, RETURN too, and ACCEPT does not', () => {
    const dropping = (line: string): BaseChain => base({ late: [line] }, { priority: 110, policy: 'drop' });
    expect(short([ours, dropping('-p udp -j ACCEPT')]).after.at(-1)).toBe('wins: late drops');
    expect(short([ours, dropping('-j RETURN')]).after.at(-1)).toBe('wins: late rule 1 drops');
    expect(short([ours, dropping('-j ACCEPT')]).after.at(-1)).toBe('wins: late rule 1 accepts');
  });
});
