import { spawn } from 'node:child_process';
import { access, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type ApiServer, startApiServer } from './api-server.ts';
import { waitFor } from './wait.ts';

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** A zombie still has a folder in /proc; a process that was reaped has none. */
const runs = (pid: number): Promise<boolean> => exists(`/proc/${pid}`);

describe('startApiServer', () => {
  let server: ApiServer;

  beforeAll(async () => {
    server = await startApiServer({}, new AbortController().signal);
  });
  afterAll(() => server?.close());

  it('serves the version that it was built from', async () => {
    const { status, body } = await server.client.request('GET', '/version');
    expect(status).toBe(200);
    // A server built without its version calls itself v0.0.0, and then refuses newer CEL functions in new CRDs.
    expect(body).toMatchObject({ major: '1', gitVersion: expect.stringMatching(/^v1\.\d+\.\d+/) });
  });

  it('lets nobody without a token do more than ask for its health', async () => {
    expect(await server.clientWith().request('GET', '/readyz')).toEqual({ status: 200, body: 'ok' });
    expect((await server.clientWith().request('GET', '/api')).status).toBe(401);
    expect((await server.clientWith('wrong').request('GET', '/api')).status).toBe(401);
  });

  it('gives ServiceAccounts tokens, and holds them to RBAC', async () => {
    const accounts = '/api/v1/namespaces/default/serviceaccounts';
    const made = await server.client.request('POST', accounts, { body: { metadata: { name: 'reader' } } });
    expect(made.status).toBe(201);
    const { body, status } = await server.client.request('POST', `${accounts}/reader/token`, {
      body: { spec: { expirationSeconds: 600 } },
    });
    expect(status).toBe(201);
    const { token } = (body as { status: { token: string } }).status;
    const reader = server.clientWith(token);
    expect((await reader.request('GET', '/api/v1/nodes')).status).toBe(403);

    const rbac = '/apis/rbac.authorization.k8s.io/v1';
    const rules = [{ apiGroups: [''], resources: ['nodes'], verbs: ['list'] }];
    await server.client.request('POST', `${rbac}/clusterroles`, {
      body: { metadata: { name: 'reader' }, rules },
    });
    await server.client.request('POST', `${rbac}/clusterrolebindings`, {
      body: {
        metadata: { name: 'reader' },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'reader' },
        subjects: [{ kind: 'ServiceAccount', name: 'reader', namespace: 'default' }],
      },
    });
    const look = async () =>
      (await reader.request('GET', '/api/v1/nodes')).status === 200 ? true : undefined;
    await waitFor(look, { what: 'the role to be in force', limitMs: 10_000 });
    expect(
      (await reader.request('POST', '/api/v1/nodes', { body: { metadata: { name: 'n' } } })).status,
    ).toBe(403);
  });

  it('writes a kubeconfig with its address, CA and token', async () => {
    const config: unknown = JSON.parse(await readFile(server.kubeconfig, 'utf8'));
    const ca = Buffer.from(server.ca).toString('base64');
    expect(config).toMatchObject({
      clusters: [{ cluster: { server: server.url, 'certificate-authority-data': ca } }],
      users: [{ user: { token: server.token } }],
    });
  });

  describe('that fails', () => {
    let folder: string;

    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), 'natoutgoing-failed-'));
      vi.stubEnv('TMPDIR', folder);
    });
    afterEach(async () => {
      vi.unstubAllEnvs();
      await rm(folder, { recursive: true });
    });

    it('hands on what the server said, and leaves nothing', async () => {
      const refused = startApiServer({ flags: ['--no-such-flag'] }, new AbortController().signal);
      await expect(refused).rejects.toThrow(/a server ended at its start:[^]*unknown flag: --no-such-flag/);
      expect(await readdir(folder)).toEqual([]);
    });

    it('tries again when a port is taken, but not for ever', async () => {
      const other = createServer();
      await new Promise<void>(resolve => void other.listen(0, '127.0.0.1', resolve));
      try {
        const { port } = other.address() as AddressInfo;
        const taken = startApiServer({ flags: [`--secure-port=${port}`] }, new AbortController().signal);
        await expect(taken).rejects.toThrow(/address already in use/);
        expect(await readdir(folder)).toEqual([]);
      } finally {
        other.close();
      }
    });

    it.each([
      ['before anything was made', async () => true],
      ['while the server starts', () => logExists()],
    ])('leaves nothing when it is aborted %s', async (_, reached) => {
      const abort = new AbortController();
      const aborted = expect(startApiServer({}, abort.signal)).rejects.toThrow('test is over');
      const look = async () => ((await reached()) ? true : undefined);
      await waitFor(look, { what: 'the moment of the abort', limitMs: 10_000, intervalMs: 5 });
      abort.abort(new Error('test is over'));
      await aborted;
      expect(await readdir(folder)).toEqual([]);
    });

    const logExists = async (): Promise<boolean> =>
      (await readdir(folder, { recursive: true })).some(path => path.endsWith('kube-apiserver.log'));
  });

  it('leaves neither process nor folder after close', async () => {
    const second = await startApiServer({}, new AbortController().signal);
    expect(await Promise.all([...second.pids.map(runs), exists(second.folder)])).toEqual([true, true, true]);
    await second.close();
    expect(await Promise.all([...second.pids.map(runs), exists(second.folder)])).toEqual([
      false,
      false,
      false,
    ]);
    await second.close();
  });

  it('leaves neither when the test process is killed', async () => {
    const bundle = await bundleOf(`
      import { startApiServer } from './api-server.ts';
      const { pids, folder } = await startApiServer({}, new AbortController().signal);
      console.log(JSON.stringify({ pids, folder }));
      setInterval(() => {}, 1000);`);
    try {
      const child = spawn(process.execPath, [join(bundle, 'main.mjs')], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const line = await new Promise<string>((resolve, reject) => {
        child.stdout.setEncoding('utf8').once('data', resolve);
        child.once('close', () => reject(new Error('the process ended before its server was ready')));
      });
      const { pids, folder } = JSON.parse(line) as { pids: number[]; folder: string };
      expect(await Promise.all(pids.map(runs))).toEqual([true, true]);
      child.kill('SIGKILL');
      // Orphans are reaped by whatever plays init here, which may not do it at once: dead is what counts.
      const gone = async () =>
        (await Promise.all(pids.map(isDead))).every(dead => dead) && !(await exists(folder))
          ? true
          : undefined;
      await waitFor(gone, { what: `processes ${pids.join(', ')} and ${folder} to go`, limitMs: 10_000 });
    } finally {
      await rm(bundle, { recursive: true });
    }
  });

  const isDead = async (pid: number): Promise<boolean> =>
    /\) [ZX] /.test(await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') X '));

  /** A folder with main.mjs: TypeScript of this folder that node can run by itself. */
  const bundleOf = async (contents: string): Promise<string> => {
    const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-bundle-'));
    const here = fileURLToPath(new URL('.', import.meta.url));
    await build({
      stdin: { contents, resolveDir: here, loader: 'ts' },
      outfile: join(folder, 'main.mjs'),
      bundle: true,
      platform: 'node',
      format: 'esm',
      logLevel: 'silent',
      define: { 'import.meta.url': JSON.stringify(new URL('api-server.ts', import.meta.url).href) },
    });
    return folder;
  };
});
