// The packet world as its users see it: pods, a node and an outside in network namespaces of their own, through which
// real packets are sent, and what the receiver of each packet saw.
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import type { Exec } from '../kernel/exec.ts';

/** The namespaces. `peer` holds the pods that traffic from `pod` to a pod range reaches by way of the node. */
export type Place = 'pod' | 'peer' | 'node' | 'outside';

export type ProbeProtocol = 'tcp' | 'udp' | 'icmp' | 'sctp';

/** An interface of the node that leads outside: an uplink, or what plays a tunnel. */
export interface NodeLink {
  /** At most 15 characters. */
  readonly name: string;
  /** ADDRESS/PREFIX of the node on this link, both families; the first of a family is what MASQUERADE takes. */
  readonly addresses: readonly string[];
  /** Further addresses of the node on this link, without a prefix: for SNAT. */
  readonly extraAddresses?: readonly string[];
}

export interface WorldOptions {
  /** The first one has the default routes. Default: eth0 and eth1 (see topology.ts). */
  readonly links?: readonly NodeLink[];
  /** Destinations that the node reaches by a link other than the first. A range inside a pod range is taken out of it. */
  readonly routes?: readonly { readonly cidr: string; readonly via: string }[];
  /** What the node routes to its pods. Default 10.244.0.0/16, 10.245.0.0/16, fd00:244::/48 and fd00:245::/48. */
  readonly podRanges?: readonly string[];
}

/**
 * The first packet of a flow. Pods and the outside have every address, the node its own. Answers come back to pod
 * ranges and to what the node has, so a tcp connection from another address does not come about.
 */
export interface Probe {
  readonly from: 'pod' | 'outside' | 'node';
  readonly source: string;
  readonly destination: string;
  readonly protocol: ProbeProtocol;
  /** Needed for tcp, udp and sctp. */
  readonly destinationPort?: number;
  /** For icmp the identifier. Absent: one that the world did not use for its last 50,000 flows. */
  readonly sourcePort?: number;
  /** Where the flow ends when a rule translates its destination (a Service). Absent: at destination. */
  readonly arrivesAt?: { readonly address: string; readonly port: number };
  /** Milliseconds to wait for arrival and answer. Default 2000. */
  readonly limitMs?: number;
}

/** What the receiver saw of one exchange. */
export type Observation =
  | {
      readonly arrived: true;
      readonly at: Place;
      /** Source address and source port (icmp: identifier) at the receiver. */
      readonly address: string;
      readonly port: number;
      /** Whether the receiver's answer came back. Never for sctp, whose INIT nobody answers here. */
      readonly answered: boolean;
    }
  | { readonly arrived: false; readonly reason: string };

/** A flow that keeps its socket: one connection of tcp, one port of udp, one identifier of icmp. */
export interface Flow {
  /** Sends once more on the flow. Never rejects while the world is open: what did not arrive is an observation. */
  exchange(): Promise<Observation>;
  close(): Promise<void>;
}

/** How often each source address was seen for one probe; `nothing` counts those that did not arrive. */
export interface ProbeCount {
  readonly probe: Probe;
  readonly sent: number;
  readonly seen: ReadonlyMap<string, number>;
}

export interface Prober {
  /** As it stands, a count for each probe in the order given. */
  counts(): readonly ProbeCount[];
  /** Ends sending, waits for what is under way, and gives the last counts. Rejects when a probe could not be sent. */
  stop(): Promise<readonly ProbeCount[]>;
}

export interface World {
  /**
   * Sends one new flow with one exchange. What does not arrive is an observation; rejects when the probe cannot be
   * sent at all (an address that does not parse or that the node does not have, a port in use) and after close.
   */
  readonly send: (probe: Probe) => Promise<Observation>;
  /** As send, but the flow stays. Also rejects when a tcp connection does not come about. */
  openFlow(probe: Probe): Promise<Flow>;
  /** New flows without end, each with a new source port, the probes in turn. A probe must not name a source port. */
  startProbing(probes: readonly Probe[], options: { readonly perSecond: number }): Promise<Prober>;
  /** Runs commands in the node's namespaces. */
  readonly exec: Exec;
  execIn(place: Place): Exec;
  /**
   * Starts a process in the node's namespaces. It is killed when the world closes or this process dies; what it started
   * itself is not.
   */
  spawnInNode(
    argv: readonly [string, ...string[]],
    env?: Readonly<Record<string, string>>,
  ): ChildProcessWithoutNullStreams;
  /** Ends everything in the world, as often as it is called. */
  close(): Promise<void>;
}
