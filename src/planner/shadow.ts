// Which rules of a plan can never decide, since rules that are asked before them take every packet that they match.
// A claim is always true; where the work would grow without limit, or only several rules together would cover a rule's
// ports or interfaces, nothing is claimed.
import { type Family, FAMILIES } from '../cidr/address.ts';
import { type AddressSet, countAddresses, intersect, setOf, subtract, union } from '../cidr/address-set.ts';
import type { RuleRef } from './decide.ts';
import { coversInterfaces, coversPorts, interfacesMeet, portsMeet } from './packet.ts';
import type { Plan, PlanPolicy, PlanRule } from './plan.ts';
import { meetingSets } from './set-index.ts';

/** What takes packets from a later rule. */
export type Hider = RuleRef | { readonly policy: string; readonly default: true };

export interface ShadowedRule extends RuleRef {
  /** What gets the rule's packets instead, in the order of asking. */
  readonly by: readonly Hider[];
}

/** Set entries that may be looked at for one rule, and for all rules together (about a microsecond each). */
const WORK_PER_RULE = 20_000;
const WORK_PER_PLAN = 1_000_000;

/**
 * The rules that decide on no packet on any node of the plan (of a DryRun policy: count none), in the plan's order.
 * Where that takes more than WORK_PER_RULE set entries, or WORK_PER_PLAN is used up, nothing more is taken off a rule
 * than was by then, so it is mostly not claimed. Rules of findEmpty are left out.
 */
export function findShadowed(plan: Plan): readonly ShadowedRule[] {
  const found: ShadowedRule[] = [];
  const context = contextOf(plan);
  let workLeft = WORK_PER_PLAN;
  plan.policies.forEach((policy, index) => {
    const before = plan.policies
      .slice(0, index)
      .filter(
        earlier =>
          !earlier.dryRun && FAMILIES.some(family => context.meet(earlier.source, policy.source, family)),
      );
    policy.rules.forEach((rule, ruleIndex) => {
      const work = { left: Math.min(WORK_PER_RULE, workLeft) };
      const granted = work.left;
      const target: Target = { policy, rule, own: policy.rules.slice(0, ruleIndex), before };
      const by = hidersOf(context, target, work);
      workLeft -= granted - work.left;
      if (by !== undefined) found.push({ policy: policy.name, rule: rule.name, by });
    });
  });
  return found;
}

/** The rules that match no packet at all: in each family the source or the destination is empty, or SNAT has no address. */
export function findEmpty(plan: Plan): readonly RuleRef[] {
  const context = contextOf(plan);
  return plan.policies.flatMap(policy =>
    policy.rules
      .filter(rule => FAMILIES.every(family => domainOf(context, policy, rule, family) === undefined))
      .map(rule => ({ policy: policy.name, rule: rule.name })),
  );
}

interface Context {
  readonly addresses: (id: string | undefined, family: Family) => AddressSet;
  /** countAddresses, remembered. */
  readonly count: (set: AddressSet) => bigint;
  readonly isEmpty: (set: AddressSet) => boolean;
  /** Whether two selections may have an address in common. */
  readonly meet: (a: string | undefined, b: string | undefined, family: Family) => boolean;
}

interface Target {
  readonly policy: PlanPolicy;
  readonly rule: PlanRule;
  /** The rules before it in its policy, and the policies before that one which act on some of its sources. */
  readonly own: readonly PlanRule[];
  readonly before: readonly PlanPolicy[];
}

/** Packets by source and destination: all pairs of the two sets. */
interface Rectangle {
  readonly source: AddressSet;
  readonly to: AddressSet;
}

/** How many set entries may still be looked at. */
interface Work {
  left: number;
}

/** Who takes the target's packets; undefined when some may be left for it, or it matches none. */
function hidersOf(context: Context, target: Target, work: Work): readonly Hider[] | undefined {
  const by: Hider[] = [];
  let matches = false;
  for (const family of FAMILIES) {
    const domain = domainOf(context, target.policy, target.rule, family);
    if (domain === undefined) continue;
    matches = true;
    const walk: Walk = { context, target, family, work, by };
    let pieces: readonly Rectangle[] = [domain];
    for (const policy of target.before) {
      if (pieces.length === 0) break;
      if (mayHide(walk, policy)) pieces = pastPolicy(walk, policy, pieces);
    }
    if (pieces.some(piece => !context.isEmpty(pastOwnRules(walk, piece.to)))) return undefined;
  }
  return matches ? by : undefined;
}

interface Walk {
  readonly context: Context;
  readonly target: Target;
  readonly family: Family;
  readonly work: Work;
  readonly by: Hider[];
}

function domainOf(
  context: Context,
  policy: PlanPolicy,
  rule: PlanRule,
  family: Family,
): Rectangle | undefined {
  const source = context.addresses(policy.source, family);
  const to = context.addresses(rule.to, family);
  if (context.isEmpty(source) || context.isEmpty(to)) return undefined;
  if (rule.snat !== undefined && 'addresses' in rule.snat && rule.snat.addresses[family] === undefined) {
    return undefined;
  }
  return { source, to };
}

/** A quick look that leaves out most policies: nothing in common, or nothing in it that ends the asking. */
function mayHide(walk: Walk, policy: PlanPolicy): boolean {
  const { context, target, family } = walk;
  if (!context.meet(policy.source, target.policy.source, family)) return false;
  if (policy.defaultAction !== 'Continue') return true;
  return policy.rules.some(rule => rule.action !== 'Continue' && takesAll(walk, rule));
}

