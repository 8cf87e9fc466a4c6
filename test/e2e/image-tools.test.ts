// The data plane with the image's own tools: the kernel tests again, with iptables, ipset and the rest out of the image.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemExec } from '../../src/kernel/exec.ts';
import { type UnpackedImage, unpackImage } from './unpacked-image.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FILES = [
  'meaning',
  'golden',
  'idempotent',
  'neighbours',
  'driver-drift',
  'driver-cleanup',
  'conntrack-flush',
];

describe("the kernel tests with the image's tools", () => {
  const { signal } = new AbortController();
  let image: UnpackedImage;
  beforeAll(async () => {
    image = await unpackImage(signal);
  });
  afterAll(() => image?.close());

  it(`pass: ${FILES.join(', ')}`, { timeout: 1_200_000 }, async () => {
    const { bin, used } = await wrappers(image);
    const report = join(image.folder, 'report.json');
    const args = [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--project',
      'kernel',
      '--reporter=json',
      `--outputFile=${report}`,
      ...FILES.map(name => `test/kernel/${name}.test.ts`),
    ];
    // The child is not one of the workers of this run.
    const env = ['-C', ROOT, '-u', 'VITEST', '-u', 'VITEST_WORKER_ID', '-u', 'VITEST_POOL_ID'];
    const result = await systemExec.run(
      {
        tool: 'env',
        args: [...env, `PATH=${bin}:${process.env['PATH'] ?? ''}`, process.execPath, ...args],
        timeoutMs: 1_100_000,
      },
      signal,
    );
    const said = JSON.parse(await readFile(report, 'utf8').catch(() => '{}')) as {
      readonly numPassedTests?: number;
      readonly numTotalTests?: number;
      readonly testResults?: readonly { readonly name: string }[];
    };
    expect(result.code, `${result.stdout.slice(-4000)}${result.stderr.slice(-4000)}`).toBe(0);
    expect(said.testResults).toHaveLength(FILES.length);
    expect(said.numPassedTests).toBe(said.numTotalTests);
    console.log(`${said.numPassedTests} tests with the image's tools`);
    const tools = new Set((await readFile(used, 'utf8')).trim().split('\n'));
    for (const tool of TOOLS.keys()) expect(tools).toContain(tool);
  });
});

/** Each tool that must have been used → the program in the image's usr/sbin, and what it is called as. */
const TOOLS: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ...['ipset', 'conntrack'].map(name => [name, [name]] as const),
  ...['nft', 'legacy'].flatMap(backend =>
    ['iptables', 'ip6tables'].flatMap(name =>
      ['', '-restore', '-save'].map(end => {
        const tool = `${name}-${backend}${end}`;
        return [tool, [`xtables-${backend}-multi`, tool]] as const;
      }),
    ),
  ),
]);

/** Programs of this machine that start the image's by its own loader, with its libraries, and note that they did. */
async function wrappers({ root, folder, entries }: UnpackedImage): Promise<{ bin: string; used: string }> {
  const bin = join(folder, 'bin');
  const used = join(folder, 'used');
  await mkdir(bin);
  const loader = entries.find(({ path }) => /\/ld-linux-[^/]*\.so\.\d$/.test(path))?.path ?? 'no loader';
  const plugins = entries.find(({ path }) => path.endsWith('/xtables/libxt_set.so'))?.path ?? 'no plug-ins';
  const folderOfPlugins = join(root, plugins, '..');
  for (const [tool, [program = '', ...name]] of TOOLS) {
    const start = [
      join(root, loader),
      '--library-path',
      join(folderOfPlugins, '..'),
      join(root, 'usr/sbin', program),
    ];
    const text = `#!/bin/sh\necho ${tool} >> ${used}\nXTABLES_LIBDIR=${folderOfPlugins} exec ${[...start, ...name].join(' ')} "$@"\n`;
    await writeFile(join(bin, tool), text, { mode: 0o755 });
  }
  return { bin, used };
}
