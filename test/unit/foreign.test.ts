// Who wins on nodes as they were seen: Felix in both of its modes beside kube-proxy. The tools' answers are recorded;
// a command that is not among them fails.
import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/cidr/address.ts';
import type { Command, Exec } from '../../src/kernel/exec.ts';
import { localOfRoutes, localOfTrie } from '../../src/kernel/foreign/facts.ts';
import {
  type Judgement,
  judgeForeign,
  readForeignFacts,
  readNatRules,
} from '../../src/kernel/foreign/judge.ts';
import { trafficOf } from '../../src/kernel/foreign/model.ts';
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

/** A node that answers exactly these command lines. */
function node(answers: ReadonlyMap<string, string>): Exec & { readonly unanswered: string[] } {
  const unanswered: string[] = [];
  const run = ({ tool, args }: Command) => {
    const line = [tool, ...args].join(' ');
    const stdout = answers.get(line);
    if (stdout === undefined) unanswered.push(line);
    return Promise.resolve({
      code: stdout === undefined ? 1 : 0,
      stdout: stdout ?? '',
      stderr: stdout === undefined ? `cat: ${args.at(-1)}: No such file or directory` : '',
      timedOut: false,
    });
  };
  return { run, unanswered };
}

const bases = (...chains: readonly object[]): string =>
  JSON.stringify({
    nftables: chains.map(chain => ({ chain: { type: 'nat', hook: 'postrouting', ...chain } })),
  });

const VERSIONS: readonly (readonly [string, string])[] = [
  ['iptables-nft --version', 'iptables v1.8.9 (nf_tables)'],
  ['iptables-legacy --version', 'iptables v1.8.9 (legacy)'],
  ['cat /proc/net/ip_tables_names', 'filter\n'],
];

const IPTABLES = { family: 'ip', table: 'nat', name: 'POSTROUTING', handle: 4, prio: 100, policy: 'accept' };

const IPTABLES_MODE = new Map([
  ...VERSIONS,
  ['nft -j list chains', bases(IPTABLES)],
  [
    'iptables-nft -w 5 -t nat -S POSTROUTING',
    `-P POSTROUTING ACCEPT
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "natoutgoing:0123456789abcdef jump" -j masq-POSTROUTING
-A POSTROUTING -m comment --comment "cali:0i8pjzKKPyA34aQD" -j cali-POSTROUTING
`,
  ],
  [
    'iptables-nft -w 5 -t nat -S KUBE-POSTROUTING',
    `-N KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
`,
  ],
  [
    'iptables-nft -w 5 -t nat -S cali-POSTROUTING',
    `-N cali-POSTROUTING
-A cali-POSTROUTING -m comment --comment "cali:Z-c7XtVd2Bq7s_hA" -j cali-fip-snat
-A cali-POSTROUTING -m comment --comment "cali:nYKhEzDlr11Jccal" -j cali-nat-outgoing
`,
  ],
  ['iptables-nft -w 5 -t nat -S cali-fip-snat', '-N cali-fip-snat\n'],
  [
    'iptables-nft -w 5 -t nat -S cali-nat-outgoing',
    `-N cali-nat-outgoing
-A cali-nat-outgoing -m comment --comment "cali:W_qq_N2KSTWyCvrX" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40network-ip-pools dst -j MASQUERADE --random-fully
`,
  ],
  ['ipset list -t cali40masq-ipam-pools', 'Name: x\nType: hash:net\nHeader: family inet hashsize 1024\n'],
  ['ipset list -t cali40network-ip-pools', 'Name: x\nType: hash:net\nHeader: family inet hashsize 1024\n'],
  ['ipset test cali40masq-ipam-pools 10.244.1.5', ''],
]);

/** ipset and nft tell by exit code 1 and these words that an address is not there. */
const absent = (exec: Exec, line: string, stderr: string): Exec => ({
  run: async (command, signal) =>
    [command.tool, ...command.args].join(' ') === line
      ? { code: 1, stdout: '', stderr, timedOut: false }
      : exec.run(command, signal),
});

async function judge(exec: Exec, asked: Packet): Promise<Judgement & { readonly gaps: readonly string[] }> {
  const rules = await readNatRules(exec, asked.source.family);
  return {
    ...judgeForeign(rules, trafficOf(asked), await readForeignFacts(exec, rules, asked)),
    gaps: rules.gaps,
  };
}

describe('a node with Felix in iptables mode', () => {
  const recorded = node(IPTABLES_MODE);
  const exec = absent(
    recorded,
    'ipset test cali40network-ip-pools 8.8.8.8',
    '8.8.8.8 is NOT in set cali40network-ip-pools.',
  );

  it('masquerades when we do nothing', async () => {
    expect(await judge(exec, packet())).toEqual({
      jump: true,
      gaps: [],
      before: [],
      after: [
        {
          certainty: 'wins',
          doubts: [],
          rule: '-A cali-nat-outgoing -m comment --comment "cali:W_qq_N2KSTWyCvrX" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40network-ip-pools dst -j MASQUERADE --random-fully',
          place:
            'iptables-nft nat POSTROUTING rule 3 -> chain cali-POSTROUTING rule 2 -> chain cali-nat-outgoing rule 1',
          program: "Calico's Felix",
          effect: 'masquerades',
          sentence: "It masquerades the packet: it leaves with the node's address.",
        },
      ],
    });
    expect(recorded.unanswered).toEqual([]);
  });

  it('leaves what kube-proxy marked to kube-proxy', async () => {
    const { before, after } = await judge(exec, packet({ mark: 0x4000 }));
    expect(before).toMatchObject([{ certainty: 'wins', program: 'kube-proxy', effect: 'masquerades' }]);
    expect(after).toEqual([]);
  });

  it('is not sure when a set cannot be asked', async () => {
    const { after } = await judge(recorded, packet());
    expect(after).toMatchObject([
      {
        certainty: 'may win',
        doubts: [
          'whether it is in set cali40network-ip-pools is not known: -m set ! --match-set cali40network-ip-pools dst',
        ],
      },
    ]);
  });
});

