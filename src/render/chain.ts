// Chains whose rules carry a chained hash: what the kernel prints for a rule does not round-trip (order of matches,
// host bits, quotes), but a comment does, so equal sequences of hashes mean that a chain is as it was written.
import { shortHash } from '../planner/ids.ts';
import { COMMENT_PREFIX } from './names.ts';
import type { KernelChain, KernelRule } from './tables.ts';

export interface RuleSpec {
  readonly args: readonly string[];
  /** What the rule is for: a policy and its rule, say. Any text; it is made safe here. */
  readonly label: string;
}

/** iptables cuts comments over 255 bytes without a word, and reads them as given; labels stay far below. */
const MAX_LABEL = 120;

/** Printable ASCII without quotes, backslashes and blanks at the ends; cut with a mark when long. */
export function safeLabel(text: string): string {
  const safe = text.replaceAll(/[^A-Za-z0-9 ._/:=+-]/g, '_').trim();
  return safe.length <= MAX_LABEL ? safe : `${safe.slice(0, MAX_LABEL - 14)}~${shortHash(text)}`;
}

/** A chain with its rules' hashes: each is of the chain's name, the rule and every rule before it. */
export function chainOf(name: string, rules: readonly RuleSpec[]): KernelChain {
  let hash = name;
  return {
    name,
    rules: rules.map(rule => {
      const label = safeLabel(rule.label);
      hash = shortHash(JSON.stringify([hash, rule.args, label]), 16);
      return { args: rule.args, label, hash };
    }),
  };
}

/** The comment that a rule carries in the kernel: at most 150 characters, no quoting needed but for the blanks. */
export const commentOf = (rule: KernelRule): string => `${COMMENT_PREFIX}${rule.hash} ${rule.label}`;

/** The rule as a line of iptables-restore appends it, without the verb and the chain. */
export const ruleText = (rule: KernelRule): string =>
  `-m comment --comment "${commentOf(rule)}" ${rule.args.join(' ')}`;
