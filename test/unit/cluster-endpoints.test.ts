import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { inClusterEndpoint } from '../../src/cluster/in-cluster.ts';
import { kubeconfigEndpoint } from '../../src/cluster/kubeconfig.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'natoutgoing-endpoint-'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

const put = (name: string, text: string): Promise<void> => writeFile(join(folder, name), text);

describe('in a pod', () => {
  const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
  const endpoint = (now: () => number = () => 0) => inClusterEndpoint({ folder, env, now });

  it.each([
    [{}, undefined],
    [{ KUBERNETES_SERVICE_HOST: '10.96.0.1' }, undefined],
    [env, 'https://10.96.0.1:443'],
    [{ ...env, KUBERNETES_SERVICE_PORT_HTTPS: '6443' }, 'https://10.96.0.1:6443'],
    [{ ...env, KUBERNETES_SERVICE_HOST: 'fd00::1' }, 'https://[fd00::1]:443'],
  ])('with %j', (env, url) => {
    const made = (): string => inClusterEndpoint({ folder, env, now: () => 0 }).url;
    if (url === undefined) expect(made).toThrow(/^not in a cluster: /);
    else expect(made()).toBe(url);
  });

  it('may be told another address', () => {
    const url = 'https://127.0.0.1:7443';
    expect(inClusterEndpoint({ folder, env: {}, now: () => 0, url }).url).toBe(url);
  });

  it('reads token and CA, and again after a minute', async () => {
    let now = 0;
    await put('token', 'one\n');
    await put('ca.crt', 'CA 1\n');
    const it = endpoint(() => now);
    const first = await it.credentials();
    expect(first).toEqual({ tls: { ca: 'CA 1' }, authorization: 'Bearer one' });
    await put('token', 'two\n');
    now = 59_999;
    expect((await it.credentials()).authorization).toBe('Bearer one');
    now = 60_000;
    const later = await it.credentials();
    expect(later.authorization).toBe('Bearer two');
    // Connections are shared by it.
    expect(later.tls).toBe(first.tls);
    await put('ca.crt', 'CA 2\n');
    now = 120_000;
    expect((await it.credentials()).tls).toEqual({ ca: 'CA 2' });
  });

  it('reads both at once when they are not trusted any more', async () => {
    await put('token', 'one');
    await put('ca.crt', 'CA 1');
    const it = endpoint();
    await it.credentials();
    await put('token', 'two');
    await put('ca.crt', 'CA 2');
    it.distrust();
    expect(await it.credentials()).toEqual({ tls: { ca: 'CA 2' }, authorization: 'Bearer two' });
  });

  it('says which file is missing or empty, and reads it when it is there', async () => {
    await put('ca.crt', 'CA 1');
    const it = endpoint();
    await expect(it.credentials()).rejects.toThrow(/\/token cannot be read: ENOENT/);
    await put('token', '\n');
    await expect(it.credentials()).rejects.toThrow(/\/token is empty$/);
    await put('token', 'one');
    expect((await it.credentials()).authorization).toBe('Bearer one');
  });
});

