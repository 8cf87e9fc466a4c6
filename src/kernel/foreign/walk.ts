// The way of a packet, or of many at once, through one base chain, rule by rule as the kernel takes it. What is not known,
// and what holds for some of the packets only, makes doubts: the rule and what follows from it are then only possible, and the way goes on both with it and without.
import { type Address, bitsOf, formatAddress, sameAddress } from '../../cidr/address.ts';
import { isOwnChain } from '../../render/names.ts';
import { type ForeignFacts, type Mark, matchAll } from './match.ts';
import {
  type BaseChain,
  type ForeignRule,
  type MarkChange,
  onlyValue,
  type Outcome,
  type Traffic,
} from './model.ts';
import { programOf } from './programs.ts';

export type Effect =
  | 'masquerades'
  | 'SNATs'
  /** Binds the packet's own address to the connection: no later rule translates it. */
  | 'keeps'
  /** Ends this base chain; a later one is still asked. */
  | 'accepts'
  /** The same by RETURN or goto. */
  | 'leaves'
  | 'drops'
  /** Takes the packet out of connection tracking. */
  | 'untracks'
  | 'unknown';

/** A rule that ends the way of the packet, unless one before it in the list does. */
export interface Verdict {
  readonly certainty: 'wins' | 'may win';
  /** Why it is not certain; empty exactly when it is. */
  readonly doubts: readonly string[];
  /** As printed. */
  readonly rule: string;
  /** `iptables-nft nat POSTROUTING rule 1 -> chain IP-MASQ-AGENT rule 6`. */
  readonly place: string;
  /** The program that the rule is from, where its names tell. */
  readonly program?: string;
  readonly effect: Effect;
  /** The source address that the packet gets, as far as the rule says it: an address, a range, maybe with ports. */
  readonly address?: string;
  /** What it does to the packet, as one sentence. */
  readonly sentence: string;
}

/** What is carried along on the way through all base chains. */
export interface Journey {
  readonly traffic: Traffic;
  readonly facts: ForeignFacts;
  mark: Mark;
}

export interface Walk {
  readonly journey: Journey;
  readonly base: BaseChain;
  /** Doubts about being asked at all. */
  readonly doubts: readonly string[];
  /** Whether ACCEPT and the like, which end this base chain alone, are verdicts. */
  readonly listEnds: boolean;
  readonly verdicts: Verdict[];
}

/** Through to the end, this base chain over, or the connection's fate settled for certain. */
export type Way = 'through' | 'ended' | 'settled';

/** Walks the base chain's rules of the numbers from (counted from 0) to before `to`; to its end when that is absent. */
export function walkBase(walk: Walk, from = 0, to?: number): Way {
  const { base, verdicts } = walk;
  const rules = (base.chains.get(base.name) ?? []).slice(0, to);
  const going: Going = { ...walk, laterDoubts: [...walk.doubts], mayHaveEnded: walk.doubts.length > 0 };
  const way = walkRules(going, rules, from, { chain: base.name, path: base.place, above: [], doubts: [] });
  if (way === 'settled') return going.mayHaveEnded ? 'ended' : way;
  if (way === 'ended' || to !== undefined || base.policy === 'accept') return way;
  const { laterDoubts: doubts } = going;
  verdicts.push(verdictOf({ text: 'policy drop', place: base.place, chains: [base.name], doubts }, 'drops'));
  return going.mayHaveEnded ? 'ended' : 'settled';
}

interface Going extends Walk {
  /** Doubts about every rule from here to the end of the base chain: an end that is no verdict may have come. */
  readonly laterDoubts: string[];
  /** What settles the fate from here on does so only if no end came before it. */
  mayHaveEnded: boolean;
}

interface Frame {
  readonly chain: string;
  /** The place so far. */
  readonly path: string;
  /** The chains that led here. */
  readonly above: readonly string[];
  readonly doubts: readonly string[];
}

interface Reached {
  readonly text: string;
  readonly place: string;
  readonly chains: readonly string[];
  readonly doubts: readonly string[];
}

function walkRules(going: Going, rules: readonly ForeignRule[], from: number, frame: Frame): Way {
  const { journey } = going;
  // A RETURN that may have been taken makes the rest of this chain doubtful, not what comes after the chain.
  const local = [...frame.doubts];
  let mayHaveLeft = false;
  for (const [index, rule] of rules.entries()) {
    if (index < from) continue;
    const match = matchAll(rule.conditions, journey.traffic, journey.mark, journey.facts);
    if (match.answer === 'no') continue;
    const doubts = [...new Set([...going.laterDoubts, ...local, ...match.doubts])];
    if (rule.mark !== undefined) changeMark(journey, rule.mark, doubts.length === 0);
    const place = `${frame.path} rule ${index + 1}`;
    const reached: Reached = { text: rule.text, place, chains: [...frame.above, frame.chain], doubts };
    const way = follow(going, rule.outcome, reached, [...local, ...match.doubts]);
    if (way === 'on') continue;
    if (match.answer === 'yes') return way === 'left' || mayHaveLeft ? 'through' : way;
    if (way !== 'left') continue;
    local.push(...match.doubts);
    mayHaveLeft = true;
  }
  return 'through';
}

