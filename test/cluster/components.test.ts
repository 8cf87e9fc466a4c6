import { chmod, mkdtemp, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Exec, systemExec } from '../../src/kernel/exec.ts';
import { type ComponentTools, component } from './components.ts';
import { waitFor } from './wait.ts';

describe('component', () => {
  let folder: string;
  let bin: string;
  let lines: string[];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'natoutgoing-components-'));
    bin = join(folder, 'bin');
    await mkdir(bin);
    for (const name of ['chmod', 'flock', 'mv', 'setpriv', 'sh', 'sleep']) {
      await symlink(join('/usr/bin', name), join(bin, name));
    }
    lines = [];
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** Only `bin` in PATH, for the search and for the programs that are run. */
  const tools = (env: Readonly<Record<string, string>> = {}): ComponentTools => ({
    exec: withPath(bin),
    env: { PATH: bin, XDG_CACHE_HOME: join(folder, 'cache'), ...env },
    log: line => void lines.push(line),
  });

  const withPath = (path: string): Exec => ({
    run: (command, signal) =>
      systemExec.run(
        { ...command, tool: '/usr/bin/env', args: [`PATH=${path}`, command.tool, ...command.args] },
        signal,
      ),
  });

  const program = async (path: string, text: string): Promise<void> => {
    await writeFile(path, `#!/bin/sh\n${text}\n`);
    await chmod(path, 0o755);
  };

  /** A go that notes its arguments, and writes what -o names after a moment in which another caller can come. */
  const fakeGo = (end: string): Promise<void> =>
    program(
      join(bin, 'go'),
      `echo "$CGO_ENABLED $*" >> ${folder}/calls
while [ "$1" != -o ]; do shift; done
echo '#!/bin/sh' > "$2"; sleep 0.3; chmod +x "$2"; ${end}`,
    );

  it('takes KUBEBUILDER_ASSETS before PATH, and PATH before a build', async () => {
    const assets = join(folder, 'assets');
    await mkdir(assets);
    await program(join(bin, 'etcd'), 'exit 0');
    await program(join(bin, 'kube-apiserver'), 'exit 0');
    await program(join(assets, 'etcd'), 'exit 0');
    const env = { KUBEBUILDER_ASSETS: assets };
    expect(await component('etcd', tools(env))).toBe(join(assets, 'etcd'));
    expect(await component('kube-apiserver', tools(env))).toBe(join(bin, 'kube-apiserver'));
    expect(lines).toEqual([]);
  });

  it('passes over a file that cannot be run', async () => {
    await writeFile(join(bin, 'etcd'), 'text');
    await expect(component('etcd', tools())).rejects.toThrow('PATH has no go');
  });

  it('says what to do when there is no go', async () => {
    await expect(component('kube-apiserver', tools())).rejects.toThrow(
      /^kube-apiserver is neither in KUBEBUILDER_ASSETS nor in PATH, .* PATH has no go: install Go 1\.26/,
    );
  });

  it('builds once for callers that come at one time, with the version that go.mod names', async () => {
    await fakeGo('exit 0');
    const [first, second] = await Promise.all([
      component('kube-apiserver', tools()),
      component('kube-apiserver', tools()),
    ]);
    expect(second).toBe(first);
    expect(first).toContain(join(folder, 'cache', 'natoutgoing', 'components', 'kubernetes-v'));
    expect((await stat(first)).mode & 0o111).not.toBe(0);
    const calls = (await readFile(join(folder, 'calls'), 'utf8')).trimEnd().split('\n');
    expect(calls).toHaveLength(1);
    const goMod = await readFile(new URL('components/kubernetes/go.mod', import.meta.url), 'utf8');
    const version = /\tk8s\.io\/kubernetes (v\S+)/.exec(goMod)?.[1];
    expect(version).toMatch(/^v1\.\d+\.\d+$/);
    expect(calls[0]).toContain(`-X k8s.io/component-base/version.gitVersion=${version}`);
    expect(calls[0]).toMatch(
      /^0 -C \S+\/components\/kubernetes build .* k8s\.io\/kubernetes\/cmd\/kube-apiserver$/,
    );

    lines.length = 0;
    expect(await component('kube-apiserver', tools())).toBe(first);
    expect(lines).toEqual([]);
  });

  it('hands on what go said when it fails, and leaves nothing that looks built', async () => {
    await fakeGo('echo "no space left" >&2; exit 1');
    await expect(component('etcd', tools())).rejects.toThrow(/^etcd v\S+ could not be built: no space left$/);
    await fakeGo('exit 0');
    expect((await stat(await component('etcd', tools()))).isFile()).toBe(true);
  });

  it('ends the build when it is aborted, go too', async () => {
    await fakeGo(`echo $$ > ${folder}/pid; exec sleep 60`);
    const abort = new AbortController();
    const built = expect(component('etcd', tools(), abort.signal)).rejects.toThrow('test is over');
    const pidOf = async (): Promise<string | undefined> =>
      (await readFile(join(folder, 'pid'), 'utf8').catch(() => '')).trim() || undefined;
    const pid = await waitFor(pidOf, { what: 'go to be called', limitMs: 10_000 });
    abort.abort(new Error('test is over'));
    await built;
    const state = async (): Promise<true | undefined> =>
      /\) [ZX] /.test(await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') X ')) || undefined;
    await waitFor(state, { what: `process ${pid} to end`, limitMs: 10_000 });
  });
});
