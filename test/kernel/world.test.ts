// The life of a packet world: what it needs, and that it leaves nothing, however it ends.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { build } from 'esbuild';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Place, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import { systemExec } from '../../src/kernel/exec.ts';
import { eventually, processesIn, run, runLine } from './world-support.ts';

const PLACES: readonly Place[] = ['pod', 'peer', 'node', 'outside'];
let folder = '';
/** A program of one bundled file that opens a world, prints its namespaces as JSON and stays. */
let program = '';

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'world-'));
  program = join(folder, 'world.mjs');
  const contents = `
    import { openWorld } from './src/demo/world.ts';
    try {
      const world = await openWorld({}, new AbortController().signal);
      const seen = await world.send({ from: 'pod', source: '10.244.0.9', destination: '8.8.8.8', protocol: 'icmp' });
      const links = ['pod', 'peer', 'node', 'outside'].map(place =>
        world.execIn(place).run({ tool: 'readlink', args: ['/proc/self/ns/net'], timeoutMs: 5000 }));
      world.spawnInNode(['sleep', '600']);
      console.log(JSON.stringify({ seen, namespaces: (await Promise.all(links)).map(({ stdout }) => stdout.trim()) }));
    } catch (error) {
      console.log(error.message);
      process.exitCode = 1;
    }`;
  await build({
    stdin: { contents, resolveDir: process.cwd(), loader: 'ts' },
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    logLevel: 'warning',
  });
});

afterAll(() => rm(folder, { recursive: true }));

const namespacesOf = async (world: World): Promise<readonly string[]> => {
  const links = PLACES.map(place => run(world.execIn(place), 'readlink', '/proc/self/ns/net'));
  return (await Promise.all(links)).map(text => text.trim());
};

const machine = async (): Promise<readonly string[]> => [
  // A device in another namespace of this machine can show as link-netnsid; indexes and names are what counts.
  await runLine(systemExec, 'ip -o -br link'),
  await runLine(systemExec, 'ip -o -br address'),
  await runLine(systemExec, 'ip route show table all'),
  await runLine(systemExec, 'ip rule'),
  await readFile('/proc/sys/net/ipv4/ip_forward', 'utf8'),
  await readFile('/proc/sys/net/ipv6/conf/all/forwarding', 'utf8'),
  await readFile('/proc/sys/net/ipv4/conf/all/rp_filter', 'utf8'),
  (await systemExec.run({ tool: 'ls', args: ['/run/netns'], timeoutMs: 5000 })).stdout,
];

test('a world has four namespaces of its own, and closing it leaves the machine as it was', async () => {
  const before = await machine();
  const started = performance.now();
  const world = await openWorld({}, new AbortController().signal);
  console.log(`opened in ${Math.round(performance.now() - started)} ms`);
  const sleeper = world.spawnInNode(['sleep', '600']);
  const namespaces = await namespacesOf(world);
  expect(new Set([...namespaces, (await run(systemExec, 'readlink', '/proc/self/ns/net')).trim()]).size).toBe(
    5,
  );
  expect(await run(world.exec, 'findmnt', '-n', '-o', 'FSTYPE', '/run')).toBe('tmpfs\n');
  expect(await run(world.exec, 'pwd')).toBe(`${process.cwd()}\n`);
  expect(await machine()).toEqual(before);
  await Promise.all([world.close(), world.close()]);
  expect(sleeper.signalCode).toBe('SIGKILL');
  expect(await processesIn(namespaces)).toEqual([]);
  expect(await machine()).toEqual(before);
  const probe = { from: 'pod', source: '10.244.0.9', destination: '8.8.8.8', protocol: 'udp' } as const;
  await expect(world.send({ ...probe, destinationPort: 53 })).rejects.toThrow(/is gone \(killed by SIGKILL/);
});

test('the signal closes the world, and stops one that is being opened', async () => {
  const control = new AbortController();
  const world = await openWorld({}, control.signal);
  const namespaces = await namespacesOf(world);
  control.abort();
  await eventually(async () => (await processesIn(namespaces)).length === 0, 'no process in the namespaces');
  const soon = new AbortController();
  const opening = openWorld({}, soon.signal);
  soon.abort(new Error('changed my mind'));
  await expect(opening).rejects.toThrow('changed my mind');
});

test('a world from the bundled program dies with the process that opened it, even by kill -9', async () => {
  const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
    const told = JSON.parse(line) as { readonly seen: unknown; readonly namespaces: readonly string[] };
    expect(told.seen).toMatchObject({ arrived: true, address: '10.244.0.9', answered: true });
    // An agent each, two raw helpers, and the sleeper, which may still be on its way in.
    await eventually(async () => (await processesIn(told.namespaces)).length >= 7, 'seven processes');
    child.kill('SIGKILL');
    await eventually(async () => (await processesIn(told.namespaces)).length === 0, 'all its processes dead');
  } finally {
    child.kill('SIGKILL');
  }
});

test('who lacks root or a tool is told so in one sentence', async () => {
  const asNobody = { tool: 'setpriv', args: ['--reuid', '65534', '--clear-groups', '--', process.execPath] };
  const unprivileged = await systemExec.run({
    tool: asNobody.tool,
    args: [...asNobody.args, '--input-type=module', '-e', await readFile(program, 'utf8')],
    timeoutMs: 10_000,
  });
  expect(unprivileged).toMatchObject({
    code: 1,
    stdout: 'The packet world makes network namespaces and needs root: run it with sudo.\n',
  });
  const bare = await systemExec.run({
    tool: 'env',
    args: ['PATH=/nowhere', process.execPath, program],
    timeoutMs: 10_000,
  });
  expect(bare.stdout).toBe(
    'The packet world needs unshare, nsenter, setpriv, mount, ip, perl in PATH (Debian: iproute2, util-linux, perl-base).\n',
  );
});

test('options and probes that are wrong name the field and the value', async () => {
  const { signal } = new AbortController();
  const link = { name: 'eth0', addresses: ['192.168.1.1/24'] };
  await expect(openWorld({ links: [{ ...link, name: 'eth0;reboot' }] }, signal)).rejects.toThrow(
    'links[0].name: eth0;reboot is not an interface name of at most 15 characters',
  );
  await expect(openWorld({ links: [{ ...link, addresses: ['192.168.1/24'] }] }, signal)).rejects.toThrow(
    'links[0].addresses: 192.168.1 is not an IP address',
  );
  await expect(openWorld({ routes: [{ cidr: '10.0.0.0/8', via: 'eth9' }] }, signal)).rejects.toThrow(
    'routes[0].via: eth9 is not a link',
  );
  const world = await openWorld({}, signal);
  try {
    const probe = {
      from: 'pod',
      source: '10.244.0.9',
      destination: '8.8.8.8',
      protocol: 'udp',
      destinationPort: 53,
    } as const;
    await expect(world.send({ ...probe, destination: '::1' })).rejects.toThrow('are of two families');
    await expect(world.send({ ...probe, source: '010.0.0.1' })).rejects.toThrow('source: 010.0.0.1 is not');
    await expect(world.send({ ...probe, destinationPort: 70_000 })).rejects.toThrow('70000 is not a port');
    await expect(world.send({ ...probe, from: 'node' })).rejects.toThrow(
      /cannot send from 10\.244\.0\.9 port \d+: bind EADDRNOTAVAIL/,
    );
    const missing = await world.exec.run({ tool: 'no-such-tool', args: [], timeoutMs: 5000 });
    expect(missing).toMatchObject({ code: null, spawnError: 'ENOENT' });
  } finally {
    await world.close();
  }
});
