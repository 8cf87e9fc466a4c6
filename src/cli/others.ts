// What other programs' rules in this host's kernel do to a packet, beside ours.
import { systemExec } from '../kernel/exec.ts';
import { judgeForeign, readForeignFacts, readNatRules } from '../kernel/foreign/judge.ts';
import type { Verdict } from '../kernel/foreign/walk.ts';
import type { Packet } from '../planner/packet.ts';

export interface OthersRules {
  /** Whether our jump is in the kernel; without it none of our rules is asked. */
  readonly applied: boolean;
  /** What wins over our rules. */
  readonly before: readonly Verdict[];
  /** What is asked when ours did nothing. */
  readonly after: readonly Verdict[];
  /** What could not be read, in sentences. */
  readonly gaps: readonly string[];
}

/** Reads the kernel's rules and judges them; undefined without root, when nothing can be read. */
export async function othersRules(packet: Packet, signal: AbortSignal): Promise<OthersRules | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const rules = await readNatRules(systemExec, packet.source.family, signal);
  const facts = await readForeignFacts(systemExec, rules, packet, signal);
  const { jump, before, after } = judgeForeign(rules, packet, facts);
  return { applied: jump, before, after, gaps: rules.gaps };
}

export function othersText({ applied, before, after, gaps }: OthersRules): string {
  const lines = [
    ...(applied ? [] : ['  note: our rules are not in this kernel']),
    ...before.map(verdict => `  before us: ${verdictText(verdict)}`),
    ...after.map(verdict => `  when we do nothing: ${verdictText(verdict)}`),
    ...gaps.map(gap => `  note: ${gap}`),
  ];
  return lines.map(line => `${line}\n`).join('');
}

const verdictText = ({ sentence, program, certainty, place, rule, doubts }: Verdict): string =>
  `${program === undefined ? '' : `${program}: `}${sentence} (${certainty}${doubts.length === 0 ? '' : `: ${doubts.join('; ')}`})\n    ${place}: ${rule}`;
