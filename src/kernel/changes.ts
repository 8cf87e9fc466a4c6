// The kernel as it is and the tables as they shall be → what differs, and the steps that mend it, in an order in which
// no packet that the change does not concern is misjudged at any moment. Pure.
//
// One set that changes alone is changed in place or swapped: each address goes from its old to its new answer at
// once. When two sets that live rules look into change, or one of them and the rules, then a mixture could misjudge
// a packet (a pool is in the sources already, and not yet in the destinations to be spared). Then the change is
// staged: every such set gets a temporary twin with the new content; one transaction puts the new rules, looking
// into the twins, in place of the old; the sets themselves, which nobody looks into now, are brought to the new
// content; a second transaction goes back to them. The hashes of staged rules differ from the final ones, so a crash
// in between is seen as drift, and ends in the same rules and sets.
import type { Family } from '../cidr/address.ts';
import { chainOf } from '../render/chain.ts';
import { temporarySetName } from '../render/names.ts';
import type { FamilyTables, KernelChain, KernelRule } from '../render/tables.ts';
import { sizeOfDelta } from './entries.ts';
import { chainLines, type ChainVerdict, compareChain, setsOf } from './iptables.ts';
import {
  changeOfSet,
  changesContent,
  directWork,
  headerText,
  type SetChange,
  type SetWork,
  stagedWork,
} from './set-change.ts';
import { wantedHeader } from './ipset.ts';
import { type JumpPlan, planJump } from './jump.ts';
import type { Observed } from './observe.ts';

/** One thing in which the kernel is not as wanted. */
export interface Difference {
  /** `set NAME`, `chain NAME`, or `jump`. */
  readonly object: string;
  readonly is: string;
  readonly wanted: string;
}

/** Lines for one run of `ipset restore`, or the body of one transaction of table nat. */
export interface Step {
  readonly tool: 'ipset' | 'iptables';
  readonly lines: readonly string[];
}

export interface FamilyPlan {
  readonly differences: readonly Difference[];
  /** In this order; a step that fails ends it. */
  readonly steps: readonly Step[];
  /** Empty chains to be deleted after the steps; one that cannot be is left for later. */
  readonly staleChains: readonly string[];
  /** Sets to be destroyed last; one that cannot be is left for later. */
  readonly staleSets: readonly string[];
  readonly jump: JumpPlan;
  /** Chains whose rules are right by their hashes and are not shown whole, whether they are written again or not. */
  readonly unreadable: readonly string[];
}

export interface PlanOptions {
  /** Whether a jump below a foreign rule may be moved to the top. */
  readonly mayMove: boolean;
  /** Sets and chains that could not be removed lately, by name: not tried again here, and no difference. */
  readonly held: ReadonlySet<string>;
  /** Chains that were written and are not shown whole: not written again. */
  readonly unreadable: ReadonlySet<string>;
}

export const isInOrder = (plan: FamilyPlan): boolean => plan.differences.length === 0;

