// The commands that read a cluster: the same answers as from files, and the state of the whole.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { networkSet, policy, pool } from '../kernel/scene.ts';
import { kubeconfigText } from './api-server.ts';
import { type Lab, type LabNode, openLab } from './lab.ts';
import { waitFor } from './wait.ts';

const PACKET = [
  '--node',
  'worker-1',
  '--src',
  '10.244.1.5',
  '--dst',
  '192.0.2.9',
  '--protocol',
  'tcp',
  '--dport',
  '443',
];

interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

describe('commands against a cluster', () => {
  let lab: Lab;
  let node: LabNode;
  let files: string;
  const signal = new AbortController().signal;
  const OBJECTS = [
    pool('main', '10.244.0.0/16'),
    networkSet('partners', ['192.0.2.0/24']),
    policy('partners', [
      {
        to: [{ networkSets: { names: ['partners'] } }],
        ports: [{ protocol: 'TCP', port: 443 }],
        action: 'Preserve',
      },
    ]),
  ];

  beforeAll(async () => {
    lab = await openLab({ calico: ['v1', 'v3'] }, signal);
    await lab.startOperator();
    node = await lab.addNode('worker-1');
    for (const object of OBJECTS) await lab.cluster.apply(object);
    await node.sees({ source: '10.244.1.5', destination: '192.0.2.9' }, '10.244.1.5');
    files = join(lab.command.folder, 'objects.json');
    await writeFile(
      files,
      JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [...OBJECTS, await nodeAsFile()] }),
    );
  });
  afterAll(() => lab?.close());

  const nodeAsFile = async (): Promise<object> => {
    const { metadata, ...rest } = (await lab.cluster.get('Node', 'worker-1')) as unknown as {
      metadata: { name: string; labels: object };
      status: object;
    };
    return {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: metadata.name, labels: metadata.labels },
      status: rest.status,
    };
  };
  /** In the node's namespaces: some commands look at the kernel. */
  const run = async (...args: readonly string[]): Promise<Ran> => {
    const { code, stdout, stderr } = await node.world.exec.run({
      tool: process.execPath,
      args: [lab.command.path, ...args],
      timeoutMs: 30_000,
    });
    return { code, stdout, stderr };
  };
  const inCluster = (...args: readonly string[]): Promise<Ran> =>
    run(...args, '--kubeconfig', lab.cluster.server.kubeconfig);

  it.each([
    ['explain', ['explain', ...PACKET, '-o', 'json']],
    ['render', ['render', '--node', 'worker-1', '-o', 'json']],
  ])('%s says the same as from files', async (_, args) => {
    const fromCluster = await inCluster(...args);
    const fromFiles = await run(...args, '-f', files);
    expect(fromCluster.stderr).toBe('');
    expect(fromCluster.code).toBe(0);
    expect(JSON.parse(fromCluster.stdout)).toEqual(JSON.parse(fromFiles.stdout));
  });

  it('explain names the rule', async () => {
    const { stdout } = await inCluster('explain', ...PACKET, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      action: 'Preserve',
      by: { policy: 'partners', rule: 'rule-0' },
    });
  });

  it('diff finds the kernel as the cluster wants it, and says when it is not', async () => {
    expect(await inCluster('diff', '--node', 'worker-1', '--backend', 'nft')).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    });
    const other = await inCluster('diff', '--node', 'worker-1', '--backend', 'nft', '--kube-mark', '0x8000');
    expect(other.code).toBe(1);
    expect(other.stdout).toContain('masq-POSTROUTING');
  });

  it('the kernel of this host is not taken for that of another node', async () => {
    await lab.cluster.apply({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'worker-2', labels: { 'kubernetes.io/os': 'windows' } },
      status: { addresses: [{ type: 'InternalIP', address: '192.168.50.99' }] },
    });
    const there = PACKET.map(word => (word === 'worker-1' ? 'worker-2' : word));
    const explained = await inCluster('explain', ...there);
    expect(explained.code).toBe(0);
    expect(explained.stdout).toContain(
      'note: rules of other programs were not looked for: this host is not Node worker-2\n',
    );
    expect((await inCluster('explain', ...PACKET)).stdout).not.toContain('not looked for');
    const compared = await inCluster('diff', '--node', 'worker-2', '--backend', 'nft');
    expect(compared.stderr).toBe('warning: this host has neither the name nor an address of Node worker-2\n');
    await lab.cluster.remove('Node', 'worker-2');
    expect(await inCluster('explain', ...there)).toEqual({
      code: 2,
      stdout: '',
      stderr: 'error: the cluster has no Node "worker-2"\n',
    });
  });

  it('check judges every object of the cluster', async () => {
    const { code, stdout } = await inCluster('check');
    expect(code).toBe(0);
    for (const name of ['main', 'partners', 'worker-1'])
      expect(stdout).toMatch(new RegExp(`^cluster .* ${name} +ok$`, 'm'));
  });

  it('status says that all is well, and what is not', async () => {
    const healthy = await waitFor(
      async () => {
        const ran = await inCluster('status', '--all-nodes');
        return ran.code === 0 ? ran : undefined;
      },
      {
        what: 'the cluster to be healthy',
        limitMs: 20_000,
        intervalMs: 500,
        detail: async () => (await inCluster('status')).stdout,
      },
    );
    expect(healthy.stdout).toMatch(/^all is well\n/);
    expect(healthy.stdout).toMatch(/^calico +crd\.projectcalico\.org\/v1$/m);
    expect(healthy.stdout).toMatch(/^partners +500 +Enforce +True +1\/1$/m);
    expect(healthy.stdout).toMatch(/^worker-1 +True +nft +Programmed +Programmed +1\/1 +0 /m);

    await lab.cluster.apply(
      policy('lost', [{ to: [{ networkSets: { names: ['nobody'] } }], action: 'Preserve' }]),
    );
    const sick = await waitFor(
      async () => {
        const ran = await inCluster('status', '-o', 'json');
        const { problems } = JSON.parse(ran.stdout) as { problems: readonly string[] };
        // The node follows the change a moment after the policy is spoken of.
        return problems.length === 1 && ran.stdout.includes('NotFound') ? ran : undefined;
      },
      { what: 'the trouble to be told', limitMs: 20_000, intervalMs: 200 },
    );
    expect(sick.code).toBe(1);
    const status = JSON.parse(sick.stdout) as { problems: readonly string[]; totals: object };
    expect(status.problems).toEqual([
      expect.stringMatching(/^policy lost: NotFound: .*GlobalNetworkSet "nobody"/),
    ]);
    expect(status.totals).toMatchObject({ nodes: 1, ready: 1, contended: 0 });
    await lab.cluster.remove('MasqPolicy', 'lost');
  });

  it('status of one node, and of one that is not there', async () => {
    expect((await inCluster('status', '--node', 'worker-1')).stdout).toContain('worker-1');
    expect(await inCluster('status', '--node', 'worker-9')).toMatchObject({
      code: 2,
      stderr: 'error: there is no Node "worker-9" with a MasqNode\n',
    });
  });

  it('says in one sentence why a cluster cannot be read', async () => {
    const context = await inCluster('status', '--context', 'elsewhere');
    expect(context).toMatchObject({ code: 2, stdout: '' });
    expect(context.stderr).toMatch(/^error: .*"elsewhere".*\n$/);

    const both = await inCluster('check', '-f', files);
    expect(both).toMatchObject({ code: 2, stdout: '' });
    expect(both.stderr).toMatch(/give one of them\n$/);

    const token = await lab.cluster.token('natoutgoing-applier', { node: 'worker-1' });
    const forbidden = await run('check', '--kubeconfig', await kubeconfig(lab.cluster.server.url, token));
    expect(forbidden).toMatchObject({ code: 2, stdout: '' });
    expect(forbidden.stderr).toMatch(
      /^error: .*cannot list resource .* \(its account needs the verb list on [a-z.]+\)\n$/,
    );
    expect(forbidden.stderr).not.toContain(token);

    const unreachable = await run('status', '--kubeconfig', await kubeconfig('https://127.0.0.1:1', token));
    expect(unreachable).toMatchObject({ code: 2, stdout: '' });
    expect(unreachable.stderr).toMatch(
      /^error: the cluster at https:\/\/127\.0\.0\.1:1 cannot be read: .*\n$/,
    );
  });

  const kubeconfig = async (server: string, token: string): Promise<string> => {
    const path = join(lab.command.folder, 'other-kubeconfig');
    await writeFile(path, kubeconfigText(server, lab.cluster.server.ca, token), { mode: 0o600 });
    return path;
  };
});
