// Pure: which connections have a verdict that changed between two plans, and whether a connection is as the verdict
// before made it. What was done with a connection's first packet holds for all others until its entry is gone.
import { type Address, sameAddress } from '../cidr/address.ts';
import { hasAddress } from '../cidr/address-set.ts';
import type { ConntrackEntry } from '../kernel/conntrack.ts';
import type { LocalAddress } from '../kernel/routes.ts';
import { type Decider, type DecidingNode, type Decision, decider, sameVerdict } from '../planner/decide.ts';
import type { Packet } from '../planner/packet.ts';
import type { Plan, PlanSet } from '../planner/plan.ts';

/** A plan as it is in force on a node. */
export interface PlannedNode {
  readonly plan: Plan;
  readonly node: DecidingNode;
}

export type Judgement =
  /** Nothing changed, or no policy that flushes has a say. */
  | { readonly kind: 'keeps' }
  /** Who decides depends on something unknown of the packet. */
  | { readonly kind: 'uncertain' }
  | {
      readonly kind: 'changed';
      /** The policy with FlushChanged that decides after, or else the one that decided before. */
      readonly policy: string;
      readonly before: Decision;
      readonly after: Decision;
    };

export const KEEPS: Judgement = { kind: 'keeps' };

/** The policies that ask for a flush. Those of a dry run decide about nothing. */
export const flushingPolicies = ({ policies }: Plan): ReadonlySet<string> =>
  new Set(
    policies.flatMap(({ name, dryRun, connectionPolicy }) =>
      connectionPolicy === 'FlushChanged' && !dryRun ? [name] : [],
    ),
  );

/** Judges first packets of connections by the two plans. */
export function judge(before: PlannedNode, after: PlannedNode): (packet: Packet) => Judgement {
  const decideBefore = decider(before.plan, before.node);
  const decideAfter = decider(after.plan, after.node);
  const flushedBefore = flushingPolicies(before.plan);
  const flushedAfter = flushingPolicies(after.plan);
  const mayFlush = sourcesOf(before.plan, flushedBefore).concat(sourcesOf(after.plan, flushedAfter));
  return packet => {
    const { source } = packet;
    if (!mayFlush.some(addresses => hasAddress(addresses[source.family], source))) return KEEPS;
    const was = decideBefore(packet);
    const is = decideAfter(packet);
    // Any policy may decide then: what is unknown can be the reason to go on with the next one.
    if (was.uncertain.length + is.uncertain.length > 0) return { kind: 'uncertain' };
    const policy = policyIn(flushedAfter, is.by) ?? policyIn(flushedBefore, was.by);
    return policy === undefined || sameVerdict(was, is)
      ? KEEPS
      : { kind: 'changed', policy, before: was, after: is };
  };
}

/** The sources of policies, each once. */
const sourcesOf = ({ policies, sets }: Plan, names: ReadonlySet<string>): readonly PlanSet['addresses'][] =>
  [...new Set(policies.flatMap(({ name, source }) => (names.has(name) ? [source] : [])))].flatMap(
    id => sets.get(id)?.addresses ?? [],
  );

const policyIn = (flushing: ReadonlySet<string>, by: Decider | null): string | undefined =>
  by !== null && 'policy' in by && flushing.has(by.policy) ? by.policy : undefined;

/** The first packet as nat POSTROUTING saw it: its destination after a Service's translation is the one that answers. */
export const packetOf = ({ original, reply, protocol }: ConntrackEntry, outInterface?: string): Packet => ({
  source: original.source,
  destination: reply.source,
  protocol,
  ...(reply.sourcePort === undefined ? {} : { destinationPort: reply.sourcePort }),
  ...(outInterface === undefined ? {} : { outInterface }),
});

/**
 * Whether the entry is as the verdict before made it, and would be made otherwise now. `foreign`: others translated it
 * (or kept us from doing it), so that it is not ours. `already`: it is as the verdict after would make it.
 */
export function standing(
  entry: ConntrackEntry,
  before: Decision,
  after: Decision,
  local: readonly LocalAddress[],
): 'outdated' | 'foreign' | 'already' {
  const now = entry.reply.destination;
  const translated = !sameAddress(now, entry.original.source);
  if (!isMadeBy(before, now, translated, local)) return 'foreign';
  if (after.action === 'None' || after.action === 'Preserve') return translated ? 'outdated' : 'already';
  // Which address masquerade would choose is the kernel's business; that it did is known from the verdict before. So a
  // connection with a chosen address is outdated when masquerade is due, even if that would come to the same address.
  const hasAddress =
    after.address === undefined ? before.action === 'Masquerade' : sameAddress(now, after.address);
  return hasAddress && inRange(entry, after) ? 'already' : 'outdated';
}

function isMadeBy(
  verdict: Decision,
  now: Address,
  translated: boolean,
  local: readonly LocalAddress[],
): boolean {
  if (verdict.address !== undefined) return sameAddress(now, verdict.address);
  if (verdict.action !== 'Masquerade') return !translated;
  return translated && local.some(({ address }) => sameAddress(address, now));
}

const inRange = ({ reply }: ConntrackEntry, { portRange }: Decision): boolean =>
  portRange === undefined ||
  reply.destinationPort === undefined ||
  (reply.destinationPort >= portRange.start && reply.destinationPort <= portRange.end);
