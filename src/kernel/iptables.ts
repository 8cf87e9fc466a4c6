// iptables: what it prints about POSTROUTING and our chains, read; and the lines of one transaction that changes them.
// A printed rule is never written back: it is compared by the hash in its comment, and a rule is deleted by the text
// that we would write ourselves.
import { CHAIN_PREFIX, COMMENT_PREFIX, isOwnChain } from '../render/names.ts';
import { ruleText } from '../render/chain.ts';
import type { KernelChain, KernelRule } from '../render/tables.ts';
import { appendLines, declareLine } from '../render/text.ts';
import { logicalLines, wordsOf } from './printed-lines.ts';

export interface PrintedRule {
  /** The line as iptables printed it. */
  readonly text: string;
  /** The arguments behind `-A CHAIN`. */
  readonly args: readonly string[];
  /** The hash in a comment of ours. */
  readonly hash?: string;
  /** What must be visible in a rule that was printed whole: its sets and its target. */
  readonly features: RuleFeatures;
}

export interface RuleFeatures {
  /** `NAME flags`, with `!` before it when negated, sorted. */
  readonly sets: readonly string[];
  /** The target of -j or -g, empty when there is none. */
  readonly target: string;
}

export type Listing = ReadonlyMap<string, readonly PrintedRule[]>;

export const POSTROUTING = 'POSTROUTING';

/**
 * Parses `iptables -S`: our chains and POSTROUTING. The rules of other chains (25,000 of services, say) are passed
 * over without a look. Throws a SyntaxError when the text was cut inside quotes.
 */
export function parseListing(text: string): Listing {
  const chains = new Map<string, PrintedRule[]>();
  for (const line of logicalLines(text)) {
    const from = line.indexOf(' ') + 1;
    if (!line.startsWith(POSTROUTING, from) && !line.startsWith(CHAIN_PREFIX, from)) continue;
    const [verb = '', chain = ''] = line.split(' ', 2);
    if (chain !== POSTROUTING && !isOwnChain(chain)) continue;
    if (verb === '-P' || verb === '-N') chains.set(chain, chains.get(chain) ?? []);
    else if (verb === '-A') {
      const rules = chains.get(chain) ?? [];
      rules.push(printedRule(line, wordsOf(line).slice(2)));
      chains.set(chain, rules);
    }
  }
  return chains;
}

function printedRule(text: string, args: readonly string[]): PrintedRule {
  const comment = valueAfter(args, '--comment');
  const hash = comment?.startsWith(COMMENT_PREFIX)
    ? comment.slice(COMMENT_PREFIX.length).split(' ', 1)[0]
    : undefined;
  return { text, args, features: featuresOf(args), ...(hash === undefined ? {} : { hash }) };
}

/** The rule as this module would read it back. */
export const asPrinted = (chain: string, rule: KernelRule): PrintedRule => {
  const text = `-A ${chain} ${ruleText(rule)}`;
  return printedRule(text, wordsOf(text).slice(2));
};

const valueAfter = (args: readonly string[], option: string): string | undefined => {
  const at = args.indexOf(option);
  return at < 0 ? undefined : args[at + 1];
};

/** The sets and the target of a rule, from its arguments. */
export function featuresOf(args: readonly string[]): RuleFeatures {
  const sets: string[] = [];
  args.forEach((arg, i) => {
    if (arg !== '--match-set') return;
    sets.push(`${args[i - 1] === '!' ? '! ' : ''}${args[i + 1] ?? ''} ${args[i + 2] ?? ''}`);
  });
  return { sets: sets.sort(), target: valueAfter(args, '-j') ?? valueAfter(args, '-g') ?? '' };
}

/** The names of the sets that a rule looks into. */
export const setsOf = (rule: { readonly args: readonly string[] }): readonly string[] =>
  rule.args.filter((_, i) => rule.args[i - 1] === '--match-set');

export type ChainVerdict =
  | 'same'
  | 'different'
  /** The hashes are right, but a rule lacks a set or its target: iptables cannot show what is there. */
  | 'unreadable';

/** Compares a chain as printed with the wanted one. */
export function compareChain(printed: readonly PrintedRule[], wanted: KernelChain): ChainVerdict {
  if (printed.length !== wanted.rules.length) return 'different';
  if (wanted.rules.some((rule, i) => rule.hash !== printed[i]?.hash)) return 'different';
  const visible = wanted.rules.every((rule, i) => sameFeatures(featuresOf(rule.args), printed[i]?.features));
  return visible ? 'same' : 'unreadable';
}

export const sameFeatures = (a: RuleFeatures, b: RuleFeatures | undefined): boolean =>
  a.target === b?.target && a.sets.length === b.sets.length && a.sets.every((set, i) => set === b.sets[i]);

/** The lines that make the chains so, new or emptied first, since rules may lead to chains that come later. */
export const chainLines = (chains: readonly KernelChain[], emptied: readonly string[]): string[] => [
  ...[...chains.map(chain => chain.name), ...emptied].map(declareLine),
  ...chains.flatMap(appendLines),
];

/** What may stand in a rule that we delete by its value: nothing that the parser of iptables-restore would unwrap. */
const SAFE_TOKEN = /^[A-Za-z0-9 ._/:=+~@,%!-]+$/;

/**
 * The line that deletes a rule of POSTROUTING that leads to a chain of ours, by its parsed and newly printed
 * arguments; undefined when it holds anything unusual. At worst it names no rule, or another one that leads to a
 * chain of ours: a rule number could hit a stranger's rule after somebody's insertion.
 */
export function deleteLine(rule: PrintedRule): string | undefined {
  if (!isOwnChain(rule.features.target) || !rule.args.every(arg => SAFE_TOKEN.test(arg))) return undefined;
  return `-D ${POSTROUTING} ${rule.args.map(arg => (arg.includes(' ') ? `"${arg}"` : arg)).join(' ')}`;
}
