// Opens the packet world: pods, peers, a node and an outside, each in network and mount namespaces that only the
// processes in them keep alive. The machine's own network, /run and sysctls are not touched.
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { type Address, type Family, formatAddress } from '../cidr/address.ts';
import { endProcess, inNamespacesOf, start, WORLD_TOOLS } from './children.ts';
import { type Flows, makeFlows, type Namespaces } from './flows.ts';
import type { Place, Probe, World, WorldOptions } from './model.ts';
import { type Namespace, openNamespace } from './namespace.ts';
import { startProbing } from './prober.ts';
import {
  EVERYWHERE_RULES,
  linkLines,
  NODE_RULES,
  nodeLines,
  outsideLines,
  podAddressIn,
  podLines,
  readTopology,
  sysctlsOf,
  type Topology,
} from './topology.ts';

const PLACES: readonly Place[] = ['pod', 'peer', 'node', 'outside'];
const READY_LIMIT_MS = 10_000;

/**
 * Opens a world; it is closed by `close`, by the signal, and by the death of this process. Needs root and the tools
 * of iproute2, util-linux and perl-base. Rejects with one sentence about what is missing, or with the signal's reason.
 */
export async function openWorld(options: WorldOptions, signal: AbortSignal): Promise<World> {
  signal.throwIfAborted();
  const topology = readTopology(options);
  await checkMachine();
  const flows = makeFlows(topology);
  const [pod, peer, node, outside] = PLACES.map(place => openNamespace(place, flows.events)) as [
    Namespace,
    Namespace,
    Namespace,
    Namespace,
  ];
  const namespaces: Namespaces = { pod, peer, node, outside };
  const processes = new Set<ChildProcessWithoutNullStreams>();
  const close = async (): Promise<void> => {
    signal.removeEventListener('abort', abort);
    await Promise.all([...processes].map(endProcess));
    await Promise.all(PLACES.map(place => namespaces[place].close()));
  };
  const abort = (): void => void close();
  signal.addEventListener('abort', abort, { once: true });
  try {
    await wire(topology, namespaces, signal);
    await waitUntilPacketsPass(topology, flows, namespaces);
  } catch (error) {
    await close();
    throw signal.aborted ? signal.reason : error;
  }
  return worldOf(namespaces, flows, processes, close);
}

function worldOf(
  namespaces: Namespaces,
  flows: Flows,
  processes: Set<ChildProcessWithoutNullStreams>,
  close: () => Promise<void>,
): World {
  const send: World['send'] = async probe => {
    const opened = await flows.open(namespaces, probe);
    if ('reason' in opened) return { arrived: false, reason: opened.reason };
    const observed = await opened.flow.exchange();
    await opened.flow.close();
    return observed;
  };
  return {
    send,
    openFlow: async probe => {
      const opened = await flows.open(namespaces, probe);
      if ('flow' in opened) return opened.flow;
      throw new Error(`no connection from ${probe.source} to ${probe.destination}: ${opened.reason}`);
    },
    startProbing: (probes, { perSecond }) =>
      startProbing(probes, { perSecond, send, hold: probe => flows.hold(namespaces, probe) }),
    exec: namespaces.node.exec,
    execIn: place => namespaces[place].exec,
    spawnInNode: (argv, env = {}) => {
      const child = start(inNamespacesOf(namespaces.node.pid, argv), { ...process.env, ...env });
      processes.add(child);
      child.once('close', () => processes.delete(child));
      return child;
    },
    close,
  };
}

async function checkMachine(): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new Error('The packet world makes network namespaces and needs root: run it with sudo.');
  }
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const isThere = async (tool: string): Promise<boolean> => {
    const tries = folders.map(folder => access(join(folder, tool), constants.X_OK));
    return (await Promise.allSettled(tries)).some(({ status }) => status === 'fulfilled');
  };
  const found = await Promise.all(WORLD_TOOLS.map(isThere));
  const missing = WORLD_TOOLS.filter((_, i) => found[i] !== true);
  if (missing.length > 0) {
    throw new Error(
      `The packet world needs ${missing.join(', ')} in PATH (Debian: iproute2, util-linux, perl-base).`,
    );
  }
}

async function wire(topology: Topology, namespaces: Namespaces, signal: AbortSignal): Promise<void> {
  // First, since interfaces take their settings when they are made; the reply also says that the namespace is there.
  await Promise.all(
    PLACES.map(async place => {
      const reply = await namespaces[place].request({ op: 'sysctl', values: [...sysctlsOf(place)] });
      if (reply.error !== undefined) throw new Error(`Cannot prepare "${place}": ${reply.error.message}.`);
    }),
  );
  const ip = async (place: Place, args: readonly string[], lines: readonly string[]): Promise<void> => {
    const result = await namespaces[place].exec.run(
      {
        tool: 'ip',
        args: [...args, '-batch', '-'],
        stdin: `${lines.join('\n')}\n`,
        timeoutMs: READY_LIMIT_MS,
      },
      signal,
    );
    if (result.code !== 0) throw new Error(`Cannot wire "${place}": ${result.stderr.trim()}.`);
  };
  const { pod, peer, node, outside } = namespaces;
  await ip(
    'node',
    [],
    linkLines(topology, { pod: pod.pid, peer: peer.pid, node: node.pid, outside: outside.pid }),
  );
  await Promise.all(
    PLACES.map(async place => {
      await ip(place, [], linesOf(topology, place));
      for (const family of ['-4', '-6']) {
        await ip(place, [family], place === 'node' ? NODE_RULES : EVERYWHERE_RULES);
      }
    }),
  );
}

function linesOf(topology: Topology, place: Place): readonly string[] {
  if (place === 'node') return nodeLines(topology);
  return place === 'outside' ? outsideLines(topology) : podLines(place);
}

/** An outside address that no link or route has: 192.0.0.8 and 100::8, which are for nobody (RFC 7600, RFC 6666). */
const SOMEBODY: { readonly [F in Family]: Address } = {
  4: { family: 4, value: 0xc0000008n },
  6: { family: 6, value: (0x100n << 112n) | 8n },
};

/** Carriers come up by and by; the state to wait for is that a packet passes each link, in each family. */
async function waitUntilPacketsPass(topology: Topology, flows: Flows, namespaces: Namespaces): Promise<void> {
  const paths: Omit<Probe, 'protocol'>[] = [];
  const add = (from: Probe['from'], source: Address, destination: Address): void =>
    void paths.push({
      from,
      source: formatAddress(source),
      destination: formatAddress(destination),
      destinationPort: 9,
      limitMs: 20,
    });
  for (const range of topology.podRanges) {
    const address = podAddressIn(topology, range);
    if (address === undefined) continue;
    add('outside', SOMEBODY[range.family], address);
    add('pod', address, address);
  }
  for (const { address } of topology.links.flatMap(link => link.addresses)) {
    add('outside', SOMEBODY[address.family], address);
  }
  const limit = AbortSignal.timeout(READY_LIMIT_MS);
  const passes = async (path: Omit<Probe, 'protocol'>): Promise<void> => {
    while (!limit.aborted) {
      const opened = await flows.open(namespaces, { ...path, protocol: 'udp' });
      if ('reason' in opened) continue;
      const observed = await opened.flow.exchange();
      await opened.flow.close();
      if (observed.arrived && observed.answered) return;
    }
    throw new Error(`No packet came from "${path.from}" to ${path.destination} within ${READY_LIMIT_MS} ms.`);
  };
  await Promise.all(paths.map(passes));
}
