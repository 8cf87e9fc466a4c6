// Whether rules of other programs win over ours, and what comes after us when we do nothing. The rules
// come from readNatRules, what only the kernel knows about a packet from readForeignFacts; judging is pure.
import { TOP_CHAIN } from '../../render/names.ts';
import type { ForeignFacts } from './match.ts';
import type { BaseChain, NatRules, Traffic } from './model.ts';
import { inOrder, orderOf, UNKNOWN_ORDER } from './order.ts';
import { type Journey, type Verdict, type Walk, walkBase, type Way } from './walk.ts';

export { readForeignFacts } from './facts.ts';
export { readNatRules, readRawRules } from './read.ts';

export interface Judgement {
  /** Whether our jump is in place. Without it the rest is told as if it stood on top of a chain of priority 100. */
  readonly jump: boolean;
  /**
   * What wins over our rules: it binds the connection's address, or keeps our jump from being asked. ACCEPT in
   * another base chain is not among it, since ours is asked all the same.
   */
  readonly before: readonly Verdict[];
  /**
   * What the kernel asks when ours did nothing, in its order; the first that is certain and translates decides. Empty
   * when something before us is certain to settle it.
   */
  readonly after: readonly Verdict[];
}

/** The priority of srcnat, at which both backends of iptables have their POSTROUTING. */
const SRCNAT = 100;

/**
 * Judges the first packets of connections. Facts that are missing make verdicts uncertain, never wrong; so does what
 * holds for some of the packets only.
 */
export function judgeForeign(rules: NatRules, traffic: Traffic, facts: ForeignFacts): Judgement {
  const mark = { value: traffic.mark ?? 0, unknown: traffic.anyMark === true ? 0xffffffff : 0 };
  const journey: Journey = { traffic, facts, mark };
  const before: Verdict[] = [];
  const after: Verdict[] = [];
  const ours = findOurs(rules);
  const orders = rules.hooks.map(hook => ({
    hook,
    order: ours === undefined ? byPriority(hook) : orderOf(hook, ours.base),
  }));
  const pick = (wanted: string): readonly BaseChain[] =>
    orders.filter(({ hook, order }) => hook !== ours?.base && order === wanted).map(({ hook }) => hook);

  if (walkAll(journey, pick('before'), before, false)) return { jump: ours !== undefined, before, after };
  const peers = pick('unknown');
  for (const base of peers) {
    walkBase({ journey, base, doubts: [UNKNOWN_ORDER], listEnds: false, verdicts: before });
  }
  if (ours !== undefined) {
    const { base, index } = ours;
    const way = walkBase(ownWalk(journey, base, before), 0, index);
    if (way === 'settled') return { jump: true, before, after };
    if (way === 'through' && walkBase(ownWalk(journey, base, after), index + 1) === 'settled') {
      return { jump: true, before, after };
    }
  }
  if (!walkAll(journey, peers, after, true)) walkAll(journey, pick('after'), after, true);
  return { jump: ours !== undefined, before, after };
}

/** The rules of readRawRules that take the packet out of connection tracking, so that nothing of table nat is asked. */
export function judgeUntracked(rules: NatRules, traffic: Traffic, facts: ForeignFacts): readonly Verdict[] {
  const verdicts: Verdict[] = [];
  for (const base of rules.hooks) {
    const journey: Journey = { traffic, facts, mark: { value: traffic.mark ?? 0, unknown: 0 } };
    walkBase({ journey, base, doubts: [], listEnds: false, verdicts });
  }
  return verdicts.filter(({ effect }) => effect === 'untracks');
}

/** The chain with our jump, the first that is asked: in the other backend it may be left over. */
function findOurs(rules: NatRules): { readonly base: BaseChain; readonly index: number } | undefined {
  for (const base of rules.hooks) {
    const own = base.chains.get(base.name) ?? [];
    const index = own.findIndex(({ outcome }) => outcome.kind === 'jump' && outcome.chain === TOP_CHAIN);
    if (index >= 0) return { base, index };
  }
  return undefined;
}

const byPriority = (hook: BaseChain): 'before' | 'after' => (hook.priority < SRCNAT ? 'before' : 'after');

const ownWalk = (journey: Journey, base: BaseChain, verdicts: Verdict[]): Walk => ({
  journey,
  base,
  doubts: [],
  listEnds: true,
  verdicts,
});

/** Walks chains in the kernel's order until one settles it; says whether one did. */
function walkAll(
  journey: Journey,
  chains: readonly BaseChain[],
  verdicts: Verdict[],
  listEnds: boolean,
): boolean {
  for (const tied of inOrder(chains)) {
    const found: { way: Way; verdicts: Verdict[] }[] = [];
    for (const base of tied) {
      const own: Verdict[] = [];
      found.push({ way: walkBase({ journey, base, doubts: [], listEnds, verdicts: own }), verdicts: own });
    }
    const rivals = found.filter(each => each.verdicts.some(settles)).length > 1;
    verdicts.push(...found.flatMap(each => (rivals ? each.verdicts.map(doubtOrder) : each.verdicts)));
    if (found.some(({ way }) => way === 'settled')) return true;
  }
  return false;
}

const settles = ({ effect }: Verdict): boolean => effect !== 'accepts' && effect !== 'leaves';

const doubtOrder = (verdict: Verdict): Verdict => ({
  ...verdict,
  certainty: 'may win',
  doubts: [...verdict.doubts, UNKNOWN_ORDER],
});