/** Compares and plans. Throws nothing on any state of the kernel. */
export function planFamily(observed: Observed, tables: FamilyTables, options: PlanOptions): FamilyPlan {
  const { family } = tables;
  const verdicts = new Map(tables.chains.map(chain => [chain.name, verdictOf(chain, observed)]));
  const isGivenUp = (name: string): boolean =>
    verdicts.get(name) === 'unreadable' && options.unreadable.has(name);
  const changed = tables.chains.filter(({ name }) => verdicts.get(name) !== 'same' && !isGivenUp(name));
  const foreignChains = [...observed.chains.keys()].filter(name => !verdicts.has(name));
  const filled = foreignChains.filter(name => observed.chains.get(name)?.length !== 0);
  const staleChains = foreignChains.filter(name => !options.held.has(name));
  const jump = planJump(observed.postrouting, tables.jump, options.mayMove);
  const rules = [...chainLines(changed, filled), ...jump.lines];

  const live = liveSets(observed);
  const changes = tables.sets.flatMap(set => {
    const change = changeOfSet(family, set, observed.sets.get(set.name));
    return change === undefined ? [] : atOnce(change, live.get(set.name));
  });
  const isFree = (name: string): boolean =>
    !observed.sets.has(name) || (!live.has(name) && !options.held.has(name));
  const staged = new Set(setsToStage(changes, live, rules.length > 0, isFree));
  const works = changes.map(change => workOf(family, change, observed, staged, live, isFree));
  const temporaries = changes.flatMap((change, i) =>
    works[i]?.temporary === true ? [temporarySetName(change.set.name)] : [],
  );
  const wantedSets = new Set(tables.sets.map(set => set.name));
  const unwanted = [...observed.sets.keys()].filter(name => !wantedSets.has(name) && !options.held.has(name));

  return {
    differences: [
      ...changes.map(change => setDifference(family, change)),
      ...unwanted.map(name => ({ object: `set ${name}`, is: 'is there', wanted: 'none' })),
      ...changed.map(chain => chainDifference(chain, observed, verdicts.get(chain.name))),
      ...[...new Set([...filled, ...staleChains])].map(name => ({
        object: `chain ${name}`,
        is: 'is there',
        wanted: 'none',
      })),
      ...(jump.fault === undefined
        ? []
        : [{ object: 'jump', is: jump.fault, wanted: 'one jump, before foreign rules that may translate' }]),
    ],
    steps: orderSteps(changes, works, tables, { changed, filled, jump, rules, staged }),
    staleChains,
    staleSets: [...new Set([...unwanted, ...temporaries])],
    jump,
    unreadable: [...verdicts].filter(([, verdict]) => verdict === 'unreadable').map(([name]) => name),
  };
}

function verdictOf(chain: KernelChain, observed: Observed): ChainVerdict {
  const printed = observed.chains.get(chain.name);
  return printed === undefined ? 'different' : compareChain(printed, chain);
}

/** The sets that any rule which was read looks into, and whether for the source, the destination, or both. */
function liveSets(observed: Observed): ReadonlyMap<string, ReadonlySet<string>> {
  const live = new Map<string, Set<string>>();
  const { postrouting } = observed;
  const listings = [...observed.chains.values(), ...(postrouting.readable ? [postrouting.rules] : [])];
  for (const { args } of listings.flat()) {
    args.forEach((arg, i) => {
      if (args[i - 1] !== '--match-set') return;
      live.set(arg, (live.get(arg) ?? new Set()).add(args[i + 1] ?? ''));
    });
  }
  return live;
}

/**
 * A packet whose source and destination are both looked for in one set could see it between two lines of a delta,
 * with one of them changed already; a swap changes both at once.
 */
function atOnce(change: SetChange, directions: ReadonlySet<string> | undefined): SetChange {
  const isOneStep = change.delta !== undefined && sizeOfDelta(change.delta) <= 1;
  if (change.kind !== 'delta' || change.set.guard || isOneStep || (directions?.size ?? 0) < 2) return change;
  return { ...change, kind: 'rewrite' };
}

/** Names of the sets that get a temporary twin for this change (see the head of this file). */
function setsToStage(
  changes: readonly SetChange[],
  live: ReadonlyMap<string, unknown>,
  rulesChange: boolean,
  isFree: (name: string) => boolean,
): readonly string[] {
  const inUse = changes.filter(change => live.has(change.set.name));
  // A set in use cannot be destroyed, so one of a wrong type is staged away from first, guard or not.
  const wrong = inUse.filter(change => change.kind === 'recreate');
  const precise = inUse.filter(
    change => change.kind !== 'recreate' && !change.set.guard && changesContent(change),
  );
  const mixes = precise.length > 1 || (precise.length === 1 && rulesChange) || wrong.length > 0;
  if (!mixes) return [];
  return [...wrong, ...precise].map(change => change.set.name).filter(name => isFree(temporarySetName(name)));
}

