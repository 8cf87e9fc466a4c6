// A second run on correct rules writes nothing, whatever the names and spellings: the report says so, `nft monitor`
// hears nothing, counters live on, and no set was made anew.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type BuiltCommand, buildForTest } from './command.ts';
import { NAMES, networkSet, node, NODE, openSceneWithDriver, policy, pool, type Scene } from './scene.ts';
import { eventually } from './world-support.ts';

const nameOf = (length: number): string => 'n'.repeat(length);

/** Kubernetes allows names of up to 253 characters, with dots between labels of up to 63. */
const LONG = `${nameOf(63)}.${nameOf(63)}.${nameOf(63)}.${nameOf(61)}`;
const POLICY_NAMES = [
  'a',
  'a.b',
  'a-b',
  nameOf(20),
  nameOf(21),
  nameOf(22),
  nameOf(63),
  `${LONG.slice(0, -1)}a`,
  LONG,
];

const ODD_V6 = [
  '2001:DB8:77:0:0:0:0:0/64',
  '2001:0db8:0078::/64',
  'FD00:DC::/32',
  '64:ff9b:0:0::/96',
  '::/0',
];
const ODD_V4 = ['0.0.0.0/0', '172.16.0.0/12', '198.18.0.0/15', '192.0.2.7/32'];
const NETS = ['192.0.2.9', '10.9.8.7/8', '2001:db8:79::1', '2001:db8:80::1/48', '203.0.113.0/24'];

const objects = [
  pool('pods.v4', NAMES[4].pods),
  pool('pods.v6', NAMES[6].pods),
  networkSet('partners', NETS),
  node(NODE, [NAMES[4].node, NAMES[6].node]),
  ...POLICY_NAMES.map((name, i) =>
    policy(
      name,
      [
        {
          name: nameOf(63),
          to: [...ODD_V4, ...ODD_V6].map(cidr => ({ ipBlock: { cidr } })),
          action: 'Preserve',
          ports: [{ protocol: 'TCP', port: 1000 + i }],
        },
        {
          name: 'x',
          to: [{ networkSets: { names: ['partners'] } }, { scope: 'Nodes' }],
          action: 'Masquerade',
          portRange: { start: 2000, end: 2999 },
        },
        { name: 'y', action: 'Continue', outInterfaces: ['eth1', 'bond0.+'] },
      ],
      { defaultAction: i % 2 === 0 ? 'Continue' : 'Preserve' },
    ),
  ),
];

let command: BuiltCommand;
beforeAll(async () => {
  command = await buildForTest();
});
afterAll(() => command.close());

describe.each(['nft', 'legacy'] as const)('a second run, on backend %s', backend => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterEach(() => scene.close());

  it('writes nothing', async () => {
    const file = join(command.folder, 'manifests.json');
    await writeFile(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }));
    const apply = async (): Promise<unknown> =>
      JSON.parse(
        await scene.run(process.execPath, [
          command.path,
          'apply',
          '-f',
          file,
          '--node',
          NODE,
          '--backend',
          backend,
          '-o',
          'json',
        ]),
      );
    const unchanged = {
      ok: true,
      changed: false,
      writes: { ipsetRestores: 0, iptablesRestores: 0 },
      repairs: [],
    };
    expect(await apply()).toMatchObject({
      backend,
      changed: true,
      families: { ipv4: { ok: true, changed: true } },
    });
    for (const family of [4, 6] as const) {
      const { pod, internet } = NAMES[family];
      await scene.seen({ source: pod, destination: internet, protocol: 'tcp', destinationPort: 1000 });
    }
    const before = await everything(scene, backend);
    expect(before).toMatch(/^\[[1-9]\d*:[1-9]\d*\] -A masq-/m);
    const heard = await listen(scene, async () => {
      for (let i = 0; i < 3; i++) {
        expect(await apply()).toMatchObject({
          changed: false,
          families: { ipv4: unchanged, ipv6: unchanged },
        });
      }
    });
    expect(heard).toBe('');
    expect(await everything(scene, backend)).toBe(before);
  });
});

/** Rules with counters, and sets with the random start of their hash function, which a set made anew has anew. */
async function everything(scene: Scene, backend: string): Promise<string> {
  const parts = [
    await scene.run(`iptables-${backend}-save`, ['-c', '-t', 'nat']),
    await scene.run(`ip6tables-${backend}-save`, ['-c', '-t', 'nat']),
    await scene.run('ipset', ['save']),
  ];
  return parts.join('').replaceAll(/^#.*\n/gm, '');
}

/** What `nft monitor` prints while the work is done: every change of nftables rules, by whomever. */
async function listen(scene: Scene, work: () => Promise<void>): Promise<string> {
  const monitor = scene.world.spawnInNode(['nft', 'monitor']);
  let output = '';
  monitor.stdout.on('data', (data: Buffer) => (output += data.toString()));
  // It tells when it listens by hearing of a table made for that; a second one marks the end.
  await eventually(async () => {
    await scene.run('nft', ['add table ip begin; delete table ip begin']);
    return output.includes('begin');
  }, 'nft monitor listens');
  await scene.run('nft', ['add table ip listening']);
  await eventually(async () => output.includes('add table ip listening'), 'nft monitor hears');
  await work();
  await scene.run('nft', ['add table ip done']);
  await eventually(async () => output.includes('add table ip done'), 'nft monitor hears the end');
  monitor.kill();
  const from = output.indexOf('add table ip listening');
  const heard = output.slice(from, output.indexOf('add table ip done'));
  return heard
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('# new generation') && line !== 'add table ip listening')
    .join('\n');
}
