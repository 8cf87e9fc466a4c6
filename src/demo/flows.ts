// Sending: a flow is opened at one place, its receiver listens at another, and each exchange carries a token by which
// what was seen there is told apart from everything else.
import { type Address, type Family, formatAddress, parseAddress } from '../cidr/address.ts';
import type { ArrivalAt, Receiver } from './agent.ts';
import type { Flow, Observation, Place, Probe } from './model.ts';
import type { Namespace, NamespaceEvents } from './namespace.ts';
import { echoRequest, sctpInit } from './raw.ts';
import { readAddress, receiverOf, type Topology } from './topology.ts';

export type Namespaces = { readonly [P in Place]: Namespace };

/** `reason`: the network did not let the connection come about. */
export type Opened = { readonly flow: Flow } | { readonly reason: string };

export interface Flows {
  readonly events: NamespaceEvents;
  open(namespaces: Namespaces, probe: Probe): Promise<Opened>;
  /** Keeps the probe's receiver listening until the function that it gives is called. */
  hold(namespaces: Namespaces, probe: Probe): Promise<() => Promise<void>>;
}

const DEFAULT_LIMIT_MS = 2000;
const FIRST_SOURCE_PORT = 10_000;
const LAST_PORT = 65_535;

/** A probe whose texts have been read. */
interface ReadProbe {
  readonly from: Probe['from'];
  readonly family: Family;
  readonly protocol: Probe['protocol'];
  readonly source: string;
  readonly destination: string;
  readonly destinationPort: number;
  readonly limitMs: number;
  /** Where it arrives. */
  readonly place: Place;
  readonly receiver: { readonly address: string; readonly port: number };
}

export function makeFlows(topology: Topology): Flows {
  const arrivals = makeWaits<ArrivalAt>();
  const answers = makeWaits<{ readonly failure?: string }>();
  const hold = makeReceivers();
  let lastToken = 0;
  let lastPort = LAST_PORT;
  const token = (): number => ++lastToken;
  // Not left to the kernel, which gives a port again too soon: conntrack would still know the flow that had it.
  const sourcePort = (): number => (lastPort = lastPort === LAST_PORT ? FIRST_SOURCE_PORT : lastPort + 1);

  const openSocket = async (namespaces: Namespaces, probe: ReadProbe, port: number): Promise<Opened> => {
    const sender = namespaces[probe.from];
    const flow = token();
    const protocol = probe.protocol === 'tcp' ? 'tcp' : 'udp';
    const release = await holdReceiver(namespaces, probe);
    const opened = await sender.request({ op: 'open', flow, ...probe, protocol, sourcePort: port });
    if (opened.error !== undefined) {
      await release();
      if (opened.error.call === 'connect') return { reason: opened.error.message };
      throw new Error(`cannot send from ${probe.source} port ${port}: ${opened.error.message}`);
    }
    const { limitMs } = probe;
    return {
      flow: {
        exchange: async () => {
          const mark = token();
          const arrival = arrivals.wait(mark, limitMs);
          const reply = await sender.request({ op: 'exchange', flow, token: mark, limitMs });
          if (reply.error !== undefined) arrivals.end(mark);
          return observation(await arrival, reply.answered ?? false, reply.error?.message);
        },
        close: async () => {
          await sender.request({ op: 'close', flow });
          await release();
        },
      },
    };
  };

  const openRaw = async (namespaces: Namespaces, probe: ReadProbe, port: number): Promise<Opened> => {
    const sender = namespaces[probe.from];
    await Promise.all([sender.readyForRaw(), namespaces[probe.place].readyForRaw()]);
    const exchange = async (): Promise<Observation> => {
      const mark = token();
      const { family, limitMs, source, destination } = probe;
      const isIcmp = probe.protocol === 'icmp';
      const arrival = arrivals.wait(mark, limitMs);
      const answer = answers.wait(mark, limitMs);
      const packet = isIcmp
        ? echoRequest(family, port, mark)
        : sctpInit(family, port, probe.destinationPort, mark);
      sender.sendRaw(mark, packet, source, destination);
      if (!isIcmp) void arrival.then(() => answers.end(mark));
      const answered = await answer;
      if (answered?.failure !== undefined) arrivals.end(mark);
      return observation(await arrival, isIcmp && answered !== undefined, answered?.failure);
    };
    return { flow: { exchange, close: async () => {} } };
  };

  const holdReceiver = async (
    namespaces: Namespaces,
    { protocol, place, receiver }: ReadProbe,
  ): Promise<() => Promise<void>> => {
    if (protocol !== 'tcp' && protocol !== 'udp') return async () => {};
    return hold(namespaces[place], { protocol, ...receiver });
  };

  return {
    events: {
      arrived: (at, arrival) => arrivals.tell(arrival.token, { at, ...arrival }),
      answered: (mark, failure) => answers.tell(mark, failure === undefined ? {} : { failure }),
    },
    open: async (namespaces, probe) => {
      const read = readProbe(topology, probe);
      const port = readPort(probe.sourcePort ?? sourcePort(), 'sourcePort');
      const isSocket = read.protocol === 'tcp' || read.protocol === 'udp';
      return (isSocket ? openSocket : openRaw)(namespaces, read, port);
    },
    hold: async (namespaces, probe) => holdReceiver(namespaces, readProbe(topology, probe)),
  };
}