function workOf(
  family: Family,
  change: SetChange,
  observed: Observed,
  staged: ReadonlySet<string>,
  live: ReadonlyMap<string, unknown>,
  isFree: (name: string) => boolean,
): SetWork {
  const temporary = temporarySetName(change.set.name);
  const leftover = observed.sets.has(temporary);
  return staged.has(change.set.name)
    ? stagedWork(family, change, leftover)
    : directWork(family, change, { leftover, free: isFree(temporary), live: live.has(change.set.name) });
}

interface RuleWork {
  readonly changed: readonly KernelChain[];
  readonly filled: readonly string[];
  readonly jump: JumpPlan;
  readonly rules: readonly string[];
  readonly staged: ReadonlySet<string>;
}

function orderSteps(
  changes: readonly SetChange[],
  works: readonly SetWork[],
  tables: FamilyTables,
  work: RuleWork,
): readonly Step[] {
  // Guards grow before anything else changes.
  const guardsFirst = [...works.keys()].sort(
    (a, b) => Number(changes[b]?.set.guard) - Number(changes[a]?.set.guard),
  );
  const early = guardsFirst.flatMap(i => works[i]?.early ?? []);
  const middle = works.flatMap(({ middle }) => middle);
  const late = works.flatMap(({ late }) => late);
  const rules = work.staged.size === 0 ? [step('iptables', work.rules)] : stagedRules(tables, work, middle);
  return joined([step('ipset', early), ...rules, step('ipset', late)]);
}

/** The rules with the temporary sets, the sets' own change, and the final rules. */
function stagedRules(tables: FamilyTables, work: RuleWork, middle: readonly string[]): readonly Step[] {
  const twins = tables.chains.map(chain => onTemporaries(chain, work.staged));
  const substituted = tables.chains.filter((chain, i) => twins[i] !== chain);
  const first = twins.filter((twin, i) => {
    const chain = tables.chains[i] as KernelChain;
    return twin !== chain || work.changed.includes(chain);
  });
  return [
    step('iptables', [...chainLines(first, work.filled), ...work.jump.lines]),
    step('ipset', middle),
    step('iptables', chainLines(substituted, [])),
  ];
}

/** The chain with rules that look into temporary sets; the same object when it looks into none of the sets. */
function onTemporaries(chain: KernelChain, staged: ReadonlySet<string>): KernelChain {
  const isConcerned = (rule: KernelRule): boolean => setsOf(rule).some(name => staged.has(name));
  if (!chain.rules.some(isConcerned)) return chain;
  const rules = chain.rules.map(({ args, label }) => ({
    label,
    args: args.map((arg, i) =>
      args[i - 1] === '--match-set' && staged.has(arg) ? temporarySetName(arg) : arg,
    ),
  }));
  return chainOf(chain.name, rules);
}

const step = (tool: Step['tool'], lines: readonly string[]): Step => ({ tool, lines });

/** Without empty steps; neighbours of ipset become one process. */
function joined(steps: readonly Step[]): readonly Step[] {
  const kept: Step[] = [];
  for (const next of steps) {
    const last = kept.at(-1);
    if (next.lines.length === 0) continue;
    if (last?.tool === 'ipset' && next.tool === 'ipset') {
      kept[kept.length - 1] = step('ipset', [...last.lines, ...next.lines]);
    } else kept.push(next);
  }
  return kept;
}

const setDifference = (family: Family, { set, is }: SetChange): Difference => ({
  object: `set ${set.name}`,
  is,
  wanted: `${set.entries.length} entries, ${headerText(wantedHeader(family, set.maxelem))}`,
});

function chainDifference(
  chain: KernelChain,
  observed: Observed,
  verdict: ChainVerdict | undefined,
): Difference {
  const printed = observed.chains.get(chain.name);
  const is = printed === undefined ? 'is missing' : chainState(chain, printed.length, verdict);
  return { object: `chain ${chain.name}`, is, wanted: `${chain.rules.length} rules` };
}

const chainState = (chain: KernelChain, rules: number, verdict: ChainVerdict | undefined): string =>
  verdict === 'unreadable'
    ? 'is shown without a set or target of its rules'
    : `has ${rules} rules${rules === chain.rules.length ? ', not the wanted ones' : ''}`;
