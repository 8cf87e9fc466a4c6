// JSON that is not a plan: every fault is told with its field, and nothing makes the reader throw.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodePlan } from '../../src/planner/codec.ts';
import { PLAN, read, textOf, VALUES } from './codec-plan.ts';
import { placesOf, withValue } from './json-places.ts';

/** A document that was spoilt at one place, and what is said about it. */
const SPOILT: readonly (readonly [what: string, from: string, to: string, field: string, words: string])[] = [
  ['an octal address', '"10.244.0.0/16"', '"010.244.0.0/16"', 'sets[2].ipv4[0]', 'leading zeros'],
  ['a host name', '"10.244.0.0/16"', '"example.com/16"', 'sets[2].ipv4[0]', 'is not an IP address'],
  ['two networks in one', '"10.244.0.0/16"', '"10.0.0.0/8,11.0.0.0/8"', 'sets[2].ipv4[0]', 'prefix'],
  ['a second line', '"10.244.0.0/16"', '"10.244.0.0/16\\nflush"', 'sets[2].ipv4[0]', 'prefix'],
  ['host bits', '"10.244.0.0/16"', '"10.244.0.1/16"', 'sets[2].ipv4[0]', 'the network is 10.244.0.0/16'],
  ['two exclamation marks', '"!10.244.8.0/24"', '"!!10.244.8.0/24"', 'sets[2].ipv4[1]', 'not an IP address'],
  ['a network of the other family', '"fd00:244::/48"', '"10.0.0.0/8"', 'sets[2].ipv6[0]', 'is not IPv6'],
  ['a network with and without !', '"!10.244.8.0/24"', '"!10.244.0.0/16"', 'sets[2].ipv4', 'both with and'],
  ['a null', '"ipv6":["::/0"]', '"ipv6":null', 'sets[0].ipv6', 'is null'],
  ['a set id with a blank', '"id":"net-1"', '"id":"net 1"', 'sets[0].id', 'is not the id of a set'],
  ['a set id that is too long', '"id":"net-1"', '"id":"net-12345678901234567"', 'sets[0].id', 'id of a set'],
  [
    'one set twice',
    '{"id":"none"',
    '{"id":"none"},{"id":"none"',
    'sets[2]',
    'is the second one named "none"',
  ],
  ['a set that is not there', '"to":"net-1"', '"to":"net-2"', 'policies[0].rules[0].to', 'no set "net-2"'],
  [
    'a source that is not there',
    '"source":"pods","rules"',
    '"source":"x","rules"',
    'policies[0].source',
    '"x"',
  ],
  ['a pool set that is not there', '"spared":"pods"', '"spared":"x"', 'poolDefault.spared', 'no set "x"'],
  [
    'a policy name with a quote',
    '"name":"bank"',
    '"name":"ba\\"nk"',
    'policies[0].name',
    'name of an object',
  ],
  ['one policy twice', '"name":"lab.test"', '"name":"bank"', 'policies[1]', 'second one named "bank"'],
  ['one rule twice', '"name":"r1"', '"name":"r0"', 'policies[0].rules[1]', 'second one named "r0"'],
  [
    'an interface that is too long',
    '"bond0.100"',
    '"bond0.1234567890"',
    'policies[0].rules[0].outInterfaces[1]',
    '15',
  ],
  [
    'an interface that is an option',
    '"bond0.100"',
    '"a -j DROP"',
    'policies[0].rules[0].outInterfaces[1]',
    'not an',
  ],
  ['no interface', '["eth+","bond0.100"]', '[]', 'policies[0].rules[0].outInterfaces', 'is empty'],
  ['a port of text', '"port":443', '"port":"443"', 'policies[0].rules[0].ports[0].port', 'whole number'],
  ['a port beyond', '"endPort":444', '"endPort":65536', 'policies[0].rules[0].ports[0].endPort', '65535'],
  [
    'ports in disorder',
    '"endPort":444',
    '"endPort":442',
    'policies[0].rules[0].ports[0].endPort',
    'below 443',
  ],
  ['half a port', ',"endPort":444', '', 'policies[0].rules[0].ports[0]', 'go together'],
  [
    'ports of ICMP',
    '{"protocol":"ICMP"}',
    '{"protocol":"ICMP","port":1,"endPort":1}',
    'policies[0].rules[0].ports[1].port',
    'no ports',
  ],
  ['a range in disorder', '"end":39999', '"end":19999', 'policies[0].rules[0].portRange.end', 'below 20000'],
  ['an unknown action', '"action":"SNAT"', '"action":"DROP"', 'policies[0].rules[0].action', 'is not one of'],
  [
    'an address without SNAT',
    '"action":"SNAT"',
    '"action":"Masquerade"',
    'policies[0].rules[0].snat',
    'exactly when',
  ],
  [
    'two sources of an address',
    '"snat":{',
    '"snat":{"nodeValue":"address:ExternalIP",',
    'policies[0].rules[0].snat',
    'exactly one',
  ],
  [
    'a loopback address',
    '"198.51.100.7"',
    '"127.0.0.1"',
    'policies[0].rules[0].snat.addresses.ipv4',
    'loopback',
  ],
  [
    'an address of the other family',
    '"198.51.100.7"',
    '"2001:db8::9"',
    'policies[0].rules[0].snat.addresses.ipv4',
    'not IPv4',
  ],
  [
    'a value that no node has',
    '"annotation:example.com/egress"},"portA',
    '"file:x"},"portA',
    'policies[0].rules[1].snat.nodeValue',
    'annotation:KEY',
  ],
  [
    'a value under another key',
    '"address:ExternalIP":',
    '"__proto__":',
    'values.__proto__',
    'is not the name of a value',
  ],
  ['a mark of nothing', '"kubeMark":16384', '"kubeMark":0', 'kubeMark', '1 to 4294967295'],
  ['a mark beyond 32 bits', '"kubeMark":16384', '"kubeMark":4294967296', 'kubeMark', '1 to 4294967295'],
  [
    'a misspelt field',
    '"kubeMark":16384',
    '"kubeMark":16384,"__proto__":{"a":1}',
    '__proto__',
    'is not a known field',
  ],
  ['a field that is missing', '"kubeMark":16384,', '', 'kubeMark', 'is required'],
  [
    'a field of prototypes',
    '"dryRun":true',
    '"dryRun":true,"constructor":1',
    'policies[1].constructor',
    'not a known',
  ],
  ['no version', '"schemaVersion":1,', '', 'schemaVersion', 'is required'],
  [
    'a newer version',
    '"schemaVersion":1',
    '"schemaVersion":2',
    'schemaVersion',
    '2 is a version of plans that',
  ],
];

