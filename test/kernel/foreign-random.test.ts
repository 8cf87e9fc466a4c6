// Random rules of others around our jump, in all three languages of the kernel: what the outside sees is what the
// judgement says, for every packet.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FAMILIES, formatAddress } from '../../src/cidr/address.ts';
import { setOf } from '../../src/cidr/address-set.ts';
import type { World } from '../../src/demo/model.ts';
import {
  type Judgement,
  judgeForeign,
  readForeignFacts,
  readNatRules,
} from '../../src/kernel/foreign/judge.ts';
import { readRivals } from '../../src/kernel/foreign/rivals.ts';
import { trafficOf } from '../../src/kernel/foreign/model.ts';
import type { Packet } from '../../src/planner/packet.ts';
import { address, cidr } from './foreign-support.ts';
import { addressOf, NAMES, type Names, openScene } from './scene.ts';

const RUNS = 30;
const PORT = 443;
const ADDRESSES = 60;

/** What a rule asks, in the words of iptables and of nft. */
type Match = (n: Names) => readonly [iptables: string, nft: string];

const ip = (n: Names): string => (n.family === 4 ? 'ip' : 'ip6');
const host = (n: Names): number => (n.family === 4 ? 32 : 128);

const maskedPods = (n: Names): string =>
  n.family === 4 ? 'ip saddr & 255.255.0.0 == 10.244.0.0' : 'ip6 saddr & ffff:ffff:ffff:: == fd00:244::';

const MATCHES: readonly Match[] = [
  n => [`-s ${n.pods}`, `${ip(n)} saddr ${n.pods}`],
  n => [`! -s ${n.pod}/${host(n)}`, `${ip(n)} saddr != ${n.pod}`],
  n => [`-d ${n.internet}/${host(n)}`, `${ip(n)} daddr ${n.internet}`],
  n => [`! -d ${n.second}`, `${ip(n)} daddr != { ${n.second}, ${n.hole} }`],
  n => [`-m set --match-set theirs${n.family} src`, `${ip(n)} saddr @theirs`],
  n => [`-m set ! --match-set theirs${n.family} dst`, maskedPods(n)],
  n => [
    `-m set --match-set tuples${n.family} dst,dst,src`,
    `${ip(n)} daddr ${n.internet}-${n.family === 4 ? '8.8.8.9' : '2001:4860:4860::8889'}`,
  ],
  () => ['-p udp -m udp --dport 443', 'udp dport 443'],
  () => ['-p udp -m multiport ! --dports 80,400:500', 'udp dport != { 80, 400-500 }'],
  () => ['-p tcp -m tcp --dport 443', 'tcp dport 443'],
  () => ['! -p tcp', 'meta l4proto != tcp'],
  () => ['-o eth0', 'oifname "eth0"'],
  () => ['-o eth+', 'oifname "eth*"'],
  () => ['! -o eth1', 'oifname != "eth1"'],
  () => ['-m mark --mark 0x1/0x1', 'meta mark & 0x1 == 0x1'],
  () => ['-m mark ! --mark 0x1/0x1', 'meta mark & 0x1 != 0x1'],
  () => ['-m mark --mark 0x1', 'meta mark 0x1'],
  () => ['-m addrtype --dst-type LOCAL', 'fib daddr type local'],
  () => ['-m addrtype ! --src-type LOCAL', 'fib saddr type != local'],
  () => ['-m conntrack --ctstate NEW', 'ct state new'],
  () => ['-m conntrack --ctstate RELATED,ESTABLISHED', 'ct state established,related'],
  n => [`-m iprange ! --dst-range ${n.internet}-${n.internet}`, `meta nfproto ipv${n.family}`],
  () => ['-m comment --comment "a \\"quoted\\" \\\\ word"', 'counter'],
];

type Target =
  | { readonly jump: number; readonly verb: 'jump' | 'goto' }
  | { readonly verb: 'ACCEPT' | 'RETURN' | 'MASQUERADE' | 'SNAT' | 'KEEP' | 'MARK' | 'NONE' };

interface RandomRule {
  readonly matches: readonly number[];
  readonly target: Target;
}

type RandomChain = readonly RandomRule[];

interface RandomRules {
  /** POSTROUTING of iptables above and below our jump. */
  readonly above: RandomChain;
  readonly below: RandomChain;
  /** Base chains of nft, asked before and after iptables'. */
  readonly early: RandomChain;
  readonly late: RandomChain;
  /** Chains that these lead to, each only to later ones. */
  readonly called: readonly [RandomChain, RandomChain, RandomChain];
  /** Whether our own chain translates. */
  readonly acts: boolean;
}

