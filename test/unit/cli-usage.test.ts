// The command line around the commands: help, wrong usage, where objects come from.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { COMMANDS } from '../../src/cli/commands.ts';
import { endpointOf } from '../../src/cli/endpoint.ts';
import type { Io } from '../../src/cli/io.ts';
import { natoutgoing } from './cli-run.ts';

const READING = ['render', 'diff', 'check', 'explain'];
const EXPLAIN = ['explain', '--node', 'n', '--src', '10.0.0.1', '--dst', '10.0.0.2', '--no-kernel'];

describe('help', () => {
  const names = COMMANDS.map(make =>
    make({} as Parameters<typeof make>[0], () => {
      throw new Error('nothing runs');
    }).name(),
  );

  it.each(names)('of %s has an example and the exit codes', async name => {
    const { code, stdout } = await natoutgoing(name, '--help');
    expect(code).toBe(0);
    expect(stdout).toMatch(/\nExamples?:\n {2}natoutgoing /);
    expect(stdout).toContain(`natoutgoing ${name}`);
    expect(stdout).toMatch(/\nExit codes: 0 /);
  });

  it.each([...READING, 'status'])('of %s has one for a cluster', async name => {
    const { stdout } = await natoutgoing(name, '--help');
    for (const option of ['--kubeconfig <path>', '--context <name>']) expect(stdout).toContain(option);
    if (name !== 'status') expect(stdout).toMatch(/ {2}natoutgoing .* --(context|kubeconfig) /);
  });

  it('of apply has none: it reads files only', async () => {
    expect((await natoutgoing('apply', '--help')).stdout).not.toContain('--kubeconfig');
  });

  it('of status names every member of the JSON', async () => {
    const { stdout } = await natoutgoing('status', '--help');
    for (const name of ['healthy', 'problems', 'warnings', 'operator', 'calicoGroup', 'totals', 'policies'])
      expect(stdout).toMatch(new RegExp(`JSON: [^]*\\b${name}\\b`));
  });
});

describe('where objects come from', () => {
  let folder: string;
  let pools: string;
  let kubeconfig: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'natoutgoing-test-'));
    pools = join(folder, 'pools.json');
    kubeconfig = join(folder, 'kubeconfig');
    const pool = {
      apiVersion: 'projectcalico.org/v3',
      kind: 'IPPool',
      metadata: { name: 'main' },
      spec: { cidr: '10.0.0.0/24', natOutgoing: true },
    };
    await writeFile(pools, JSON.stringify(pool));
    await writeFile(kubeconfig, 'apiVersion: v1\nkind: Config\n');
  });
  afterAll(() => rm(folder, { recursive: true }));
  afterEach(() => vi.unstubAllEnvs());

  it.each([
    ['check', ['check']],
    ['render', ['render', '--node', 'n']],
    ['explain', EXPLAIN],
  ])('%s: files and a cluster together are wrong usage', async (_, args) => {
    for (const [option, value] of [
      ['--kubeconfig', kubeconfig],
      ['--context', 'c'],
    ] as const) {
      expect(await natoutgoing(...args, '-f', pools, option, value)).toEqual({
        code: 2,
        stdout: '',
        stderr: 'error: -f reads files, and --kubeconfig and --context a cluster: give one of them\n',
      });
    }
  });

  it('-f means files also where the environment names a cluster', async () => {
    vi.stubEnv('NATOUTGOING_KUBECONFIG', '/nowhere');
    vi.stubEnv('NATOUTGOING_CONTEXT', 'nowhere');
    expect(await natoutgoing('check', '-f', pools)).toMatchObject({ code: 0, stderr: '' });
    const { code, stderr } = await natoutgoing('check');
    expect(code).toBe(2);
    expect(stderr).toMatch(/^error: the kubeconfig \/nowhere cannot be used: .*\n$/);
  });

  it('in a pod the account is used, unless KUBECONFIG says otherwise', async () => {
    const service = { KUBERNETES_SERVICE_HOST: '192.0.2.1', KUBERNETES_SERVICE_PORT: '443' };
    const endpoint = async (env: Readonly<Record<string, string>>): Promise<string> =>
      (await endpointOf({ serviceAccount: folder }, { env } as unknown as Io)).url;
    expect(await endpoint(service)).toBe('https://192.0.2.1:443');
    vi.stubEnv('KUBECONFIG', kubeconfig);
    await expect(endpoint({ ...service, KUBECONFIG: kubeconfig })).rejects.toThrow('no such context');
    expect(await endpoint({ ...service, KUBECONFIG: '' })).toBe('https://192.0.2.1:443');
  });

  it('explain says when it did not look at the kernel', async () => {
    const text = await natoutgoing(...EXPLAIN, '-f', pools);
    expect(text.stdout).toContain(
      'note: rules of other programs were not looked for: --no-kernel was given\n',
    );
    const data = await natoutgoing(...EXPLAIN, '-f', pools, '-o', 'json');
    expect(JSON.parse(data.stdout)).toMatchObject({ kernelNotRead: '--no-kernel was given' });
  });

  it.each([['check'], ['status']])('%s: a context that is not there', async name => {
    expect(await natoutgoing(name, '--kubeconfig', kubeconfig, '--context', 'c')).toEqual({
      code: 2,
      stdout: '',
      stderr: `error: there is no context "c" in the kubeconfig ${kubeconfig}; it has none\n`,
    });
  });

  it.each([
    ['--kubeconfig', '/nowhere'],
    ['--context', 'c'],
  ])('an API server for the account of the pod and %s together are wrong usage', async (option, value) => {
    for (const command of [['status'], ['cleanup', '--all-nodes'], ['operator']]) {
      const ran = await natoutgoing(...command, '--api-server', 'https://192.0.2.1', option, value);
      expect(ran).toMatchObject({ code: 2, stdout: '' });
      expect(ran.stderr).toContain(`option '--api-server <url>' cannot be used with option '${option} `);
    }
  });

  it.each([['status'], ['cleanup', '--all-nodes']])(
    '%s %s reads with the account of the pod',
    async (...command) => {
      const account = ['--api-server', 'https://127.0.0.1:1', '--service-account', folder];
      const { code, stderr } = await natoutgoing(...command, ...account);
      expect(code).toBe(2);
      expect(stderr).toContain('the cluster at https://127.0.0.1:1 cannot be read: ');
      expect(stderr).toContain(`${folder}/`);
    },
  );

  it.each(['http://192.0.2.1', '192.0.2.1:6443', 'https://', ''])('%j is no API server', async url => {
    const { code, stderr } = await natoutgoing('status', '--api-server', url);
    expect(code).toBe(2);
    expect(stderr).toContain('An address is expected that begins with https://.');
  });

  it('status lists all nodes, or one', async () => {
    const { code, stderr } = await natoutgoing('status', '--all-nodes', '--node', 'n');
    expect(code).toBe(2);
    expect(stderr).toContain("'--node <name>' cannot be used with option '--all-nodes'");
  });
});
