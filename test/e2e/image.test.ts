// What is in the image that the Dockerfile makes, and what is not.
import { mkdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import { systemExec } from '../../src/kernel/exec.ts';
import { openTemporaryFolder, type TemporaryFolder } from '../cluster/temporary-folder.ts';
import { buildImages } from './images.ts';

/** Node's program is three quarters of it. */
const MOST_BYTES = 180e6;

interface Entry {
  readonly mode: string;
  readonly path: string;
}

describe('the image', () => {
  const { signal } = new AbortController();
  let folder: TemporaryFolder;
  let root: string;
  let archive: string;
  let layer: string;
  let config: { readonly config: Readonly<Record<string, unknown>>; readonly architecture: string };
  let entries: readonly Entry[];

  const run = async (tool: string, ...args: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await systemExec.run({ tool, args, timeoutMs: 120_000 }, signal);
    expect(code, `${tool} ${args.join(' ')}: ${stderr}`).toBe(0);
    return stdout;
  };
  /** A program of the image, with its libraries, in namespaces without a network. */
  const inImage = (...argv: readonly string[]): Promise<string> =>
    run('unshare', '-nm', 'env', '-i', 'PATH=/usr/sbin:/usr/bin', '/usr/sbin/chroot', root, ...argv);

  beforeAll(async () => {
    archive = (await buildImages(line => console.error(line), signal)).program;
    folder = await openTemporaryFolder('natoutgoing-image-');
    await run('tar', '-xf', archive, '-C', folder.path);
    const [manifest] = JSON.parse(await readFile(join(folder.path, 'manifest.json'), 'utf8')) as readonly {
      readonly Config: string;
      readonly Layers: readonly string[];
    }[];
    config = JSON.parse(await readFile(join(folder.path, manifest?.Config ?? ''), 'utf8')) as typeof config;
    expect(manifest?.Layers).toHaveLength(1);
    layer = join(folder.path, manifest?.Layers[0] ?? '');
    root = join(folder.path, 'root');
    await mkdir(root);
    await run('tar', '-xf', layer, '-C', root);
    entries = (await run('tar', '-tvf', layer)).split('\n').flatMap(line => {
      const [, mode = '', path = ''] =
        /^(\S{10}) .*? \d\d:\d\d (.*?)(?: -> .*| link to .*)?$/.exec(line) ?? [];
      return path === '' ? [] : [{ mode, path }];
    });
    expect(entries.length).toBeGreaterThan(100);
  });
  afterAll(() => folder?.remove());

  const under = (prefix: string): readonly string[] =>
    entries.flatMap(({ mode, path }) =>
      !mode.startsWith('d') && path.startsWith(prefix) ? [path.slice(prefix.length)] : [],
    );

  it('has these programs and no others: no shell, no package manager', () => {
    const xtables = ['', '-restore', '-save'].flatMap(end =>
      ['iptables', 'ip6tables'].flatMap(name => [`${name}-nft${end}`, `${name}-legacy${end}`]),
    );
    const expected = [
      'conntrack',
      'ipset',
      'ip',
      'nft',
      'xtables-nft-multi',
      'xtables-legacy-multi',
      ...xtables,
    ];
    expect(under('usr/sbin/').toSorted()).toEqual(expected.toSorted());
    const program = ['cat', 'env', 'ip', 'natoutgoing', 'node'];
    expect(under('usr/bin/').toSorted()).toEqual(program);
    expect(under('usr/local/').filter(path => path !== 'bin/node')).toEqual([]);
  });

  it('has nothing that gives rights, and no folder of a person', () => {
    expect(entries.filter(({ mode }) => /[sS]/.test(mode))).toEqual([]);
    expect(entries.filter(({ path }) => /^(root|home)\/|\.npmrc|\.key$/.test(path))).toEqual([]);
  });

  it('starts without rights, as the program, and says what it is', async () => {
    expect(config.config).toMatchObject({
      User: '65532:65532',
      Entrypoint: ['natoutgoing'],
      Labels: {
        'org.opencontainers.image.version': packageJson.version,
        'org.opencontainers.image.revision': 'e2e',
        'org.opencontainers.image.licenses': 'Apache-2.0',
      },
    });
    expect(await inImage('natoutgoing', '--version')).toContain(packageJson.version);
  });

  it('has tools that read the sets of new kernels, and licences of all', async () => {
    expect(await inImage('iptables-nft', '--version')).toContain('iptables v1.8.11 (nf_tables)');
    expect(await inImage('iptables-legacy', '--version')).toContain('iptables v1.8.11 (legacy)');
    expect(await inImage('ipset', '--version')).toContain('ipset v7.22');
    expect(await inImage('nft', '--version')).toContain('nftables v1.1');
    expect(await inImage('conntrack', '--version')).toContain('conntrack v1.4');
    expect(await inImage('node', '--version')).toMatch(/^v24\./);
    const packages = (await readFile(join(root, 'usr/lib/packages'), 'utf8')).trim().split('\n');
    const licences = under('usr/share/doc/').map(path => path.replace(/\/.*/, ''));
    expect(new Set(licences)).toEqual(new Set(packages.map(line => line.replace(/ .*/, ''))));
    expect(licences.length).toBeGreaterThan(10);
  });

  it('is no larger than it must be', async () => {
    expect((await stat(archive)).size).toBeLessThan(MOST_BYTES);
  });
});