const ENDS: readonly Target[] = [
  { verb: 'ACCEPT' },
  { verb: 'MASQUERADE' },
  { verb: 'SNAT' },
  { verb: 'KEEP' },
];
const STAYS: readonly Target[] = [{ verb: 'RETURN' }, { verb: 'MARK' }, { verb: 'NONE' }];

/** A chain that may lead to called chains from that number on. */
function chainFrom(first: number): fc.Arbitrary<RandomChain> {
  const jumps = fc.record({
    jump: fc.integer({ min: Math.min(first, 2), max: 2 }),
    verb: fc.constantFrom('jump' as const, 'goto' as const),
  });
  const target = fc.oneof(
    { weight: 2, arbitrary: fc.constantFrom(...STAYS) },
    { weight: 1, arbitrary: fc.constantFrom(...ENDS) },
    { weight: first > 2 ? 0 : 3, arbitrary: jumps },
  );
  const matches = fc.array(fc.nat({ max: MATCHES.length - 1 }), { maxLength: 2 });
  return fc.array(fc.record({ matches, target }), { maxLength: 3 });
}

const randomRules: fc.Arbitrary<RandomRules> = fc.record({
  above: chainFrom(0),
  below: chainFrom(0),
  early: chainFrom(0),
  late: chainFrom(0),
  called: fc.tuple(chainFrom(1), chainFrom(2), chainFrom(3)),
  acts: fc.boolean(),
});

const snatAddress = (n: Names, number: number): string =>
  n.family === 4 ? `198.51.100.${number}` : `2001:db8:51::${number.toString(16)}`;

const ours = (n: Names): string => snatAddress(n, ADDRESSES);

/** Neither language takes two matches of one key in a rule. */
const keyOf = (text: string): string =>
  /dport|l4proto|-p /.test(text) ? 'protocol' : (text.replace('! ', '').split(' ', 1)[0] ?? '');

/** The two texts; every SNAT has an address of its own, so that the outside tells which rule it was. */
function textsOf(n: Names, rules: RandomRules): { readonly iptables: string; readonly nft: string } {
  let used = 0;
  const targetOf = (target: Target): readonly [string, string] => {
    switch (target.verb) {
      case 'jump':
        return [`-j called${target.jump}`, `jump called${target.jump}`];
      case 'goto':
        return [`-g called${target.jump}`, `goto called${target.jump}`];
      case 'MARK':
        return ['-j MARK --set-xmark 0x1/0x3', 'meta mark set meta mark & 0xfffffffc ^ 0x1'];
      case 'NONE':
        return ['', 'counter'];
      case 'MASQUERADE':
        return ['-j MASQUERADE', 'masquerade'];
      case 'SNAT': {
        const to = snatAddress(n, ++used);
        return [`-j SNAT --to-source ${to}`, `snat ${ip(n)} to ${to}`];
      }
      case 'KEEP':
        return [`-j NETMAP --to ${n.identity}`, `snat ${ip(n)} to ${n.pod}`];
      default:
        return [`-j ${target.verb}`, target.verb.toLowerCase()];
    }
  };
  const lines = (chain: RandomChain, dialect: 0 | 1): readonly string[] =>
    chain.map(({ matches, target }) => {
      const texts = matches.map(at => (MATCHES[at] as Match)(n)[dialect]);
      const asked = texts.filter((text, i) => texts.findIndex(other => keyOf(other) === keyOf(text)) === i);
      return [...asked, targetOf(target)[dialect]].join(' ');
    });
  const iptables = [
    '*nat',
    ':masq-POSTROUTING - [0:0]',
    ...rules.called.map((_, i) => `:called${i} - [0:0]`),
    ...(rules.acts ? [`-A masq-POSTROUTING -j SNAT --to-source ${ours(n)}`] : []),
    ...lines(rules.above, 0).map(line => `-A POSTROUTING ${line}`),
    '-A POSTROUTING -j masq-POSTROUTING',
    ...lines(rules.below, 0).map(line => `-A POSTROUTING ${line}`),
    ...rules.called.flatMap((chain, i) => lines(chain, 0).map(line => `-A called${i} ${line}`)),
    'COMMIT',
  ];
  const base = (priority: number): string => `type nat hook postrouting priority ${priority}; policy accept;`;
  const type = n.family === 4 ? 'ipv4_addr' : 'ipv6_addr';
  const nft = [
    'table inet others',
    'delete table inet others',
    'table inet others {',
    `set theirs { type ${type}; flags interval; elements = { ${n.nested}, ${n.pod} }; }`,
    ...rules.called.flatMap((chain, i) => [`chain called${i} {`, ...lines(chain, 1), '}']),
    'chain early {',
    base(90),
    ...lines(rules.early, 1),
    '}',
    'chain late {',
    base(110),
    ...lines(rules.late, 1),
    '}',
    '}',
  ];
  return { iptables: `${iptables.join('\n')}\n`, nft: `${nft.join('\n')}\n` };
}