/** Whether the rule matches every packet of the target that goes from its sources to its destinations. */
function takesAll({ context, target, family }: Walk, rule: PlanRule): boolean {
  if (!context.meet(rule.to, target.rule.to, family)) return false;
  if (rule.snat !== undefined) {
    // A value of the node may be missing on some node of the plan, and the rule then matches nothing there.
    if (!('addresses' in rule.snat) || rule.snat.addresses[family] === undefined) return false;
  }
  return (
    coversPorts(rule.ports, target.rule.ports) &&
    coversInterfaces(rule.outInterfaces, target.rule.outInterfaces)
  );
}

/** What goes on after an earlier policy: a piece that it takes from falls into at most two. */
function pastPolicy(walk: Walk, policy: PlanPolicy, pieces: readonly Rectangle[]): readonly Rectangle[] {
  const { context, family, work } = walk;
  const policySource = context.addresses(policy.source, family);
  return pieces.flatMap(piece => {
    const source = common(work, piece.source, policySource);
    if (source === undefined || context.isEmpty(source)) return [piece];
    const to = pastRules(walk, policy, piece.to);
    if (to === piece.to) return [piece];
    const beside = { source: minus(work, piece.source, policySource), to: piece.to };
    return [beside, { source, to }].filter(
      part => !context.isEmpty(part.source) && !context.isEmpty(part.to),
    );
  });
}

/** The destinations of which packets leave an earlier policy undecided; the same set when it is all of them. */
function pastRules(walk: Walk, policy: PlanPolicy, to: AddressSet): AddressSet {
  const { context, target, family, work } = walk;
  let asked = to;
  const left: AddressSet[] = [];
  for (const rule of policy.rules) {
    if (rule.action !== 'Continue') {
      if (takesAll(walk, rule)) asked = take(walk, { policy: policy.name, rule: rule.name }, asked, rule);
    } else if (
      context.meet(rule.to, target.rule.to, family) &&
      portsMeet(rule.ports, target.rule.ports) &&
      interfacesMeet(rule.outInterfaces, target.rule.outInterfaces)
    ) {
      // It may leave the policy for some of the target's ports only; all of them are then looked for later.
      const continuing = context.addresses(rule.to, family);
      const leaving = common(work, asked, continuing);
      if (leaving === undefined) return to;
      left.push(leaving);
      asked = minus(work, asked, continuing);
    }
  }
  if (policy.defaultAction !== 'Continue' && !context.isEmpty(asked)) {
    note(walk.by, { policy: policy.name, default: true });
    return union(family, left);
  }
  const count = left.reduce((sum, set) => sum + context.count(set), context.count(asked));
  return count === context.count(to) ? to : union(family, [asked, ...left]);
}

/** The destinations that are left after the rules before the target in its own policy, whatever their action is. */
function pastOwnRules(walk: Walk, to: AddressSet): AddressSet {
  let asked = to;
  for (const rule of walk.target.own) {
    if (walk.context.isEmpty(asked)) break;
    if (takesAll(walk, rule)) {
      asked = take(walk, { policy: walk.target.policy.name, rule: rule.name }, asked, rule);
    }
  }
  return asked;
}

/** What is left of the destinations after a rule, which is noted when it takes some. */
function take(
  { context, family, work, by }: Walk,
  hider: RuleRef,
  to: AddressSet,
  rule: PlanRule,
): AddressSet {
  const left = minus(work, to, context.addresses(rule.to, family));
  if (context.count(left) === context.count(to)) return to;
  note(by, hider);
  return left;
}

function note(by: Hider[], hider: Hider): void {
  const key = JSON.stringify(hider);
  if (!by.some(known => JSON.stringify(known) === key)) by.push(hider);
}

/** The difference; all of a when there is no work left for it, so that no more is claimed than is known. */
function minus(work: Work, a: AddressSet, b: AddressSet): AddressSet {
  if (a === b) return { family: a.family, entries: [] };
  return pay(work, a, b) ? subtract(a, b) : a;
}

/** The intersection; undefined when there is no work left for it. */
function common(work: Work, a: AddressSet, b: AddressSet): AddressSet | undefined {
  if (a === b) return a;
  return pay(work, a, b) ? intersect(a, b) : undefined;
}

/** Work that would be too much is not begun, and leaves what is left for smaller work. */
function pay(work: Work, a: AddressSet, b: AddressSet): boolean {
  const price = a.entries.length + b.entries.length;
  if (price > work.left) return false;
  work.left -= price;
  return true;
}

function contextOf(plan: Plan): Context {
  const counts = new Map<AddressSet, bigint>();
  const count = (set: AddressSet): bigint => {
    const known = counts.get(set) ?? countAddresses(set);
    counts.set(set, known);
    return known;
  };
  const anywhere = { 4: wholeFamily(4), 6: wholeFamily(6) };
  const meeting = { 4: meetingSets(plan.sets.values(), 4), 6: meetingSets(plan.sets.values(), 6) };
  return {
    addresses: (id, family) => {
      if (id === undefined) return anywhere[family];
      const set = plan.sets.get(id);
      if (set === undefined) throw new RangeError(`plan: it refers to a set that it does not hold: ${id}`);
      return set.addresses[family];
    },
    count,
    isEmpty: set => count(set) === 0n,
    meet: (a, b, family) => a === undefined || b === undefined || meeting[family](a, b),
  };
}

const wholeFamily = (family: Family): AddressSet => setOf(family, [{ family, base: 0n, prefix: 0 }]);
