// Whether a rule's condition holds for traffic, one packet or many: yes, no, or unknown with the reason. Pure: what only the kernel knows
// (who is in a set, which addresses are this host's) comes as facts.
import { matchesInterface } from '../../planner/packet.ts';
import {
  allIn,
  type Condition,
  inRanges,
  onlyValue,
  type Range,
  type SetRef,
  type Side,
  type Traffic,
} from './model.ts';
import { hasProtocol } from './protocols.ts';

/** What the kernel was asked about one packet (foreign-facts.ts). Absent is not known. */
export interface ForeignFacts {
  /** By membershipKey: whether the packet is in the set. */
  readonly sets: ReadonlyMap<string, boolean>;
  /** The addresses that this host takes for its own. */
  readonly local?: readonly Range[];
}

export const NO_FACTS: ForeignFacts = { sets: new Map() };

/** The mark on the way: bits in `unknown` may be anything. */
export interface Mark {
  readonly value: number;
  readonly unknown: number;
}

export interface Answer {
  readonly answer: 'yes' | 'no' | 'unknown';
  /** Why it is unknown. */
  readonly why?: string;
}

export const membershipKey = (set: SetRef, sides: readonly Side[]): string =>
  set.kind === 'ipset'
    ? `ipset ${set.name} ${sides.join()}`
    : `nft ${set.family} ${set.table} ${set.name} ${sides.join()}`;

/** Whether all conditions hold; of those that are unknown the reasons. One that does not hold decides. */
export function matchAll(
  conditions: readonly Condition[],
  traffic: Traffic,
  mark: Mark,
  facts: ForeignFacts,
): { readonly answer: Answer['answer']; readonly doubts: readonly string[] } {
  const doubts: string[] = [];
  for (const condition of conditions) {
    const { answer, why } = matchCondition(condition, traffic, mark, facts);
    if (answer === 'no') return { answer, doubts: [] };
    if (answer === 'unknown') doubts.push(`${why ?? 'not understood'}: ${condition.text}`);
  }
  return { answer: doubts.length === 0 ? 'yes' : 'unknown', doubts };
}

export function matchCondition(
  condition: Condition,
  traffic: Traffic,
  mark: Mark,
  facts: ForeignFacts,
): Answer {
  const found = holds(condition, traffic, mark, facts);
  if (typeof found !== 'boolean') return { answer: 'unknown', why: found };
  return { answer: found === condition.negated ? 'no' : 'yes' };
}

/** Whether it holds, the negation left aside; a text is the reason why that is not known. */
function holds(condition: Condition, traffic: Traffic, mark: Mark, facts: ForeignFacts): boolean | string {
  switch (condition.kind) {
    case 'family':
      return condition.family === traffic.family;
    case 'addresses':
      return allIn(traffic[condition.side], condition.ranges) ?? dependsOn(condition.side);
    case 'masked':
      return maskedHolds(condition, traffic);
    case 'protocol':
      return hasProtocol(traffic, condition.numbers) ?? 'the protocol is not known';
    case 'outInterface':
      return outInterfaceHolds(condition.patterns, traffic.outInterface);
    case 'mark':
      return markHolds(condition, mark);
    case 'set':
      return (
        facts.sets.get(membershipKey(condition.set, condition.sides)) ??
        `whether it is in set ${condition.set.name} is not known`
      );
    case 'local':
      return facts.local === undefined
        ? "this host's addresses are not known"
        : (allIn(traffic[condition.side], facts.local) ?? dependsOn(condition.side));
    case 'destinationPort':
      return portHolds(condition.ranges, traffic);
    case 'state':
      return stateHolds(condition.states);
    default:
      return 'not understood';
  }
}

const dependsOn = (side: Side): string => `it depends on the ${side}`;

function maskedHolds(
  { side, value, mask }: { readonly side: Side; readonly value: bigint; readonly mask: bigint },
  traffic: Traffic,
): boolean | string {
  const address = onlyValue(traffic[side]);
  return address === undefined ? dependsOn(side) : (address & mask) === value;
}

function outInterfaceHolds(patterns: readonly string[], name: string | undefined): boolean | string {
  if (patterns.includes('+')) return true;
  return name === undefined
    ? 'the interface by which it leaves is not known'
    : patterns.some(pattern => matchesInterface(pattern, name));
}

function markHolds(asked: { readonly value: number; readonly mask: number }, mark: Mark): boolean | string {
  const known = (asked.mask & ~mark.unknown) >>> 0;
  // A value with bits outside its mask is matched by no mark.
  if ((mark.value & known) >>> 0 !== (asked.value & ~(asked.mask & mark.unknown)) >>> 0) return false;
  return known === asked.mask ? true : 'the mark is not known';
}

function portHolds(ranges: readonly Range[], traffic: Traffic): boolean | string {
  if (inAll(ranges)) return true;
  return traffic.destinationPort === undefined
    ? 'the port is not known'
    : inRanges(ranges, BigInt(traffic.destinationPort));
}

const inAll = (ranges: readonly Range[]): boolean =>
  ranges.some(([first, last]) => first === 0n && last >= 65_535n);

/** The packet is the first of its connection, and nobody has translated its source yet. */
function stateHolds(states: readonly string[]): boolean | string {
  if (states.includes('NEW')) return true;
  const never = ['RELATED', 'ESTABLISHED', 'INVALID', 'UNTRACKED', 'SNAT'];
  return states.every(state => never.includes(state)) ? false : 'not understood';
}
