// What is in the image that the Dockerfile makes, and what is not.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import { systemExec } from '../../src/kernel/exec.ts';
import { builtByNpm } from './images.ts';
import { type UnpackedImage, unpackImage } from './unpacked-image.ts';

/** Node's program is three quarters of it. */
const MOST_BYTES = 180e6;

describe('the image', () => {
  const { signal } = new AbortController();
  let image: UnpackedImage;

  beforeAll(async () => {
    image = await unpackImage(signal);
    expect(image.entries.length).toBeGreaterThan(100);
  });
  afterAll(() => image?.close());

  /** A program of the image, with its libraries, in namespaces without a network. */
  const inImage = async (...argv: readonly string[]): Promise<string> => {
    const env = ['env', '-i', 'PATH=/usr/sbin:/usr/bin', '/usr/sbin/chroot', image.root];
    const args = ['-nm', ...env, ...argv];
    const { code, stdout, stderr } = await systemExec.run(
      { tool: 'unshare', args, timeoutMs: 30_000 },
      signal,
    );
    expect(code, `${argv.join(' ')}: ${stderr}`).toBe(0);
    return stdout;
  };
  const under = (prefix: string): readonly string[] =>
    image.entries.flatMap(({ mode, path }) =>
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
    expect(image.entries.filter(({ mode }) => /[sS]/.test(mode))).toEqual([]);
    expect(image.entries.filter(({ path }) => /^(root|home)\/|\.npmrc|\.key$/.test(path))).toEqual([]);
  });

  it('starts without rights, as the program, and says what it is', async () => {
    expect(image.config).toMatchObject({
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
    const packages = (await readFile(join(image.root, 'usr/lib/packages'), 'utf8')).trim().split('\n');
    const licences = under('usr/share/doc/').map(path => path.replace(/\/.*/, ''));
    expect(new Set(licences)).toEqual(new Set(packages.map(line => line.replace(/ .*/, ''))));
    expect(licences.length).toBeGreaterThan(10);
  });

  it('holds what the Dockerfile builds by npm, too', async () => {
    const built = await builtByNpm(line => console.log(line), signal);
    try {
      // The names of chunks hold a hash that knows the folder in which they were built.
      const plain = (text: string): string => text.replaceAll(/\b(\w+)-[A-Z0-9]{8}\b/g, '$1');
      const programs = async (folder: string): Promise<readonly string[]> => {
        const names = (await readdir(folder, { recursive: true })).filter(name => name.endsWith('.js'));
        const texts = await Promise.all(names.map(name => readFile(join(folder, name), 'utf8')));
        return texts.map(plain).toSorted();
      };
      const program = await programs(built.folder);
      expect(program.length).toBeGreaterThan(3);
      // Beside it stands the benchmark, which is no part of it.
      const here = new Set(await programs('dist'));
      expect(program.filter(text => !here.has(text)).map(text => text.slice(0, 200))).toEqual([]);
    } finally {
      await built.close();
    }
  });

  it('is no larger than it must be', () => {
    expect(image.bytes).toBeLessThan(MOST_BYTES);
  });
});
