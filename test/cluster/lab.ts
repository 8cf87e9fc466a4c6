// A cluster with nodes through which real packets go: each node is a network namespace with pods behind it and an
// outside before it, in which the real applier runs under its own ServiceAccount's token. The operator runs beside.
import { once } from 'node:events';
import { join } from 'node:path';
import type { Probe, World } from '../../src/demo/model.ts';
import { openWorld } from '../../src/demo/world.ts';
import type { Backend } from '../../src/kernel/backend.ts';
import { type BuiltCommand, buildForTest } from '../kernel/command.ts';
import { addressOf } from '../kernel/scene.ts';
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts';
import { follow, NODE_OPTIONS, type Program, startProgram, writeAccount } from './program.ts';
import { openRelay, type Relay } from './relay.ts';
import { openTemporaryFolder } from './temporary-folder.ts';
import { waitFor } from './wait.ts';

export interface Lab {
  readonly cluster: Cluster;
  readonly command: BuiltCommand;
  /** A node whose applier runs, unless told otherwise. */
  addNode(name: string, options?: NodeOptions): Promise<LabNode>;
  /** Waits until it leads, unless `waits` is true: another one leads already. */
  startOperator(options?: {
    readonly args?: readonly string[];
    readonly waits?: boolean;
    /** The program, if it is another one than this tree's. */
    readonly program?: BuiltCommand;
  }): Promise<LabOperator>;
  close(): Promise<void>;
}

export interface NodeOptions {
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly backend?: Backend;
  readonly applier?: boolean;
  /** Seconds for which the applier's token is valid. */
  readonly tokenSeconds?: number;
}

export interface LabNode {
  readonly name: string;
  readonly world: World;
  /** Its own addresses on the way out. */
  readonly address: { readonly 4: string; readonly 6: string };
  readonly relay: Relay;
  /** Folder of the applier's account: token and ca.crt. */
  readonly account: string;
  readonly stateFile: string;
  applier(): Program;
  /** Of this tree's program, unless another is given. */
  startApplier(args?: readonly string[], other?: BuiltCommand): Promise<Program>;
  /** The source address that the receiver saw of a new UDP flow from a pod, or of the probe. */
  seen(probe: Partial<Probe> & Pick<Probe, 'source' | 'destination'>): Promise<string>;
  /** Waits until `seen` gives that. */
  sees(probe: Partial<Probe> & Pick<Probe, 'source' | 'destination'>, address: string): Promise<void>;
  close(): Promise<void>;
}

export interface LabOperator extends Program {
  /** Of its token, as the audit log names it. */
  readonly credential: string;
  readonly relay: Relay;
  readonly account: string;
}

const SEES_LIMIT_MS = 15_000;
const RELAY_SCRIPT = `
const net = require('node:net');
net.createServer(client => {
  const server = net.connect(process.argv[1]);
  const end = () => { client.destroy(); server.destroy(); };
  for (const socket of [client, server]) { socket.on('error', end); socket.on('close', end); }
  client.pipe(server).pipe(client);
}).listen(Number(process.argv[2]), '127.0.0.1', () => console.log('listening'));
`;

