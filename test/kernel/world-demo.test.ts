// The demo's scenario in a world, with rules written by hand in place of the planner's: the table tells the truth.
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { DEMO_MANIFESTS, DEMO_NODE } from '../../src/demo/manifests.ts';
import type { World } from '../../src/demo/model.ts';
import { type DemoPacket, type DemoVerdict, runDemo } from '../../src/demo/run.ts';
import { DEMO_CASES, DEMO_WORLD } from '../../src/demo/scenario.ts';
import { openWorld } from '../../src/demo/world.ts';
import { runLine } from './world-support.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld(DEMO_WORLD, new AbortController().signal);
});
afterEach(() => world.close());

const RULES: readonly string[] = [
  'iptables -s 10.244.0.0/16 -d 172.16.9.0/24 -j MASQUERADE',
  'iptables -s 10.244.0.0/16 -d 172.16.0.0/12 -j NETMAP --to 0.0.0.0/0',
  'iptables -s 10.244.0.0/16 -d 203.0.113.0/24 -p tcp --dport 443 -j SNAT --to-source 198.51.100.7:20000-29999',
  'iptables -s 10.244.0.0/16 -d 203.0.113.0/24 -p udp --dport 443 -j SNAT --to-source 198.51.100.7:20000-29999',
  'iptables -s 10.244.0.0/16 -d 10.245.7.0/24 -j MASQUERADE',
  'iptables -s 10.244.0.0/16 -o eth1 -j NETMAP --to 0.0.0.0/0',
  'iptables -s 10.244.0.0/16 -d 10.244.0.0/15 -j RETURN',
  'iptables -s 10.244.0.0/16 -j MASQUERADE',
  'ip6tables -s fd00:244::/48 -d fd00:dc:9::/48 -j MASQUERADE',
  'ip6tables -s fd00:244::/48 -d fd00:dc::/32 -j NETMAP --to ::/0',
  'ip6tables -s fd00:244::/48 -d 2001:db8:ba::/48 -p tcp --dport 443 -j SNAT --to-source [2001:db8:51::7]:20000-29999',
  'ip6tables -s fd00:244::/48 -d 2001:db8:ba::/48 -p udp --dport 443 -j SNAT --to-source [2001:db8:51::7]:20000-29999',
  'ip6tables -s fd00:244::/48 -d fd00:245:0:7::/64 -j MASQUERADE',
  'ip6tables -s fd00:244::/48 -o eth1 -j NETMAP --to ::/0',
  'ip6tables -s fd00:244::/48 -d fd00:244::/47 -j RETURN',
  'ip6tables -s fd00:244::/48 -j MASQUERADE',
];

const applyRules = async (): Promise<void> => {
  for (const rule of RULES) {
    const [tool = '', ...args] = rule.split(' ');
    await runLine(world.exec, `${tool}-nft -t nat -A POSTROUTING ${args.join(' ')}`);
  }
};

/** Answers as the cases expect: what is tested here is the table, not an explanation. */
const explain = async (packet: DemoPacket): Promise<DemoVerdict> => {
  const demoCase = DEMO_CASES.find(
    ({ probe }) =>
      probe.source === packet.source &&
      probe.destination === packet.destination &&
      probe.protocol === packet.protocol &&
      probe.destinationPort === packet.destinationPort,
  );
  const [policy, rule] = demoCase?.by.split('/') ?? [];
  if (policy === undefined || policy === 'nobody') return { action: 'None', by: null };
  if (rule === undefined) return { action: 'Masquerade', by: { ipPool: policy.replace('IPPool ', '') } };
  return { action: 'Any', by: { policy, rule } };
};

test('with the right rules every packet is as expected', async () => {
  const written: string[] = [];
  const applied: string[] = [];
  const good = await runDemo({
    world,
    applyManifests: async files => {
      for (const file of files) {
        applied.push(basename(file));
        expect(await readFile(file, 'utf8')).toContain('apiVersion:');
      }
      await applyRules();
    },
    explain,
    write: text => void written.push(text),
  });
  const table = written.join('');
  console.log(table);
  expect(table).not.toContain('WRONG');
  expect(good).toBe(true);
  expect(applied).toEqual(DEMO_MANIFESTS.map(({ name }) => name));
  const families = DEMO_CASES.map(({ probe }) => `${probe.protocol} ${probe.source.includes(':') ? 6 : 4}`);
  expect([...new Set(families)].sort()).toEqual(['icmp 4', 'icmp 6', 'tcp 4', 'tcp 6', 'udp 4', 'udp 6']);
  expect(table).toContain(`${DEMO_CASES.length} of ${DEMO_CASES.length} packets as expected.`);
});

test('without rules, and with a wrong explanation, the table says what was expected', async () => {
  const written: string[] = [];
  const good = await runDemo({
    world,
    applyManifests: async () => {},
    explain: async () => ({ action: 'None', by: null }),
    write: text => void written.push(text),
  });
  expect(good).toBe(false);
  expect(written.join('')).toMatch(
    /TCP 10\.244\.1\.5 > 8\.8\.8\.8:443 +the Internet +10\.244\.1\.5 +nobody: None +WRONG: expected 192\.168\.50\.10, expected IPPool nat-v4 to decide\n/,
  );
  expect(written.join('')).toMatch(/TCP 10\.245\.1\.5 > 8\.8\.8\.8:443 .* as expected\n/);
});

test('every manifest is YAML of the kinds that the demo is about, and the node is among them', () => {
  const objects = DEMO_MANIFESTS.flatMap(({ text }) =>
    parseAllDocuments(text).map(document => {
      expect(document.errors).toEqual([]);
      return document.toJS() as { readonly kind: string; readonly metadata: { readonly name: string } };
    }),
  );
  const kinds = objects.map(({ kind }) => kind);
  expect(new Set(kinds)).toEqual(new Set(['IPPool', 'Node', 'MasqPolicy']));
  expect(objects.find(({ kind }) => kind === 'Node')?.metadata.name).toBe(DEMO_NODE);
  // Every rule that a case names is there.
  const policies = new Set(
    objects.filter(({ kind }) => kind === 'MasqPolicy').map(({ metadata }) => metadata.name),
  );
  for (const { by } of DEMO_CASES) {
    if (by.includes('/')) expect(policies).toContain(by.split('/')[0]);
  }
});