function observation(arrival: ArrivalAt | undefined, answered: boolean, failure?: string): Observation {
  if (arrival === undefined) return { arrived: false, reason: failure ?? 'nothing arrived within the limit' };
  const parsed = parseAddress(arrival.address);
  const address = parsed.ok ? formatAddress(parsed.value) : arrival.address;
  return { arrived: true, at: arrival.at, address, port: arrival.port, answered };
}

function readProbe(topology: Topology, probe: Probe): ReadProbe {
  const source = readAddress(probe.source, 'source');
  const destination = readAddress(probe.destination, 'destination');
  if (source.family !== destination.family) {
    throw new Error(`source ${probe.source} and destination ${probe.destination} are of two families`);
  }
  const port = probe.protocol === 'icmp' ? 0 : readPort(probe.destinationPort ?? 0, 'destinationPort');
  const end: Address =
    probe.arrivesAt === undefined ? destination : readAddress(probe.arrivesAt.address, 'arrivesAt');
  return {
    from: probe.from,
    family: source.family,
    protocol: probe.protocol,
    source: formatAddress(source),
    destination: formatAddress(destination),
    destinationPort: port,
    limitMs: probe.limitMs ?? DEFAULT_LIMIT_MS,
    place: receiverOf(topology, probe.from, end),
    receiver: { address: formatAddress(end), port: probe.arrivesAt?.port ?? port },
  };
}

function readPort(port: number, field: string): number {
  if (Number.isInteger(port) && port > 0 && port <= LAST_PORT) return port;
  throw new Error(`${field}: ${port} is not a port of 1 to ${LAST_PORT}`);
}

/** Sockets that listen for as long as somebody holds them. */
function makeReceivers() {
  const held = new Map<string, { holders: number; readonly ready: Promise<void> }>();
  return async (namespace: Namespace, receiver: Receiver): Promise<() => Promise<void>> => {
    const key = [namespace.place, receiver.protocol, receiver.address, receiver.port].join(' ');
    const listen = async (): Promise<void> => {
      const { error } = await namespace.request({ op: 'listen', ...receiver });
      if (error !== undefined) throw new Error(`cannot listen at ${key}: ${error.message}`);
    };
    const entry = held.get(key) ?? { holders: 0, ready: listen() };
    held.set(key, entry);
    entry.holders++;
    const release = async (): Promise<void> => {
      if (--entry.holders > 0) return;
      held.delete(key);
      await namespace.request({ op: 'unlisten', ...receiver });
    };
    await entry.ready.catch(async (error: unknown) => {
      await release();
      throw error;
    });
    return release;
  };
}

/** Values that are waited for by token, each with a limit. */
function makeWaits<T>() {
  const waiting = new Map<number, (value?: T) => void>();
  const tell = (token: number, value?: T): void => waiting.get(token)?.(value);
  return {
    /** Resolves to undefined at the limit, or at `end`. */
    wait: (token: number, limitMs: number): Promise<T | undefined> =>
      new Promise(resolve => {
        const done = (value?: T): void => {
          clearTimeout(timer);
          waiting.delete(token);
          resolve(value);
        };
        const timer = setTimeout(done, limitMs);
        waiting.set(token, done);
      }),
    tell,
    end: (token: number): void => tell(token),
  };
}
