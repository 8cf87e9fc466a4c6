// The laboratory itself: what the tests of operator and applier rely on.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createClient } from './client.ts';
import { type Lab, type LabNode, openLab } from './lab.ts';
import { writeAccount } from './program.ts';
import { waitFor } from './wait.ts';

const POD = '10.244.1.5';
const FAR = '8.8.8.8';

/** Prints the status of a GET with the account's token, or the code of the error. Arguments: URL, account's folder. */
const ASK = `
const { get } = require('node:https'), { readFileSync } = require('node:fs');
const [url, folder] = process.argv.slice(1);
const read = name => readFileSync(folder + '/' + name, 'utf8');
const options = { ca: read('ca.crt'), headers: { authorization: 'Bearer ' + read('token') }, timeout: 1000 };
const request = get(url, options, answer => { console.log(answer.statusCode); answer.resume(); request.end(); });
request.on('timeout', () => { console.log('silent'); request.destroy(); });
request.on('error', error => console.log(error.code));
`;

describe('the laboratory', () => {
  let lab: Lab;
  let a: LabNode;
  let b: LabNode;
  const signal = new AbortController().signal;

  beforeAll(async () => {
    lab = await openLab({ controllers: true }, signal);
    a = await lab.addNode('worker-a', { applier: false });
    b = await lab.addNode('worker-b', { applier: false, backend: 'legacy' });
  });
  afterAll(() => lab?.close());

  /** From inside the node's namespaces. */
  const ask = async (node: LabNode, path: string): Promise<string> => {
    const url = `${lab.cluster.server.url}${path}`;
    const args = ['-e', ASK, url, node.account];
    const { stdout } = await node.world.exec.run({ tool: process.execPath, args, timeoutMs: 10_000 });
    // What comes first: a connection that was given up gives an error afterwards.
    return stdout.split('\n')[0] ?? '';
  };

  const answers = async (node: LabNode): Promise<void> => {
    let last = '';
    const look = async (): Promise<true | undefined> => {
      last = await ask(node, masqNodes);
      return last === '200' ? true : undefined;
    };
    const what = `the API to answer ${node.name}`;
    await waitFor(look, { what, limitMs: 10_000, detail: () => last }, signal);
  };

  const masqNodes = '/apis/natoutgoing.io/v1alpha1/masqnodes';
  const masqNode = (name: string, uid: unknown): object => ({
    apiVersion: 'natoutgoing.io/v1alpha1',
    kind: 'MasqNode',
    metadata: { name, ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid }] },
    spec: { plan: 'masq-1' },
  });
  const uidOf = async (name: string): Promise<unknown> =>
    ((await lab.cluster.get('Node', name))?.metadata as { uid?: unknown } | undefined)?.uid;

  it('has nodes through which packets go, each with a kernel of its own', async () => {
    const rule = ['-t', 'nat', '-A', 'POSTROUTING', '-s', POD, '-j', 'MASQUERADE'];
    const made = await a.world.exec.run({ tool: 'iptables-nft', args: rule, timeoutMs: 10_000 });
    expect(made.stderr).toBe('');
    for (const protocol of ['udp', 'tcp'] as const) {
      expect(await a.seen({ source: POD, destination: FAR, protocol })).toBe(a.address[4]);
      expect(await b.seen({ source: POD, destination: FAR, protocol })).toBe(POD);
    }
  });

  it('lets a node ask the API by its relay with its token', async () => {
    const before = a.relay.connections;
    // Roles are in force a moment after they were made.
    await answers(a);
    expect(await ask(a, '/api/v1/secrets')).toBe('403');
    expect(a.relay.connections).toBeGreaterThan(before);
    const denied = (await lab.cluster.audit()).filter(({ code }) => code === 403);
    expect(denied).toContainEqual(expect.objectContaining({ resource: 'secrets', verb: 'list' }));
  });

  it('has a collector of what belonged to a Node that is gone', async () => {
    await lab.cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'worker-c' } });
    for (const name of ['worker-b', 'worker-c']) await lab.cluster.apply(masqNode(name, await uidOf(name)));
    await lab.cluster.remove('Node', 'worker-c');
    await waitFor(
      async () => ((await lab.cluster.get('MasqNode', 'worker-c')) === undefined ? true : undefined),
      { what: 'the MasqNode to be collected', limitMs: 60_000 },
    );
    expect(await lab.cluster.get('MasqNode', 'worker-b')).toBeDefined();
  });

  it('has faults between a node and the API, and only there', async () => {
    a.relay.blackhole();
    expect(await ask(a, '/readyz')).toBe('silent');
    expect(await ask(b, '/readyz')).toBe('200');
    a.relay.refuse();
    expect(await ask(a, '/readyz')).toBe('ECONNRESET');
    a.relay.heal();
    expect(await ask(a, '/readyz')).toBe('200');
  });

  it('has an API server that freezes and goes on', async () => {
    const [pid] = lab.cluster.server.pids;
    process.kill(pid, 'SIGSTOP');
    try {
      expect(await ask(a, '/readyz')).toBe('silent');
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    expect(await ask(a, '/readyz')).toBe('200');
  });

  it('has an API server that stops and comes back with what it had, also under another CA', async () => {
    const { server } = lab.cluster;
    const before = { url: server.url, ca: server.ca, node: await lab.cluster.get('Node', 'worker-a') };
    await server.stop();
    expect(await ask(a, '/readyz')).toBe('ECONNRESET');
    await server.start();
    // A server that is ready answers 429 for a moment still, until its cache of a resource is filled.
    await answers(a);
    await server.stop();
    await server.start({ newCa: true });
    expect(server.url).toBe(before.url);
    expect(await lab.cluster.get('Node', 'worker-a')).toEqual(before.node);
    const old = createClient({ url: server.url, ca: before.ca });
    await expect(old.request('GET', '/readyz')).rejects.toThrow(/certificate/);
    old.close();
    expect(await ask(a, masqNodes)).toMatch(/CERT|SIGNATURE/);
    await writeAccount(a.account, { ca: server.ca });
    await answers(a);
  });
});
