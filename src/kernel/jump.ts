// The place of our jump in nat POSTROUTING: exactly one, before every foreign rule that may translate. Pure.
import { ruleText } from '../render/chain.ts';
import { isOwnChain } from '../render/names.ts';
import type { KernelRule } from '../render/tables.ts';
import { insertJumpLine } from '../render/text.ts';
import { asPrinted, deleteLine, POSTROUTING, type PrintedRule, sameFeatures } from './iptables.ts';

export type Postrouting =
  | { readonly readable: true; readonly rules: readonly PrintedRule[] }
  /** A native nftables rule in it keeps iptables from listing it; -C still tells whether our jump is there. */
  | { readonly readable: false; readonly hasJump: boolean };

export interface JumpPlan {
  /** Lines for the transaction; empty when nothing is to be changed. */
  readonly lines: readonly string[];
  /** Whether an existing jump is taken to the top because of a foreign rule above it. */
  readonly moves: boolean;
  /** From 1, after the lines were applied; undefined when it cannot be known. */
  readonly position?: number;
  /** Foreign rules above the jump, as printed, after the lines were applied. */
  readonly foreignAbove: readonly string[];
  /** The foreign rule above that may translate before us, when the jump may not be moved. */
  readonly contendedBy?: string;
  /** What is wrong, as a phrase; undefined when nothing is. */
  readonly fault?: string;
}

/**
 * Where rules may stand above ours: kube-proxy's and the host-port plugin's chains act on marked packets alone, and
 * LOG and NFLOG translate nothing. A RETURN ends POSTROUTING before us, and a rule without a target may be a native
 * nftables rule that iptables cannot show, so these are not safe.
 */
const SAFE_TARGETS: ReadonlySet<string> = new Set(['KUBE-POSTROUTING', 'CNI-HOSTPORT-MASQ', 'LOG', 'NFLOG']);

const isSafe = (rule: PrintedRule): boolean =>
  SAFE_TARGETS.has(rule.features.target) || isOwnChain(rule.features.target);

/**
 * Decides about the jump. `mayMove` false: a jump below a foreign rule stays there and is reported; a missing one is
 * inserted all the same. Jumps into our chains that hold more than a comment were made by hand: left alone here,
 * removed by cleanup.
 */
export function planJump(state: Postrouting, jump: KernelRule, mayMove: boolean): JumpPlan {
  const insert = insertJumpLine(jump);
  if (!state.readable) {
    return state.hasJump
      ? { lines: [], moves: false, foreignAbove: [] }
      : { lines: [insert], moves: false, position: 1, foreignAbove: [], fault: 'is missing' };
  }
  const wanted = asPrinted(POSTROUTING, jump);
  const exact = state.rules.filter(rule => isJump(rule, wanted));
  const wrong = state.rules.filter(rule => isPlainJump(rule) && !exact.includes(rule));
  const deletions = [...exact.map(() => `-D ${POSTROUTING} ${ruleText(jump)}`), ...wrong.flatMap(deletionOf)];
  const fresh = { lines: [...deletions, insert], position: 1, foreignAbove: [] };
  if (exact.length !== 1) {
    const fault = exact.length === 0 ? 'is missing' : `is there ${exact.length} times`;
    return { ...fresh, moves: false, fault };
  }
  const at = state.rules.indexOf(exact[0] as PrintedRule);
  const above = state.rules.slice(0, at).filter(rule => !isOwnChain(rule.features.target));
  const unsafe = above.find(rule => !isSafe(rule));
  if (unsafe !== undefined && mayMove) {
    return { ...fresh, moves: true, fault: `is at position ${at + 1}, below ${unsafe.text}` };
  }
  const wrongAbove = wrong.filter(rule => state.rules.indexOf(rule) < at).length;
  return {
    lines: wrong.flatMap(deletionOf),
    moves: false,
    position: at + 1 - wrongAbove,
    foreignAbove: above.map(rule => rule.text),
    ...(unsafe === undefined ? {} : { contendedBy: unsafe.text }),
    ...(wrong.length === 0 ? {} : { fault: `has another jump beside it: ${wrong[0]?.text}` }),
  };
}

const deletionOf = (rule: PrintedRule): readonly string[] => {
  const line = deleteLine(rule);
  return line === undefined ? [] : [line];
};

/** iptables prints arguments in its own order, so beside hash and target their number is what can be compared. */
const isJump = (rule: PrintedRule, wanted: PrintedRule): boolean =>
  rule.hash === wanted.hash &&
  sameFeatures(wanted.features, rule.features) &&
  rule.args.length === wanted.args.length;

/** A jump into a chain of ours with at most a comment: of this version or of another one. */
const isPlainJump = (rule: PrintedRule): boolean =>
  isOwnChain(rule.features.target) &&
  rule.args.length === (rule.args.includes('--comment') ? 6 : 2) &&
  deleteLine(rule) !== undefined;
