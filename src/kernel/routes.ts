// What the kernel's routing says: by which interface a pod's packet leaves the node, and the node's own addresses.
import { isObject, own } from '../api/fields.ts';
import { type Address, formatAddress, parseAddress } from '../cidr/address.ts';
import { commandError } from './errors.ts';
import type { RunContext } from './run.ts';

export interface Path {
  readonly source: Address;
  readonly destination: Address;
}

export interface LocalAddress {
  readonly interface: string;
  readonly address: Address;
}

/**
 * For each path the interface by which a forwarded packet leaves now; undefined where there is no route, or where the
 * packet stays on the node. Two processes, whatever the number of paths. Throws a KernelError when they cannot run;
 * rejects with the signal's reason when it aborts.
 */
export async function outInterfaces(
  context: RunContext,
  paths: readonly Path[],
): Promise<readonly (string | undefined)[]> {
  // Without the interface by which it comes in, a source that is not the node's own has no route (Linux 6.18).
  const back = await routes(context, [...new Set(paths.map(({ source }) => formatAddress(source)))]);
  const requests = paths.map(({ source, destination }) => {
    const from = formatAddress(source);
    const enters = back.get(from);
    return enters === undefined ? undefined : `${formatAddress(destination)} from ${from} iif ${enters}`;
  });
  const known = requests.filter(request => request !== undefined);
  const forth = await routes(context, [...new Set(known)]);
  return paths.map(({ source, destination }) =>
    forth.get(`${formatAddress(destination)} from ${formatAddress(source)}`),
  );
}

/** Asks `ip route get` for each request; key of the answer is DESTINATION, or DESTINATION from SOURCE. */
async function routes(
  context: RunContext,
  requests: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const answers = new Map<string, string>();
  if (requests.length === 0) return answers;
  // -force goes on after a request that has no route; that one has no line in the answer.
  const lines = requests.map(request => `route get ${request}\n`).join('');
  for (const route of await ip(context, ['-j', '-force', '-batch', '-'], lines)) {
    const { dst, from, dev, type } = route;
    const destination = parseAddress(dst);
    const source = parseAddress(from);
    if (!destination.ok || typeof dev !== 'string' || type !== undefined) continue;
    const to = formatAddress(destination.value);
    // Of a request without source, IPv6 says from ::.
    const named = source.ok && source.value.value !== 0n;
    answers.set(named ? `${to} from ${formatAddress(source.value)}` : to, dev);
  }
  return answers;
}

/** All addresses of the node's interfaces. Throws a KernelError; rejects with the signal's reason when it aborts. */
export async function localAddresses(context: RunContext): Promise<readonly LocalAddress[]> {
  const links = await ip(context, ['-j', 'address', 'show']);
  return links.flatMap(link => {
    const name = link['ifname'];
    const infos = link['addr_info'];
    if (typeof name !== 'string' || !Array.isArray(infos)) return [];
    return infos.flatMap((info: unknown) => {
      const address = parseAddress(isObject(info) ? own(info, 'local') : undefined);
      return address.ok ? [{ interface: name, address: address.value }] : [];
    });
  });
}

type Answer = Readonly<Record<string, unknown>>;

/** The objects that ip prints: a list for each command, on a line of its own. */
async function ip(context: RunContext, args: readonly string[], stdin?: string): Promise<readonly Answer[]> {
  const command = {
    tool: 'ip',
    args,
    timeoutMs: context.childTimeoutMs,
    ...(stdin === undefined ? {} : { stdin }),
  };
  context.signal?.throwIfAborted();
  const result = await context.exec.run(command, context.signal);
  context.signal?.throwIfAborted();
  // Exit code 1 with -force: some requests had no answer.
  const ran = result.code === 0 || (result.code === 1 && stdin !== undefined);
  if (!ran || result.timedOut) throw commandError(command, result);
  return result.stdout.split('\n').flatMap(line => parseList(line));
}

function parseList(line: string): readonly Answer[] {
  if (!line.startsWith('[')) return [];
  try {
    const list: unknown = JSON.parse(line);
    return Array.isArray(list) ? list.filter(isObject) : [];
  } catch {
    return [];
  }
}
