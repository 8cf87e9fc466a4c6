// The configuration of ip-masq-agent as a MasqPolicy: each form, what the agent would refuse, and packet by packet.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { parse } from 'yaml';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Address } from '../../src/cidr/address.ts';
import { containsAddress, formatCidr, parseCidr } from '../../src/cidr/cidr.ts';
import { loadManifests } from '../../src/cli/manifests.ts';
import { decide } from '../../src/planner/decide.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { commandBlocks } from '../documents.ts';
import { address, anyCidr } from '../oracle/universe.ts';
import { natoutgoing, type Ran } from './cli-run.ts';

interface Policy {
  readonly spec: {
    readonly rules: readonly {
      readonly name: string;
      readonly to: readonly { readonly ipBlock?: { readonly cidr: string }; readonly scope?: string }[];
      readonly action: string;
    }[];
  };
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'natoutgoing-test-'));
});
afterAll(() => rm(folder, { recursive: true }));

/** Runs it on one file. */
async function migrate(content: string | object, ...args: readonly string[]): Promise<Ran> {
  const file = join(folder, typeof content === 'string' ? 'config' : 'objects.json');
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
  const ran = await natoutgoing('migrate', 'ip-masq-agent', '-f', file, ...args);
  return { ...ran, stderr: ran.stderr.replaceAll(`${folder}/`, '') };
}

const policyIn = async ({ code, stdout, stderr }: Ran): Promise<Policy> => {
  expect(code, stderr).toBe(0);
  const { verdicts, problems } = await loadManifests(['-'], () => Promise.resolve(stdout));
  expect([problems, verdicts.map(({ verdict, faults }) => ({ verdict, faults }))]).toEqual([
    [],
    [{ verdict: 'ok', faults: [] }],
  ]);
  return parse(stdout) as Policy;
};

/** Name of rule → its destinations. */
const rulesOf = ({ spec }: Policy): Readonly<Record<string, readonly (string | undefined)[]>> =>
  Object.fromEntries(spec.rules.map(({ name, to }) => [name, to.map(it => it.ipBlock?.cidr ?? it.scope)]));

const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'];
const REST = { 'cluster-pods': ['ClusterPods'], 'everything-else': ['0.0.0.0/0'] };
const LINK_LOCAL = { 'link-local': ['169.254.0.0/16'] };
const configMap = (name: string, data: object): object => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'kube-system' },
  data,
});
const daemonSet = (image: string, args: readonly string[]): object => ({
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'ip-masq-agent' },
  spec: { template: { spec: { containers: [{ name: 'ip-masq-agent', image, args }] } } },
});
const list = (...items: readonly object[]): object => ({ apiVersion: 'v1', kind: 'List', items });
const UPSTREAM = 'registry.k8s.io/networking/ip-masq-agent:v2.12.0';