/** `on`: the next rule of this chain is asked; `left`: the rule of the calling chain behind the jump. */
function follow(
  going: Going,
  outcome: Outcome,
  reached: Reached,
  doubts: readonly string[],
): Way | 'on' | 'left' {
  switch (outcome.kind) {
    case 'continue':
      return 'on';
    case 'jump':
    case 'goto': {
      if (isOwnChain(outcome.chain)) return 'on';
      const way = walkCalled(going, outcome.chain, reached, doubts);
      if (way === 'through' && outcome.kind === 'goto') return leave(going, reached);
      return way === 'through' ? 'on' : way;
    }
    case 'notrack':
      going.verdicts.push(verdictOf(reached, 'untracks'));
      return 'on';
    case 'return':
      return leave(going, reached);
    case 'accept':
      return end(going, reached, 'accepts');
    case 'unknown':
      going.journey.mark = { value: 0, unknown: 0xffffffff };
      going.verdicts.push(verdictOf(doubted(reached, `not understood: ${outcome.what}`), 'unknown'));
      return 'on';
    default:
      going.verdicts.push(verdictOf(reached, ...translationOf(outcome, going.journey.traffic)));
      return 'settled';
  }
}

function walkCalled(going: Going, chain: string, reached: Reached, doubts: readonly string[]): Way {
  const rules = going.base.chains.get(chain);
  if (rules === undefined || reached.chains.includes(chain)) {
    going.journey.mark = { value: 0, unknown: 0xffffffff };
    const why = `not understood: ${chain}, which is no chain that can be read`;
    going.verdicts.push(verdictOf(doubted(reached, why), 'unknown'));
    return 'through';
  }
  const frame: Frame = { chain, path: `${reached.place} -> chain ${chain}`, above: reached.chains, doubts };
  return walkRules(going, rules, 0, frame);
}

const doubted = (reached: Reached, doubt: string): Reached => ({
  ...reached,
  doubts: [...reached.doubts, doubt],
});

/** Leaving the base chain itself is its end, at which its policy speaks. */
function leave(going: Going, reached: Reached): Way | 'left' {
  if (reached.chains.length > 1) return 'left';
  if (going.base.policy === 'accept') return end(going, reached, 'leaves');
  going.verdicts.push(verdictOf(reached, 'drops'));
  return 'settled';
}

function end(going: Going, reached: Reached, effect: Effect): Way {
  if (reached.doubts.length > 0) going.mayHaveEnded = true;
  if (going.listEnds) going.verdicts.push(verdictOf(reached, effect, undefined, going.base.place));
  else going.laterDoubts.push(...reached.doubts);
  return 'ended';
}

function changeMark(journey: Journey, change: MarkChange, certain: boolean): void {
  const { value, unknown } = journey.mark;
  const changed: Mark = {
    value: ((value & change.keep) ^ change.flip) >>> 0,
    unknown: ((unknown & change.keep) | change.unknown) >>> 0,
  };
  const differs = certain ? 0 : value ^ changed.value;
  journey.mark = {
    value: changed.value,
    unknown: (changed.unknown | (certain ? 0 : unknown) | differs) >>> 0,
  };
}

/** NETMAP puts the network's bits in front of the source; the same source again binds it. */
function translationOf(outcome: Outcome, { family, source }: Traffic): [effect: Effect, address?: string] {
  if (outcome.kind === 'masquerade') return ['masquerades'];
  if (outcome.kind === 'snat') return outcome.to === undefined ? ['SNATs'] : ['SNATs', outcome.to];
  if (outcome.kind !== 'netmap') return ['drops'];
  const value = onlyValue(source);
  if (value === undefined) return ['SNATs'];
  const hostBits = BigInt(bitsOf(family) - outcome.prefix);
  const mapped: Address = { family, value: outcome.network | (value & ((1n << hostBits) - 1n)) };
  const effect = sameAddress(mapped, { family, value }) ? 'keeps' : 'SNATs';
  return [effect, formatAddress(mapped)];
}

function verdictOf(reached: Reached, effect: Effect, address?: string, base = ''): Verdict {
  const { text, place, chains, doubts } = reached;
  const program = programOf(chains, text);
  return {
    certainty: doubts.length === 0 ? 'wins' : 'may win',
    doubts,
    rule: text,
    place,
    ...(program === undefined ? {} : { program }),
    effect,
    ...(address === undefined ? {} : { address }),
    sentence: sentenceOf(effect, address, base),
  };
}

function sentenceOf(effect: Effect, address: string | undefined, base: string): string {
  switch (effect) {
    case 'masquerades':
      return "It masquerades the packet: it leaves with the node's address.";
    case 'SNATs':
      return `It SNATs the packet to ${address ?? 'an address that the rule alone does not tell'}.`;
    case 'keeps':
      return "It binds the packet's own address, so that no later rule translates it.";
    case 'accepts':
      return `It accepts the packet untouched and ends ${base}; chains of later priority are still asked.`;
    case 'leaves':
      return `It ends ${base} without a translation; chains of later priority are still asked.`;
    case 'drops':
      return 'It drops the packet.';
    case 'untracks':
      return 'It takes the packet out of connection tracking, so that no rule of table nat is asked.';
    default:
      return 'What it does to the packet is not understood.';
  }
}