const TRANSLATING: readonly string[] = ['masquerades', 'SNATs', 'keeps'];

/** The source address that follows from a judgement in which nothing is uncertain. */
function predicted(judgement: Judgement, own: string, node: string, ourAddress: string | undefined): string {
  const { before, after } = judgement;
  const translation = (verdicts: Judgement['before']): string | undefined => {
    const first = verdicts.find(({ effect }) => TRANSLATING.includes(effect));
    if (first === undefined) return undefined;
    return first.effect === 'masquerades' ? node : first.address;
  };
  const skipped = before.some(({ effect }) => effect === 'accepts' || effect === 'leaves');
  return translation(before) ?? (skipped ? undefined : ourAddress) ?? translation(after) ?? own;
}

describe.each(['nft', 'legacy'] as const)('random rules of others, ours in iptables-%s', backend => {
  let world: World;
  const run = async (tool: string, args: readonly string[], stdin = ''): Promise<void> => {
    const result = await world.exec.run({ tool, args, stdin, timeoutMs: 20_000 });
    if (result.code !== 0) throw new Error(`${tool}: ${result.stderr}\n${stdin}`);
  };
  beforeAll(async () => {
    world = await openScene();
    for (const family of FAMILIES) {
      const addresses = Array.from({ length: ADDRESSES }, (_, i) => snatAddress(NAMES[family], i + 1));
      // On both links, since neighbours of IPv6 are told of a link's own addresses alone; none for MASQUERADE to take.
      const links = family === 4 ? ['lo'] : ['eth0 nodad preferred_lft 0', 'eth1 nodad preferred_lft 0'];
      const lines = links.flatMap(link =>
        addresses.map(own => `addr replace ${own}/${host(NAMES[family])} dev ${link}`),
      );
      await run('ip', ['-batch', '-'], `${lines.join('\n')}\n`);
    }
  });
  afterAll(() => world.close());

  it.each(FAMILIES)('IPv%i: the outside sees what is judged', { timeout: 300_000 }, async family => {
    const n = NAMES[family];
    const type = family === 4 ? 'inet' : 'inet6';
    const destinations = [
      { destination: n.internet, outInterface: 'eth0', node: n.node },
      { destination: n.inSecond, outInterface: 'eth1', node: n.nodeOnSecond },
    ];
    await run(
      'ipset',
      ['restore'],
      [
        `create theirs${family} hash:net family ${type}`,
        `add theirs${family} ${n.pods}`,
        `add theirs${family} ${n.inSecond}/${host(n)} nomatch`,
        `create tuples${family} hash:ip,port,ip family ${type}`,
        `add tuples${family} ${n.internet},udp:${PORT},${n.pod}`,
      ].join('\n') + '\n',
    );
    let translated = 0;
    let rivalled = 0;
    await fc.assert(
      fc.asyncProperty(randomRules, async rules => {
        const texts = textsOf(n, rules);
        await run(`${n.iptables}-${backend}-restore`, ['-w', '5'], texts.iptables);
        await run('nft', ['-f', '-'], texts.nft);
        const read = await readNatRules(world.exec, family);
        expect(read.gaps).toEqual([]);
        const pods = setOf(family, [cidr(n.pods), cidr(n.otherPods)]);
        const rivals = (await readRivals(world.exec, pods)).rules.map(({ place }) => place);
        for (const { destination, outInterface, node } of destinations) {
          const packet: Packet = {
            source: address(n.pod),
            destination: address(destination),
            protocol: 'UDP',
            destinationPort: PORT,
            outInterface,
          };
          const judgement = judgeForeign(
            read,
            trafficOf(packet),
            await readForeignFacts(world.exec, read, packet),
          );
          expect(judgement.jump).toBe(true);
          expect([...judgement.before, ...judgement.after].filter(({ doubts }) => doubts.length > 0)).toEqual(
            [],
          );
          // Who decides about one packet before us is among those that may decide about any.
          const places = judgement.before.map(({ place }) => place);
          expect(places.filter(place => !rivals.includes(place))).toEqual([]);
          rivalled += places.length;
          const observed = await world.send({
            from: 'pod',
            source: n.pod,
            destination,
            protocol: 'udp',
            destinationPort: PORT,
          });
          const ourAddress = rules.acts ? ours(n) : undefined;
          const wanted = predicted(judgement, n.pod, node, ourAddress);
          expect(addressOf(observed)).toBe(formatAddress(address(wanted)));
          if (wanted !== n.pod && wanted !== ourAddress) translated++;
        }
      }),
      { numRuns: RUNS },
    );
    // That it was about others' rules at all.
    expect(translated).toBeGreaterThan(RUNS / 10);
    expect(rivalled).toBeGreaterThan(RUNS / 10);
  });
});