describe('migrate ip-masq-agent', () => {
  it.each([
    ['an empty file, as no file', '', { ...LINK_LOCAL, 'non-masquerade-cidrs': PRIVATE, ...REST }],
    ['no list', 'resyncInterval: 60s', { ...LINK_LOCAL, 'non-masquerade-cidrs': PRIVATE, ...REST }],
    ['an empty list', 'nonMasqueradeCIDRs: []', { ...LINK_LOCAL, ...REST }],
    ['a list that is null', 'nonMasqueradeCIDRs:', { ...LINK_LOCAL, ...REST }],
    [
      'JSON',
      '{"nonMasqueradeCIDRs":["10.1.0.0/16"]}',
      { ...LINK_LOCAL, 'non-masquerade-cidrs': ['10.1.0.0/16'], ...REST },
    ],
    [
      'link-local',
      'masqLinkLocal: true\nnonMasqueradeCIDRs: [10.1.0.0/16]',
      { 'non-masquerade-cidrs': ['10.1.0.0/16'], ...REST },
    ],
    [
      'another case of letters',
      'NonMasqueradeCIDRs: [10.1.0.0/16]',
      { ...LINK_LOCAL, 'non-masquerade-cidrs': ['10.1.0.0/16'], ...REST },
    ],
    [
      '0.0.0.0/0',
      'nonMasqueradeCIDRs: [0.0.0.0/0]',
      { ...LINK_LOCAL, 'non-masquerade-cidrs': ['0.0.0.0/0'], ...REST },
    ],
  ])('reads %s', async (_, content, rules) => {
    expect(rulesOf(await policyIn(await migrate(content)))).toEqual(rules);
  });

  it('takes all reserved ranges where the agent does: eleven', async () => {
    const reserved = [...PRIVATE, '100.64.0.0/10', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24'];
    const all = [...reserved, '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '240.0.0.0/4'];
    const byFlag = await migrate('', '--nomasq-all-reserved-ranges');
    const byDaemonSet = await migrate(
      list(
        configMap('ip-masq-agent', { config: 'masqLinkLocal: false' }),
        daemonSet(UPSTREAM, ['--nomasq-all-reserved-ranges']),
      ),
    );
    const byCilium = await migrate('# nothing', '--form', 'cilium');
    for (const ran of [byFlag, byDaemonSet, byCilium])
      expect(rulesOf(await policyIn(ran))['non-masquerade-cidrs']).toEqual(all);
    const listed = await migrate('nonMasqueradeCIDRs: [10.1.0.0/16]', '--nomasq-all-reserved-ranges');
    expect(rulesOf(await policyIn(listed))['non-masquerade-cidrs']).toEqual(['10.1.0.0/16']);
  });

  it('puts Azure’s files together', async () => {
    const ran = await migrate(
      configMap('azure-ip-masq-agent-config', {
        'ip-masq-agent': 'NonMasqueradeCIDRs: [10.1.0.0/16, 10.2.0.0/16]\nMasqLinkLocal: true',
        'ip-masq-agent-reconciled': 'NonMasqueradeCIDRs: [10.2.0.0/16, 10.3.0.0/16]',
      }),
    );
    expect(rulesOf(await policyIn(ran))).toEqual({
      'non-masquerade-cidrs': ['10.1.0.0/16', '10.2.0.0/16', '10.3.0.0/16'],
      ...REST,
    });
    const empty = await migrate(
      configMap('azure-ip-masq-agent-config', { 'ip-masq-agent': 'MasqLinkLocal: false' }),
    );
    expect(rulesOf(await policyIn(empty))).toEqual({ ...LINK_LOCAL, ...REST });
  });

  it('reads GKE’s EgressNATPolicy', async () => {
    const ran = await migrate({
      apiVersion: 'networking.gke.io/v1',
      kind: 'EgressNATPolicy',
      metadata: { name: 'default' },
      spec: { action: 'NoSNAT', destinations: [{ cidr: '10.0.0.0/8' }] },
    });
    expect(rulesOf(await policyIn(ran))).toEqual({
      ...LINK_LOCAL,
      'non-masquerade-cidrs': ['10.0.0.0/8'],
      ...REST,
    });
  });

  it('is about IPv6 where the agent is', async () => {
    const both = daemonSet(UPSTREAM, ['--enable-ipv6', '--masq-chain=IP-MASQ']);
    const data = { config: 'nonMasqueradeCIDRs: [10.1.0.0/16, "fd00::/8"]\nmasqLinkLocalIPv6: true' };
    const ran = await migrate(list(both, configMap('ip-masq-agent', data)));
    expect(rulesOf(await policyIn(ran))).toEqual({
      ...LINK_LOCAL,
      'non-masquerade-cidrs': ['10.1.0.0/16', 'fd00::/8'],
      'cluster-pods': ['ClusterPods'],
      'everything-else': ['0.0.0.0/0', '::/0'],
    });
    expect(ran.stderr).toContain('leaves chain IP-MASQ behind');
  });

  it('asks about a key that the agent does not know, and about a list that it refuses as too long', async () => {
    const cidrs = Array.from({ length: 70 }, (_, i) => `10.${i}.0.0/16`);
    const ran = await migrate(`nonMasqueradeCIDR: [10.0.0.0/8]\nnonMasqueradeCIDRs: [${cidrs.join(', ')}]`);
    const rules = rulesOf(await policyIn(ran));
    expect([...(rules['non-masquerade-cidrs'] ?? []), ...(rules['non-masquerade-cidrs-2'] ?? [])]).toEqual(
      cidrs,
    );
    expect(ran.stderr).toContain('question: config: nonMasqueradeCIDR: the agent does not know this key');
    expect(ran.stderr).toContain('has 70 CIDRs, and an agent whose limit is 64 refuses that list');
    expect((await migrate(`cidrLimit: 70\nnonMasqueradeCIDRs: [${cidrs.join(', ')}]`)).stderr).not.toContain(
      '70 CIDRs',
    );
  });

  it.each([
    [
      'nonMasqueradeCIDRs: [10.0.0.0/8, 10.0.0.1/8, x]',
      'config: nonMasqueradeCIDRs[1]: "10.0.0.1/8" has bits below its prefix; the network is 10.0.0.0/8\nconfig: nonMasqueradeCIDRs[2]: "x" is not a CIDR',
    ],
    [
      'nonMasqueradeCIDRs: ["fd00::/8"]',
      'nonMasqueradeCIDRs[0]: "fd00::/8" is IPv6, which the agent refuses unless it runs with --enable-ipv6',
    ],
    ['nonMasqueradeCIDRs: 10.0.0.0/8', 'nonMasqueradeCIDRs: "10.0.0.0/8" is not a list'],
    ['nonMasqueradeCIDRs: [010.0.0.0/8]', 'nonMasqueradeCIDRs[0]: "010.0.0.0/8"'],
    ['masqLinkLocal: "yes"', 'masqLinkLocal: "yes" is not true or false'],
    ['cidrLimit: many', 'cidrLimit: "many" is not a whole number'],
    ['masqLinkLocal: true\nMasqLinkLocal: false', 'masqLinkLocal: is there twice, in two spellings'],
    ['- 10.0.0.0/8', 'config: a list is not a configuration of ip-masq-agent'],
    ['a: [', 'config:1:5: not YAML'],
    [
      configMap('ip-masq-agent', { a: '', b: '' }),
      'ConfigMap/ip-masq-agent: data.a, objects.json: ConfigMap/ip-masq-agent: data.b: only Azure',
    ],
    [configMap('ip-masq-agent', { config: 'a: [' }), 'ConfigMap/ip-masq-agent: data.config:1:5: not YAML'],
    [configMap('ip-masq-agent', { config: 7 }), 'data.config: 7 is not a string'],
    [daemonSet('other', []), undefined],
    [{ ...daemonSet('x', []), spec: {} }, 'has 0 containers of ip-masq-agent, not one'],
    [
      { kind: 'Secret', metadata: { name: 's' } },
      'Secret/s: kind: "Secret" is not ConfigMap, DaemonSet or EgressNATPolicy',
    ],
    [
      {
        kind: 'EgressNATPolicy',
        metadata: { name: 'd' },
        spec: { action: 'SNAT', sources: [], destinations: [{}] },
      },
      'spec.action: "SNAT" is not NoSNAT',
    ],
    [
      {
        kind: 'EgressNATPolicy',
        metadata: { name: 'd' },
        spec: { action: 'NoSNAT', destinations: [{ cidr: '10.0.0.0/8' }, { cidr: '10.0.0.1/8' }] },
      },
      'EgressNATPolicy/d: spec.destinations[1].cidr: "10.0.0.1/8" has bits below its prefix',
    ],
    [
      `nonMasqueradeCIDRs: [${Array.from({ length: 4000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`).join(', ')}]`,
      '4000 CIDRs do not fit into one MasqPolicy (3904): put them into a GlobalNetworkSet',
    ],
  ])('%j', async (content, fault) => {
    const { code, stdout, stderr } = await migrate(content);
    if (fault === undefined) return expect(code).toBe(0);
    expect(stderr).toContain(fault);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  });

  it.each([
    [['migrate', 'kube-router', '-f', 'x'], "value 'kube-router' is invalid"],
    [['migrate', 'ip-masq-agent'], "required option '-f, --filename <path...>' not specified"],
    [['migrate', 'ip-masq-agent', '-f', '/nowhere/config'], '/nowhere/config: cannot be read'],
    [['migrate', 'ip-masq-agent', '-f', '-', '--name', 'A b'], '--name: "A b" is no name of an object'],
  ])('%j is wrong usage', async (args, message) => {
    const { code, stdout, stderr } = await natoutgoing(...args);
    expect(stderr).toContain(message);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  });

  it('prints what docs/migration.md shows', async () => {
    const [shown] = commandBlocks('docs/migration.md').filter(({ output }) => output !== undefined);
    const [, config] = /<<END\n([^]*)END\n/.exec(shown?.script ?? '') ?? [];
    expect((await migrate(config ?? '')).stdout).toBe(shown?.output);
  });

  it('decides about packets as the agent did', async () => {
    const pods = '10.244.0.0/16';
    const source: Address = address('10.244.1.1');
    const destinations = fc.oneof(
      anyCidr.map(({ family, base }): Address => ({ family, value: base })),
      fc
        .constantFrom('8.8.8.8', '169.254.1.1', '10.1.2.3', '172.31.0.1', '2001:db8::1', 'fe80::1')
        .map(address),
    );
    const property = fc.asyncProperty(
      fc.array(anyCidr, { maxLength: 6 }),
      fc.boolean(),
      fc.boolean(),
      fc.boolean(),
      fc.array(destinations, { minLength: 8, maxLength: 8 }),
      async (cidrs, masqLinkLocal, masqLinkLocalIPv6, ipv6, all) => {
        const spared = cidrs.filter(({ family }) => ipv6 || family === 4);
        const config = { nonMasqueradeCIDRs: spared.map(formatCidr), masqLinkLocal, masqLinkLocalIPv6 };
        const ran = await migrate(JSON.stringify(config), ...(ipv6 ? ['--enable-ipv6'] : []));
        const pool = {
          apiVersion: 'crd.projectcalico.org/v1',
          kind: 'IPPool',
          metadata: { name: 'pods' },
          spec: { cidr: pods },
        };
        const pool6 = { ...pool, metadata: { name: 'pods6' }, spec: { cidr: 'fd00:10:244::/48' } };
        const text = `${ran.stdout}---\n${JSON.stringify(pool)}\n---\n${JSON.stringify(pool6)}\n`;
        const { snapshot } = await loadManifests(['-'], () => Promise.resolve(text));
        const { plan, values } = planNode(snapshot, 'n');
        for (const destination of all) {
          const asked = destination.family === 4 ? source : address('fd00:10:244::1');
          const { action } = decide(
            plan,
            { values },
            { source: asked, destination, protocol: 'TCP', destinationPort: 80, outInterface: 'eth0' },
          );
          expect([formatted(destination), action]).toEqual([
            formatted(destination),
            asTheAgent(destination, [...spared], { 4: !masqLinkLocal, 6: !masqLinkLocalIPv6 }, ipv6),
          ]);
        }
      },
    );
    await fc.assert(property, { numRuns: 60 });
  });
});

const formatted = ({ family, value }: Address): string => `${family} ${value.toString(16)}`;
const within = (destination: Address, cidr: string): boolean => {
  const parsed = parseCidr(cidr);
  return parsed.ok && containsAddress(parsed.value, destination);
};

/** The agent's chain, rule by rule; a pod is spared by the policy alone. */
function asTheAgent(
  destination: Address,
  spared: readonly Parameters<typeof containsAddress>[0][],
  linkLocal: Readonly<Record<4 | 6, boolean>>,
  ipv6: boolean,
): string {
  const pods = ['10.244.0.0/16', 'fd00:10:244::/48'].some(cidr => within(destination, cidr));
  if (pods) return 'Preserve';
  if (destination.family === 6 && !ipv6) return 'None';
  const local = within(destination, destination.family === 4 ? '169.254.0.0/16' : 'fe80::/10');
  if (local && linkLocal[destination.family]) return 'Preserve';
  return spared.some(cidr => containsAddress(cidr, destination)) ? 'Preserve' : 'Masquerade';
}
