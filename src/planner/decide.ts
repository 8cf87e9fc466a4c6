// The one truth about the first packet of a connection on a node: which rule decides, and how the packet
// is translated. Later packets of the connection are not asked, they follow the first. `explain`, the tests of the
// rendered rules, the flush of changed connections and the shadow analysis all mean what is written here.
import type { PortAllocation, PortRange } from '../api/model.ts';
import { type Address, type Family, sameAddress } from '../cidr/address.ts';
import {
  type Match,
  type Mismatch,
  matchInterfaces,
  matchesInterface,
  matchPorts,
  no,
  type Packet,
  type PacketProtocol,
  protocolOf,
  unknown,
  YES,
} from './packet.ts';
import type { NodeValues, Plan, PlanPolicy, PlanRule } from './plan.ts';
import { setsHolding } from './set-index.ts';

export interface DecidingNode {
  readonly values: NodeValues;
  /** The addresses of the node's interfaces; absent: unknown. Only tunnel interfaces ask for them. */
  readonly localAddresses?: readonly { readonly interface: string; readonly address: Address }[];
}

export interface RuleRef {
  readonly policy: string;
  readonly rule: string;
}

/** What can have the last word on a packet. */
export type Decider =
  | RuleRef
  | { readonly policy: string; readonly default: true }
  | { readonly poolDefault: true }
  | { readonly tunnel: string }
  /** The packet's whole mark. */
  | { readonly mark: number };

/** One step of `decide`, in the order of asking. A policy stands alone when its source does not hold the packet's. */
export interface TraceStep {
  readonly asked: Decider | { readonly policy: string };
  readonly outcome: 'decides' | 'counts' | 'continues' | 'differs' | 'uncertain';
  /** What differs, or what is unknown. */
  readonly because?: Mismatch;
}

export interface Decision {
  readonly action: 'Masquerade' | 'SNAT' | 'Preserve' | 'None';
  /** null: nobody decided, the packet is left to other programs' rules. */
  readonly by: Decider | null;
  /** Present exactly when action is SNAT. */
  readonly address?: Address;
  /** The ports to choose from; only for protocols that have ports, others are translated without. */
  readonly portRange?: PortRange;
  /** Present exactly when action is Masquerade or SNAT. */
  readonly portAllocation?: PortAllocation;
  /** The rules of DryRun policies that matched, in order. */
  readonly counted: readonly RuleRef[];
  /**
   * What was asked, matches in all that is known of the packet, and depends on something unknown (interface,
   * protocol, port, local addresses). It was taken as not matching, so where this list is not empty the decision is
   * what happens if none of these matches.
   */
  readonly uncertain: readonly Decider[];
  /** Present when it was asked for. */
  readonly trace?: readonly TraceStep[];
}

export interface DecideOptions {
  /** Whether the decision tells every step. Default false. */
  readonly trace?: boolean;
}

/**
 * What happens to the packet on a node of the plan's group. Throws a RangeError when source and destination are of
 * two families, and when the plan refers to a set that it does not hold. For many packets of one node use `decider`.
 */
export const decide = (plan: Plan, node: DecidingNode, packet: Packet, options?: DecideOptions): Decision =>
  decider(plan, node)(packet, options);

/**
 * `decide` for many packets of one node. Making it costs one look at every entry of the plan's sets; after that the
 * number of sets and entries hardly matters.
 */
export function decider(
  plan: Plan,
  node: DecidingNode,
): (packet: Packet, options?: DecideOptions) => Decision {
  requireSets(plan);
  const holding = setsHolding(plan.sets.values());
  return (packet, options = {}) => {
    if (packet.source.family !== packet.destination.family) {
      throw new RangeError('packet: source and destination are addresses of two families');
    }
    const asking: Asking = {
      plan,
      node,
      packet,
      protocol: protocolOf(packet.protocol, packet.source.family),
      sources: holding(packet.source),
      destinations: holding(packet.destination),
      counted: [],
      uncertain: [],
      ...(options.trace === true ? { trace: [] } : {}),
    };
    const verdict = verdictOf(asking);
    const { counted, uncertain, trace } = asking;
    return { ...verdict, counted, uncertain, ...(trace === undefined ? {} : { trace }) };
  };
}

