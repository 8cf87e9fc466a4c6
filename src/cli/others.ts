// What other programs' rules in this host's kernel do to a packet, beside ours.
import { systemExec } from '../kernel/exec.ts';
import {
  judgeForeign,
  judgeUntracked,
  readForeignFacts,
  readNatRules,
  readRawRules,
} from '../kernel/foreign/judge.ts';
import { trafficOf } from '../kernel/foreign/model.ts';
import type { Verdict } from '../kernel/foreign/walk.ts';
import type { Packet } from '../planner/packet.ts';

export interface OthersRules {
  /** Whether our jump is in the kernel; without it none of our rules is asked. */
  readonly applied: boolean;
  /** What wins over our rules. */
  readonly before: readonly Verdict[];
  /** What is asked when ours did nothing. */
  readonly after: readonly Verdict[];
  /** What takes the packet out of connection tracking, so that nobody's rule of table nat is asked. */
  readonly untracked: readonly Verdict[];
  /** What could not be read, in sentences. */
  readonly gaps: readonly string[];
}

/** The rules, or why they are not known. */
export type Look = { readonly kernel: OthersRules } | { readonly kernelNotRead: string };

/** Looks for them, if that was asked for, this host is the node and the process is root's. */
export async function lookForOthers(
  isHere: boolean,
  packet: Packet,
  { kernel, node }: { readonly kernel: boolean; readonly node: string },
  signal: AbortSignal,
): Promise<Look> {
  if (!kernel) return { kernelNotRead: '--no-kernel was given' };
  if (!isHere) return { kernelNotRead: `this host is not Node ${node}` };
  if (process.getuid?.() !== 0) return { kernelNotRead: 'that takes root' };
  return { kernel: await othersRules(packet, signal) };
}

export const lookText = (look: Look): string =>
  'kernel' in look
    ? othersText(look.kernel)
    : `  note: rules of other programs were not looked for: ${look.kernelNotRead}\n`;

/** Reads the kernel's rules and judges them. */
async function othersRules(packet: Packet, signal: AbortSignal): Promise<OthersRules> {
  const rules = await readNatRules(systemExec, packet.source.family, signal);
  const facts = await readForeignFacts(systemExec, rules, packet, signal);
  const { jump, before, after } = judgeForeign(rules, trafficOf(packet), facts);
  const raw = await readRawRules(systemExec, packet.source.family, signal);
  const rawFacts = await readForeignFacts(systemExec, raw, packet, signal);
  const untracked = judgeUntracked(raw, trafficOf(packet), rawFacts);
  return { applied: jump, before, after, untracked, gaps: [...rules.gaps, ...raw.gaps] };
}

function othersText({ applied, before, after, untracked, gaps }: OthersRules): string {
  const lines = [
    ...(applied ? [] : ['  note: our rules are not in this kernel']),
    ...untracked.map(verdict => `  before all: ${verdictText(verdict)}`),
    ...before.map(verdict => `  before us: ${verdictText(verdict)}`),
    ...after.map(verdict => `  when we do nothing: ${verdictText(verdict)}`),
    ...gaps.map(gap => `  note: ${gap}`),
  ];
  return lines.map(line => `${line}\n`).join('');
}

const verdictText = ({ sentence, program, certainty, place, rule, doubts }: Verdict): string =>
  `${program === undefined ? '' : `${program}: `}${sentence} (${certainty}${doubts.length === 0 ? '' : `: ${doubts.join('; ')}`})\n    ${place}: ${rule}`;
