// The commands as a stranger runs them: what they print, how they end, what they leave in the kernel.
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type BuiltCommand, buildForTest } from './command.ts';
import { dump } from './dump.ts';
import { block, NAMES, NODE, openSceneWithDriver, policy, pool, type Scene } from './scene.ts';
import { eventually } from './world-support.ts';

const BACKEND = 'nft';
const N = NAMES[4];

let command: BuiltCommand;
beforeAll(async () => {
  command = await buildForTest();
});
afterAll(() => command.close());

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Writes manifests into a folder of the test's own and gives its path. */
async function manifests(
  name: string,
  files: Readonly<Record<string, readonly object[] | string>>,
): Promise<string> {
  const folder = join(command.folder, name);
  await mkdir(folder, { recursive: true });
  for (const [file, content] of Object.entries(files)) {
    const text =
      typeof content === 'string'
        ? content
        : JSON.stringify({ apiVersion: 'v1', kind: 'List', items: content });
    await writeFile(join(folder, file), text);
  }
  return folder;
}

const good = [pool('pods', N.pods), policy('keep', [{ to: [block(N.datacentre)], action: 'Preserve' }])];
const bad = policy('bad', [{ to: [block('10.0.0.1/8')], action: 'Masq' }]);

describe('on a host', () => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openSceneWithDriver(BACKEND);
  });
  afterEach(() => scene.close());

  const natoutgoing = (...args: readonly string[]): Promise<Ended> => withPath(undefined, ...args);
  const withPath = (path: string | undefined, ...args: readonly string[]): Promise<Ended> =>
    scene.world.exec.run({
      tool: 'env',
      args: [...(path === undefined ? [] : [`PATH=${path}`]), process.execPath, command.path, ...args],
      timeoutMs: 30_000,
    });
  /** A PATH with the tools that the command uses, less some, and with scripts of the test's in place of others. */
  const pathWithout = async (
    name: string,
    missing: RegExp,
    scripts: Readonly<Record<string, string>> = {},
  ): Promise<string> => {
    const folder = join(command.folder, name);
    await mkdir(folder, { recursive: true });
    for (const tool of TOOLS.filter(tool => !missing.test(tool) && scripts[tool] === undefined)) {
      await symlink(`/usr/sbin/${tool}`, join(folder, tool));
    }
    for (const [tool, text] of Object.entries(scripts))
      await writeFile(join(folder, tool), text, { mode: 0o755 });
    return `${folder}:/usr/bin:/bin`;
  };

  it('apply, diff, drift, diff, cleanup', async () => {
    const empty = await dump(scene.world.exec, BACKEND);
    const folder = await manifests('life', { 'all.json': good });
    const args = ['-f', folder, '--node', NODE] as const;
    expect(await natoutgoing('diff', ...args)).toMatchObject({ code: 1 });
    expect(await natoutgoing('apply', ...args)).toMatchObject({ code: 0, stderr: '' });
    expect(await natoutgoing('diff', ...args)).toMatchObject({ code: 0, stdout: '' });
    expect(await scene.seen({ source: N.pod, destination: N.inDatacentre })).toBe(N.pod);
    await scene.iptables(4, '-t nat -F masq-nat-outgoing');
    const drifted = await natoutgoing('diff', ...args);
    expect(drifted.code).toBe(1);
    expect(drifted.stdout).toContain('chain masq-nat-outgoing');
    const dry = await natoutgoing('cleanup', '--dry-run');
    expect(dry.code).toBe(0);
    expect(dry.stdout).toContain('would remove ipv4 nft chain masq-POSTROUTING');
    expect(await natoutgoing('cleanup')).toMatchObject({ code: 0 });
    expect(await natoutgoing('cleanup')).toMatchObject({ code: 0, stdout: 'nothing of ours is there\n' });
    expect(await dump(scene.world.exec, BACKEND)).toBe(empty);
  });

  it('a refused object is named, the others are applied, exit code 1', async () => {
    const folder = await manifests('refused', { 'a.json': good, 'b.json': [bad] });
    const ended = await natoutgoing('apply', '-f', folder, '--node', NODE);
    expect(ended.code).toBe(1);
    const line = ended.stderr.split('\n').find(text => text.includes('spec.rules[0].to[0].ipBlock.cidr'));
    expect(line).toContain('b.json: MasqPolicy/bad');
    expect(line).toContain('"10.0.0.1/8" has bits below its prefix; the network is 10.0.0.0/8');
    expect(await scene.seen({ source: N.pod, destination: N.inDatacentre })).toBe(N.pod);
    expect(await scene.seen({ source: N.pod, destination: N.internet })).toBe(N.node);
  });

  it.each([
    ['a file that is not there', {}, ['nosuch.json']],
    ['a syntax error in one file', { 'a.json': good, 'b.yaml': 'kind: [MasqPolicy\n' }, ['.']],
    ['no object of ours', { 'a.yaml': 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n' }, ['.']],
    ['an empty folder', {}, ['.']],
  ] as const)('%s changes nothing, exit code 2', async (what, files, paths) => {
    await scene.apply(good);
    const before = await dump(scene.world.exec, BACKEND);
    const folder = await manifests(what.replaceAll(' ', '-'), files);
    const ended = await natoutgoing(
      'apply',
      ...paths.flatMap(path => ['-f', join(folder, path)]),
      '--node',
      NODE,
    );
    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toContain('nothing was changed');
    expect(await dump(scene.world.exec, BACKEND)).toBe(before);
  });

  it('apply --watch follows the files, keeps the rules when they break, ends on SIGTERM and leaves the rules', async () => {
    const folder = await manifests('watch', { 'all.json': good });
    const child = scene.world.spawnInNode([
      ...([process.execPath, command.path, 'apply', '-f', folder, '--node', NODE, '--watch'] as const),
    ]);
    let stderr = '';
    child.stderr.on('data', (data: Buffer) => (stderr += data.toString()));
    const ended = new Promise<number | null>(resolve => child.once('close', resolve));
    const seen = (destination: string): Promise<string> => scene.seen({ source: N.pod, destination });
    await eventually(async () => (await seen(N.internet)) === N.node, 'first rules', 10_000);
    await manifests('watch', { 'all.json': [pool('pods', N.pods, { natOutgoing: false })] });
    await eventually(async () => (await seen(N.internet)) === N.pod, 'changed rules', 10_000);
    await manifests('watch', { 'all.json': '{"kind": ' });
    await eventually(async () => stderr.includes('the rules stay as they are'), 'broken file told', 10_000);
    expect(await seen(N.internet)).toBe(N.pod);
    await manifests('watch', { 'all.json': good });
    await eventually(async () => (await seen(N.internet)) === N.node, 'mended file', 10_000);
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    expect(await seen(N.internet)).toBe(N.node);
  });

  it('explain names the rule that decides, and the foreign rule that wins over it', async () => {
    const folder = await manifests('explain', { 'all.json': good });
    const explain = async (...more: readonly string[]): Promise<unknown> => {
      const args = [
        '-f',
        folder,
        '--node',
        NODE,
        '--src',
        N.pod,
        '--dst',
        N.inDatacentre,
        '-o',
        'json',
        ...more,
      ];
      return JSON.parse((await natoutgoing('explain', ...args)).stdout);
    };
    const by = { action: 'Preserve', by: { policy: 'keep', rule: 'rule-0' } };
    expect(await explain()).toMatchObject({ ...by, kernel: { applied: false } });
    await natoutgoing('apply', '-f', folder, '--node', NODE);
    expect(await explain()).toMatchObject({ ...by, kernel: { applied: true, before: [], after: [] } });
    expect(await explain('--mark', '0x4000')).toMatchObject({ action: 'None', by: { mark: '0x4000' } });
    await scene.iptables(4, '-t nat -N IP-MASQ-AGENT');
    await scene.iptables(4, '-t nat -A IP-MASQ-AGENT -j MASQUERADE');
    await scene.iptables(4, '-t nat -I POSTROUTING -j IP-MASQ-AGENT');
    const before = [{ certainty: 'wins', program: 'ip-masq-agent', effect: 'masquerades' }];
    expect(await explain()).toMatchObject({ ...by, kernel: { applied: true, before } });
    expect(await scene.seen({ source: N.pod, destination: N.inDatacentre })).toBe(N.node);
  });

  it('explain names the rule that takes a packet out of tracking, so that no rule is asked', async () => {
    const folder = await manifests('untracked', { 'all.json': good });
    await natoutgoing('apply', '-f', folder, '--node', NODE);
    await scene.iptables(4, '-t raw -N SITE');
    await scene.iptables(4, `-t raw -A SITE -s ${N.pod} -p udp -j CT --notrack`);
    await scene.iptables(4, '-t raw -A PREROUTING -j SITE');
    expect(await scene.seen({ source: N.pod, destination: N.internet })).toBe(N.pod);
    expect(await scene.seen({ source: N.pod, destination: N.internet, protocol: 'tcp' })).toBe(N.node);
    const explain = async (protocol: string): Promise<string> => {
      const args = [
        '-f',
        folder,
        '--node',
        NODE,
        '--src',
        N.pod,
        '--dst',
        N.internet,
        '--protocol',
        protocol,
      ];
      return (await natoutgoing('explain', ...args)).stdout;
    };
    expect(await explain('udp')).toContain(
      'before all: It takes the packet out of connection tracking, so that no rule of table nat is asked. (wins)\n    iptables-nft raw PREROUTING rule 1 -> chain SITE rule 1: ',
    );
    expect(await explain('tcp')).not.toContain('before all');
  });

  it('apply names a rule of others that is asked before ours in another place, and what to do', async () => {
    const folder = await manifests('rivals', { 'all.json': good });
    await scene.run('iptables-legacy', '-t nat -N IP-MASQ-AGENT'.split(' '));
    await scene.run('iptables-legacy', '-t nat -A IP-MASQ-AGENT -j MASQUERADE'.split(' '));
    await scene.run('iptables-legacy', '-t nat -A POSTROUTING -j IP-MASQ-AGENT'.split(' '));
    const args = ['apply', '-f', folder, '--node', NODE, '--backend', BACKEND] as const;
    const ended = await natoutgoing(...args);
    expect(ended.code).toBe(0);
    expect(ended.stderr).toBe(
      'warning: ipv4: asked before ours: ip-masq-agent: -A IP-MASQ-AGENT -j MASQUERADE (iptables-legacy nat POSTROUTING rule 1 -> chain IP-MASQ-AGENT rule 1; may win): delete its DaemonSet, and its chain and the jump to it on every node\n',
    );
    expect(JSON.parse((await natoutgoing(...args, '-o', 'json')).stdout)).toMatchObject({
      rivals: {
        ipv4: { rules: [{ program: 'ip-masq-agent', certainty: 'may win' }], gaps: [] },
        ipv6: { rules: [] },
      },
    });
  });

  it('apply flushes exactly the connections whose verdict changed, and says how many', async () => {
    const keep = policy('keep', [{ to: [block(N.datacentre)], action: 'Preserve' }], {
      connectionPolicy: 'FlushChanged',
    });
    const folder = await manifests('flush', { 'all.json': [pool('pods', N.pods)] });
    const apply = async (): Promise<unknown> =>
      JSON.parse((await natoutgoing('apply', '-f', folder, '--node', NODE, '-o', 'json')).stdout);
    expect(await apply()).toMatchObject({ changed: true, flushed: 0 });
    const open = (destination: string): ReturnType<Scene['world']['openFlow']> =>
      scene.world.openFlow({
        from: 'pod',
        source: N.pod,
        destination,
        protocol: 'udp',
        destinationPort: 443,
      });
    const [changed, other] = [await open(N.inDatacentre), await open(N.internet)];
    for (const flow of [changed, other]) expect(await flow.exchange()).toMatchObject({ address: N.node });
    await manifests('flush', { 'all.json': [pool('pods', N.pods), keep] });
    expect(await apply()).toMatchObject({ changed: true, flushed: 1 });
    expect(await changed.exchange()).toMatchObject({ address: N.pod });
    expect(await other.exchange()).toMatchObject({ address: N.node });
    expect(await apply()).toMatchObject({ changed: false, flushed: 0 });
  });

  it('an SNAT address that the host does not have is told', async () => {
    const bank = policy('bank', [{ action: 'SNAT', snat: { addresses: ['198.51.100.99', NAMES[6].snat] } }]);
    const folder = await manifests('missing-address', { 'all.json': [pool('pods', N.pods), bank] });
    const ended = await natoutgoing('apply', '-f', folder, '--node', NODE);
    expect(ended.code).toBe(0);
    expect(ended.stderr).toMatch(
      /^warning: MasqPolicy\/bank: rule rule-0: 198\.51\.100\.99 is on no interface[^\n]*\n$/,
    );
  });

  it('without ip6tables, IPv4 is done and one sentence says what is missing', async () => {
    const folder = await manifests('no-ipv6', { 'all.json': [...good, pool('pods-6', NAMES[6].pods)] });
    const path = await pathWithout('path-no-ipv6', /^ip6tables/);
    const ended = await withPath(path, 'apply', '-f', folder, '--node', NODE, '-o', 'json');
    expect(ended.code).toBe(2);
    expect(JSON.parse(ended.stdout)).toMatchObject({ families: { ipv4: { ok: true }, ipv6: { ok: false } } });
    expect(ended.stderr.trim().split('\n')).toEqual([
      expect.stringMatching(/^error: ipv6: .*ip6tables.* not installed/),
    ]);
    expect(await scene.seen({ source: N.pod, destination: N.internet })).toBe(N.node);
  });

  it('without table nat for IPv6 and without need of it, all is well', async () => {
    const folder = await manifests('no-table', { 'all.json': good });
    const script =
      '#!/bin/sh\necho "ip6tables: can\'t initialize ip6tables table \\`nat\': Table does not exist" >&2; exit 3\n';
    const scripts = Object.fromEntries(
      TOOLS.filter(tool => tool.startsWith('ip6tables')).map(tool => [tool, script]),
    );
    const path = await pathWithout('path-no-table', /^$/, scripts);
    const ended = await withPath(path, 'apply', '-f', folder, '--node', NODE);
    expect(ended.code).toBe(0);
    expect(ended.stderr).toMatch(/^warning: ipv6: .*Table does not exist/m);
    expect(await scene.seen({ source: N.pod, destination: N.internet })).toBe(N.node);
  });

  it.each([
    ['ipset', /^ipset$/, /ipset is not installed/],
    ['iptables', /^(ip6?tables|xtables)/, /iptables.* not installed/],
  ])('without %s, one sentence for each family', async (what, missing, sentence) => {
    const folder = await manifests(`no-${what}`, { 'all.json': good });
    const path = await pathWithout(`path-no-${what}`, missing);
    const ended = await withPath(path, 'apply', '-f', folder, '--node', NODE);
    expect(ended.code).toBe(2);
    const lines = ended.stderr.trim().split('\n');
    expect(lines.length).toBeLessThanOrEqual(2);
    for (const line of lines) expect(line).toMatch(sentence);
  });

  it.each(['apply', 'diff'])('%s without root says so', async name => {
    const folder = await manifests('no-root', { 'all.json': good });
    await chmod(command.folder, 0o755);
    const ended = await scene.world.exec.run({
      tool: 'setpriv',
      args: [
        '--reuid=65534',
        '--regid=65534',
        '--clear-groups',
        process.execPath,
        command.path,
        name,
        '-f',
        folder,
        '--node',
        NODE,
      ],
      timeoutMs: 10_000,
    });
    expect(ended).toMatchObject({ code: 2, stdout: '' });
    expect(ended.stderr).toContain(`error: ${name} needs root`);
  });
});

/** What the command may run. */
const TOOLS = [
  'ipset',
  'conntrack',
  ...['iptables', 'ip6tables'].flatMap(name =>
    ['', '-nft', '-legacy'].flatMap(variant =>
      ['', '-save', '-restore'].map(verb => `${name}${variant}${verb}`),
    ),
  ),
];