/** Whether two decisions translate alike; who decided, and how ports are allotted in their range, is left out. */
export const sameVerdict = (a: Decision, b: Decision): boolean =>
  a.action === b.action &&
  (a.address === undefined || b.address === undefined
    ? a.address === b.address
    : sameAddress(a.address, b.address)) &&
  a.portRange?.start === b.portRange?.start &&
  a.portRange?.end === b.portRange?.end;

/** The address that a SNAT rule gives to packets of a family on this node. */
export function snatAddress(rule: PlanRule, family: Family, values: NodeValues): Address | undefined {
  if (rule.snat === undefined) return undefined;
  return 'addresses' in rule.snat ? rule.snat.addresses[family] : values.get(rule.snat.nodeValue)?.[family];
}

type Verdict = Omit<Decision, 'counted' | 'uncertain' | 'trace'>;

/** One question and what has been noted while it was answered. */
interface Asking {
  readonly plan: Plan;
  readonly node: DecidingNode;
  readonly packet: Packet;
  readonly protocol: PacketProtocol;
  /** The sets that hold the packet's source and destination. */
  readonly sources: ReadonlySet<string>;
  readonly destinations: ReadonlySet<string>;
  readonly counted: RuleRef[];
  readonly uncertain: Decider[];
  readonly trace?: TraceStep[];
}

function verdictOf(asking: Asking): Verdict {
  const { plan, packet, trace } = asking;
  const mark = packet.mark ?? 0;
  // kube-proxy's packets are translated by kube-proxy. Bit operations are signed in JavaScript, marks are not.
  if ((mark & plan.kubeMark) >>> 0 === plan.kubeMark) {
    trace?.push({ asked: { mark }, outcome: 'decides' });
    return { action: 'None', by: { mark } };
  }
  for (const policy of plan.policies) {
    if (!asking.sources.has(policy.source)) {
      trace?.push({ asked: { policy: policy.name }, outcome: 'differs', because: 'source' });
      continue;
    }
    const verdict = askPolicy(asking, policy);
    if (verdict !== undefined) return verdict;
  }
  return askPoolDefault(asking) ?? askTunnels(asking) ?? { action: 'None', by: null };
}

/** The policy's verdict on a packet from its source; undefined: go on with the next policy. */
function askPolicy(asking: Asking, policy: PlanPolicy): Verdict | undefined {
  const { trace } = asking;
  for (const rule of policy.rules) {
    const by: RuleRef = { policy: policy.name, rule: rule.name };
    if (!matched(asking, by, matchRule(asking, rule))) continue;
    if (policy.dryRun) {
      asking.counted.push(by);
      trace?.push({ asked: by, outcome: 'counts' });
      return undefined;
    }
    if (rule.action === 'Continue') {
      trace?.push({ asked: by, outcome: 'continues' });
      return undefined;
    }
    trace?.push({ asked: by, outcome: 'decides' });
    if (rule.action === 'Preserve') return { action: 'Preserve', by };
    const address = snatAddress(rule, asking.packet.source.family, asking.node.values);
    return translation(asking, by, address, rule);
  }
  if (policy.dryRun) return undefined;
  const by: Decider = { policy: policy.name, default: true };
  if (policy.defaultAction === 'Continue') {
    trace?.push({ asked: by, outcome: 'continues' });
    return undefined;
  }
  trace?.push({ asked: by, outcome: 'decides' });
  return policy.defaultAction === 'Preserve'
    ? { action: 'Preserve', by }
    : translation(asking, by, undefined, { portAllocation: 'FullyRandom' });
}