/** Opens it; close() ends everything, and so does the end of this process. */
export async function openLab(options: ClusterOptions, signal: AbortSignal): Promise<Lab> {
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  try {
    const command = await buildForTest();
    closers.push(() => command.close());
    const cluster = await startCluster(options, signal);
    closers.push(() => cluster.close());
    const port = Number(new URL(cluster.server.url).port);
    let count = 0;
    const operators: Program[] = [];
    const operatorLog = (): string => operators.map(tailOf).join('\n');
    const folderOf = async (): Promise<string> => {
      const { path, remove } = await openTemporaryFolder('natoutgoing-lab-');
      closers.push(remove);
      return path;
    };
    return {
      cluster,
      command,
      close,
      async addNode(name, nodeOptions = {}) {
        count += 1;
        const node = await openNode(
          { cluster, command, port, folder: await folderOf(), number: count, operatorLog },
          name,
          nodeOptions,
          signal,
        );
        closers.push(() => node.close());
        return node;
      },
      async startOperator({ args = [], waits = false, program: other = command } = {}) {
        const folder = await folderOf();
        const account = join(folder, 'account');
        const token = await cluster.token('natoutgoing-operator');
        await writeAccount(account, { token, ca: cluster.server.ca });
        const relay = await openRelay({ port: 0 }, port);
        closers.push(() => relay.close());
        const url = `https://127.0.0.1:${relay.port}`;
        const argv = [process.execPath, other.path, 'operator', '--api-server', url];
        const more = ['--service-account', account, '--health-address', '', ...args];
        const program = startProgram('operator', [...argv, ...more], {
          HOME: folder,
          NODE_OPTIONS: NODE_OPTIONS.operator,
        });
        closers.push(() => program.end('SIGKILL'));
        operators.push(program);
        if (!waits) await program.logged('leads now', 60_000);
        return { ...program, relay, account, credential: credentialOf(token) };
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

const credentialOf = (token: string): string => {
  const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as {
    jti: string;
  };
  return `JTI=${claims.jti}`;
};

interface Surroundings {
  readonly cluster: Cluster;
  readonly command: BuiltCommand;
  readonly port: number;
  readonly folder: string;
  readonly number: number;
  readonly operatorLog: () => string;
}

const tailOf = (program: Program): string =>
  program
    .log()
    .slice(-12)
    .map(line => JSON.stringify(line))
    .join('\n');

async function openNode(
  { cluster, command, port, folder, number, operatorLog }: Surroundings,
  name: string,
  options: NodeOptions,
  signal: AbortSignal,
): Promise<LabNode> {
  const address = { 4: `192.168.50.${10 + number}`, 6: `2001:db8:50::${10 + number}` };
  const closers: (() => unknown)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  try {
    await cluster.apply(nodeObject(name, address, options));
    const world = await openWorld(
      {
        links: [
          {
            name: 'eth0',
            addresses: [`${address[4]}/24`, `${address[6]}/64`],
            extraAddresses: ['198.51.100.7', '2001:db8:51::7'],
          },
        ],
      },
      signal,
    );
    closers.push(() => world.close());
    const socket = join(folder, 'api.sock');
    const relay = await openRelay({ path: socket }, port);
    closers.push(() => relay.close());
    const inside = world.spawnInNode([process.execPath, '-e', RELAY_SCRIPT, socket, String(port)]);
    await once(inside.stdout, 'data');

    const account = join(folder, 'account');
    const { tokenSeconds: seconds } = options;
    const token = await cluster.token('natoutgoing-applier', {
      node: name,
      ...(seconds === undefined ? {} : { seconds }),
    });
    await writeAccount(account, { token, ca: cluster.server.ca });
    const stateFile = join(folder, 'state', 'applied.json');
    const backend = options.backend ?? 'nft';
    let program: Program | undefined;
    const node: LabNode = {
      name,
      world,
      address,
      relay,
      account,
      stateFile,
      close,
      applier() {
        if (program === undefined) throw new Error(`node ${name} has no applier`);
        return program;
      },
      async startApplier(args = [], other = command) {
        const argv = [process.execPath, other.path, 'applier', '--node', name, '--backend', backend] as const;
        const more = [
          '--api-server',
          cluster.server.url,
          '--service-account',
          account,
          '--state-file',
          stateFile,
        ];
        program = follow(
          world.spawnInNode([...argv, ...more, ...args], { NODE_OPTIONS: NODE_OPTIONS.applier }),
          `applier of ${name}`,
        );
        return program;
      },
      async seen(probe) {
        const full = { from: 'pod', protocol: 'udp', destinationPort: 443, ...probe } as const;
        return addressOf(await world.send(full));
      },
      async sees(probe, wanted) {
        let last = '';
        const look = async (): Promise<true | undefined> => {
          last = await node.seen(probe);
          return last === wanted ? true : undefined;
        };
        const what = `${name}: ${probe.source} to ${probe.destination} to be seen as ${wanted}`;
        const log = (): string => `${program === undefined ? '' : tailOf(program)}\n${operatorLog()}`;
        await waitFor(
          look,
          { what, limitMs: SEES_LIMIT_MS, intervalMs: 20, detail: () => `${last}\n${log()}` },
          signal,
        );
      },
    };
    if (options.applier !== false) await node.startApplier();
    return node;
  } catch (error) {
    await close();
    throw error;
  }
}

const nodeObject = (
  name: string,
  address: LabNode['address'],
  { labels = {}, annotations = {} }: NodeOptions,
): object => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, labels: { 'kubernetes.io/os': 'linux', ...labels }, annotations },
  status: { addresses: [4, 6].map(family => ({ type: 'InternalIP', address: address[family as 4 | 6] })) },
});