describe('a kubeconfig', () => {
  const config = (user: object, cluster: object = {}): string =>
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        { name: 'one', cluster: { server: 'https://one.example:6443', ...cluster } },
        { name: 'two', cluster: { server: 'https://two.example', 'tls-server-name': 'kubernetes' } },
      ],
      users: [{ name: 'me', user }],
      contexts: [
        { name: 'first', context: { cluster: 'one', user: 'me' } },
        { name: 'second', context: { cluster: 'two', user: 'me' } },
        { name: 'lost', context: { cluster: 'three', user: 'me' } },
      ],
      'current-context': 'first',
    });
  const file = () => join(folder, 'config');
  const endpoint = (context?: string) =>
    kubeconfigEndpoint({ file: file(), ...(context === undefined ? {} : { context }) });
  const data = (text: string): string => Buffer.from(text).toString('base64');

  it('gives address, CA, client certificate and name of the server', async () => {
    await put(
      'config',
      config(
        { 'client-certificate-data': data('CERT'), 'client-key-data': data('KEY') },
        { 'certificate-authority-data': data('CA'), 'tls-server-name': 'kubernetes' },
      ),
    );
    const it = endpoint();
    expect(it.url).toBe('https://one.example:6443');
    const { tls, authorization } = await it.credentials();
    expect([String(tls.ca), String(tls.cert), String(tls.key), tls.servername]).toEqual([
      'CA',
      'CERT',
      'KEY',
      'kubernetes',
    ]);
    expect([authorization, tls.rejectUnauthorized !== false]).toEqual([undefined, true]);
    expect((await it.credentials()).tls).toBe(tls);
  });

  it('gives the context that was asked for', async () => {
    await put('config', config({ token: 'abc' }));
    const it = endpoint('second');
    expect(it.url).toBe('https://two.example');
    expect(await it.credentials()).toMatchObject({
      authorization: 'Bearer abc',
      tls: { servername: 'kubernetes' },
    });
  });

  it('is insecure only where somebody wrote so', async () => {
    await put('config', config({ username: 'me', password: 'pw' }, { 'insecure-skip-tls-verify': true }));
    const { tls, authorization } = await endpoint().credentials();
    expect([tls.rejectUnauthorized, authorization]).toEqual([false, `Basic ${data('me:pw')}`]);
  });

  it('runs plugins', async () => {
    const credential = {
      apiVersion: 'client.authentication.k8s.io/v1',
      kind: 'ExecCredential',
      status: { token: 'abc' },
    };
    const exec = { command: 'sh', args: ['-c', `echo '${JSON.stringify(credential)}'`] };
    await put('config', config({ exec: { apiVersion: credential.apiVersion, ...exec } }));
    expect((await endpoint().credentials()).authorization).toBe('Bearer abc');
    await put('config', config({ exec: { apiVersion: credential.apiVersion, command: 'false' } }));
    await expect(endpoint().credentials()).rejects.toThrow(
      /^the kubeconfig .*\/config gives no credentials: /,
    );
  });

  it('is read again when its credentials are not trusted any more', async () => {
    await put('token', 'one\n');
    await put('config', config({ tokenFile: 'token' }));
    const it = endpoint();
    expect((await it.credentials()).authorization).toBe('Bearer one');
    await put('token', 'two');
    it.distrust();
    expect((await it.credentials()).authorization).toBe('Bearer two');
  });

  it.each([
    ['it is not there', undefined, undefined, /the kubeconfig .*\/config cannot be used: ENOENT/],
    ['it is no YAML', '{', undefined, /the kubeconfig .*\/config cannot be used: /],
    [
      'it has no such context',
      config({}),
      'x',
      /no context "x" in the kubeconfig .*\/config; it has first, second, lost/,
    ],
    [
      'the context has no cluster',
      config({}),
      'lost',
      /config, context "lost": there is no such context, or its cluster/,
    ],
    [
      'the server is not https',
      config({}, { server: 'http://one' }),
      undefined,
      /context "first": the server "http:\/\/one" does not/,
    ],
    [
      'it wants a proxy',
      config({}, { 'proxy-url': 'http://proxy' }),
      undefined,
      /context "first": proxy-url is not supported/,
    ],
  ])('says so when %s', async (_, text, context, why) => {
    if (text !== undefined) await put('config', text);
    expect(() => endpoint(context)).toThrow(why);
  });

  it('is found by KUBECONFIG and in the home folder, and missed by name', async () => {
    vi.stubEnv('HOME', folder);
    vi.stubEnv('KUBECONFIG', '');
    expect(() => kubeconfigEndpoint({})).toThrow(
      'no cluster is known: there is no kubeconfig, and this is no pod',
    );
    await put('config', config({ token: 'abc' }));
    vi.stubEnv('KUBECONFIG', file());
    expect(kubeconfigEndpoint({}).url).toBe('https://one.example:6443');
  });
});