const felixRule = (handle: number, chain: string, ...expr: readonly object[]): object => ({
  rule: { family: 'ip', table: 'calico', chain, handle, expr },
});
const list = (chain: string): string => `list chain ip calico ${chain}`;
const answerOf = (...objects: readonly object[]): string => JSON.stringify({ nftables: objects });
const textOf = (handle: number, text: string): string =>
  `table ip calico {\n\tchain x { # handle 1\n\t\t${text} # handle ${handle}\n\t}\n}\n`;

const NFTABLES_MODE = new Map([
  ...VERSIONS,
  [
    'nft -j list chains',
    bases({ family: 'ip', table: 'calico', name: 'nat-POSTROUTING', handle: 9, prio: 110, policy: 'accept' }),
  ],
  [
    `nft -j -t ${list('nat-POSTROUTING')}`,
    answerOf(felixRule(2, 'nat-POSTROUTING', { counter: {} }, { jump: { target: 'nat-cali-nat-outgoing' } })),
  ],
  [`nft -a -s -t ${list('nat-POSTROUTING')}`, textOf(2, 'counter jump nat-cali-nat-outgoing')],
  [
    `nft -j -t ${list('nat-cali-nat-outgoing')}`,
    answerOf(
      felixRule(
        3,
        'nat-cali-nat-outgoing',
        { match: { op: '==', left: { payload: { protocol: 'ip', field: 'saddr' } }, right: '@masq' } },
        { match: { op: '!=', left: { payload: { protocol: 'ip', field: 'daddr' } }, right: '@all' } },
        { masquerade: { flags: 'fully-random' } },
      ),
    ),
  ],
  [
    `nft -a -s -t ${list('nat-cali-nat-outgoing')}`,
    textOf(3, 'ip saddr @masq ip daddr != @all counter masquerade fully-random'),
  ],
  ['nft get element ip calico masq { 10.244.1.5 }', 'table ip calico {}'],
]);

describe('a node with Felix in nftables mode', () => {
  it('masquerades at its later priority, and our jump is not there', async () => {
    const exec = absent(
      node(NFTABLES_MODE),
      'nft get element ip calico all { 8.8.8.8 }',
      'Error: Could not process rule: No such file or directory',
    );
    expect(await judge(exec, packet())).toMatchObject({
      jump: false,
      gaps: [],
      before: [],
      after: [
        {
          certainty: 'wins',
          rule: 'ip saddr @masq ip daddr != @all counter masquerade fully-random',
          place: 'nft ip calico nat-POSTROUTING rule 1 -> chain nat-cali-nat-outgoing rule 1',
          program: "Calico's Felix",
        },
      ],
    });
  });
});

describe('what cannot be read', () => {
  it('is said, and nothing is made of it', async () => {
    const { before, after, gaps } = await judge(node(new Map(VERSIONS)), packet());
    expect({ before, after }).toEqual({ before: [], after: [] });
    expect(gaps).toEqual([
      expect.stringMatching(/^Chains of nftables are not known: nft ended with exit code 1/),
      'POSTROUTING of iptables-nft cannot be listed.',
    ]);
  });

  it('leaves a jump into it possible', async () => {
    const answers = new Map(IPTABLES_MODE);
    answers.delete('iptables-nft -w 5 -t nat -S KUBE-POSTROUTING');
    const { before } = await judge(node(answers), packet());
    expect(before).toMatchObject([
      { certainty: 'may win', effect: 'unknown', place: 'iptables-nft nat POSTROUTING rule 1' },
    ]);
  });

  it('rejects when the signal aborts', async () => {
    const reason = new Error('enough');
    await expect(readNatRules(node(IPTABLES_MODE), 4, AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});

describe("the host's own addresses", () => {
  it('come from the local routes of IPv4', () => {
    const trie = `Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
`;
    expect(localOfTrie(trie)).toEqual([
      [0x7f000000n, 0x7fffffffn],
      [0xc0000202n, 0xc0000202n],
    ]);
  });

  it('and of IPv6', () => {
    const none = '0'.repeat(32);
    const routes = `fd${'0'.repeat(30)} 40 ${none} 00 ${none} 00000100 00000001 00000000 00000001     eth0
fd${'0'.repeat(29)}2 80 ${none} 00 ${none} 00000000 00000003 00000000 80200001     eth0
`;
    const local = (0xfdn << 120n) + 2n;
    expect(localOfRoutes(routes)).toEqual([[local, local]]);
  });
});