describe('a document that is not a plan', () => {
  it.each(SPOILT)('is refused for %s', (_what, from, to, field, words) => {
    const whole = textOf(PLAN, VALUES);
    expect(whole).toContain(from);
    const decoded = read(whole.replace(from, to));
    expect(decoded).toMatchObject({ ok: false });
    const faults = decoded.ok ? [] : decoded.faults;
    expect(faults.map(fault => fault.field)).toEqual([field]);
    expect(faults[0]?.reason).toContain(words);
  });

  it('tells all faults at once', () => {
    const text = textOf(PLAN, VALUES).replace('"kubeMark":16384', '"kubeMark":"x"').replace('"::/0"', '":"');
    const decoded = read(text);
    expect(decoded.ok ? [] : decoded.faults.map(({ field }) => field)).toEqual([
      'sets[0].ipv6[0]',
      'kubeMark',
    ]);
  });

  it('never makes the reader throw, whatever JSON it is', { timeout: 60_000 }, () => {
    const words =
      'schemaVersion sets policies poolDefault kubeMark tunnelInterfaces values id ipv4 rules ' +
      '__proto__ constructor toString hasOwnProperty valueOf length';
    const keys = fc.constantFrom(...words.split(' '));
    const anyJson = fc.oneof(
      fc.jsonValue({ maxDepth: 4 }),
      fc.dictionary(keys, fc.jsonValue({ maxDepth: 3 })),
    );
    fc.assert(
      fc.property(anyJson, value => {
        const decoded = read(JSON.stringify(value));
        expect(decoded).toMatchObject({ ok: false });
        expect(decoded.ok ? 0 : decoded.faults.length).toBeGreaterThan(0);
      }),
      { numRuns: 2000 },
    );
  });

  it('is refused or read as a plan that is written as it was read, whatever was done to it', {
    timeout: 60_000,
  }, () => {
    const whole = textOf(PLAN, VALUES);
    const places = placesOf(JSON.parse(whole));
    let readable = 0;
    fc.assert(
      fc.property(fc.constantFrom(...places), fc.jsonValue({ maxDepth: 2 }), (place, value) => {
        const decoded = decodePlan(withValue(JSON.parse(whole), place, value));
        if (!decoded.ok) {
          expect(decoded.faults.length).toBeGreaterThan(0);
          return;
        }
        readable++;
        expect(read(textOf(decoded.plan, decoded.values))).toEqual(decoded);
      }),
      { numRuns: 5000 },
    );
    expect(readable).toBeGreaterThan(0);
  });
});