/** Felix's own rule: from a pool with natOutgoing to no pool. */
function askPoolDefault(asking: Asking): Verdict | undefined {
  const { plan, packet, sources, destinations, trace } = asking;
  const { source, spared, sparedNodes, outInterface, addresses } = plan.poolDefault;
  const by: Decider = { poolDefault: true };
  const isSpared = destinations.has(spared) || (sparedNodes !== undefined && destinations.has(sparedNodes));
  let match = YES;
  if (!sources.has(source)) match = no('source');
  else if (isSpared) match = no('destination');
  else if (outInterface !== undefined) match = matchInterfaces([outInterface], packet.outInterface);
  if (!matched(asking, by, match)) return undefined;
  trace?.push({ asked: by, outcome: 'decides' });
  return translation(asking, by, addresses[packet.source.family], plan.poolDefault);
}

/** What the node itself sends into a tunnel from an address that is not the tunnel's would get no reply. */
function askTunnels(asking: Asking): Verdict | undefined {
  for (const tunnel of asking.plan.tunnelInterfaces) {
    const by: Decider = { tunnel };
    if (!matched(asking, by, matchTunnel(asking, tunnel))) continue;
    asking.trace?.push({ asked: by, outcome: 'decides' });
    return translation(asking, by, undefined, { portAllocation: 'FullyRandom' });
  }
  return undefined;
}

/** Whether it matches for certain; what does not is noted. */
function matched(asking: Asking, asked: Decider, match: Match): boolean {
  if (match.answer === 'yes') return true;
  if (match.answer === 'unknown') asking.uncertain.push(asked);
  asking.trace?.push({
    asked,
    outcome: match.answer === 'unknown' ? 'uncertain' : 'differs',
    ...(match.because === undefined ? {} : { because: match.because }),
  });
  return false;
}

function matchRule(asking: Asking, rule: PlanRule): Match {
  const { packet, node, destinations } = asking;
  if (rule.to !== undefined && !destinations.has(rule.to)) return no('destination');
  const ports =
    rule.ports === undefined ? YES : matchPorts(rule.ports, asking.protocol, packet.destinationPort);
  if (ports.answer === 'no') return ports;
  const interfaces =
    rule.outInterfaces === undefined ? YES : matchInterfaces(rule.outInterfaces, packet.outInterface);
  if (interfaces.answer === 'no') return interfaces;
  if (rule.action === 'SNAT' && snatAddress(rule, packet.source.family, node.values) === undefined) {
    return no('address');
  }
  return ports.answer === 'unknown' ? ports : interfaces;
}

function matchTunnel({ packet, node }: Asking, tunnel: string): Match {
  const out = packet.outInterface;
  if (out !== undefined && !matchesInterface(tunnel, out)) return no('interface');
  if (node.localAddresses === undefined) return unknown('localAddresses');
  const holders = node.localAddresses.filter(local => sameAddress(local.address, packet.source));
  if (holders.length === 0 || holders.some(local => local.interface === (out ?? tunnel))) return no('source');
  return out === undefined ? unknown('interface') : YES;
}

function translation(
  { protocol }: Asking,
  by: Decider,
  address: Address | undefined,
  choice: { readonly portRange?: PortRange; readonly portAllocation: PortAllocation },
): Verdict {
  // An unknown protocol is told the range: it is what a protocol with ports gets.
  const ported = protocol !== 'ICMP' && protocol !== 'other';
  return {
    action: address === undefined ? 'Masquerade' : 'SNAT',
    by,
    ...(address === undefined ? {} : { address }),
    ...(ported && choice.portRange !== undefined ? { portRange: choice.portRange } : {}),
    portAllocation: choice.portAllocation,
  };
}

function requireSets(plan: Plan): void {
  const { source, spared, sparedNodes } = plan.poolDefault;
  const used = plan.policies.flatMap(policy => [policy.source, ...policy.rules.map(rule => rule.to)]);
  const missing = [source, spared, sparedNodes, ...used].find(id => id !== undefined && !plan.sets.has(id));
  if (missing !== undefined) {
    throw new RangeError(`plan: it refers to a set that it does not hold: ${missing}`);
  }
}
