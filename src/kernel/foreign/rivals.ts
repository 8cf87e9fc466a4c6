// Rules of other programs that this kernel asks before ours and that may settle the fate of what pods send, wherever they
// stand: above our jump, in the other backend of iptables, in nft's own tables. Not one packet is judged but all
// unmarked ones of the pods, so that nobody has to guess which: who marks a packet (kube-proxy, the host-port plugin)
// means to translate it. Felix alone marks what pods send at large: its eBPF programs mark connections that its rule of
// POSTROUTING shall masquerade.
import { type AddressSet, isEmpty, rangesOf } from '../../cidr/address-set.ts';
import { type Clock, systemClock } from '../clock.ts';
import type { Exec } from '../exec.ts';
import { judgeForeign } from './judge.ts';
import { NO_FACTS } from './match.ts';
import { everyAddress } from './model.ts';
import { FELIX, remedyFor } from './programs.ts';
import { readNatRules } from './read.ts';
import type { Verdict } from './walk.ts';

export interface Rivals {
  /** In the order of asking. `may win` also when it wins for some of the packets. */
  readonly rules: readonly Verdict[];
  /** What could not be read, in sentences. */
  readonly gaps: readonly string[];
}

/**
 * Looks for them. Reads only, for a family of which pods have addresses. What cannot be read is a gap; rejects only
 * when the signal aborts.
 */
export async function readRivals(
  exec: Exec,
  pods: AddressSet,
  signal?: AbortSignal,
  clock: Clock = systemClock,
): Promise<Rivals> {
  if (isEmpty(pods)) return { rules: [], gaps: [] };
  const { family } = pods;
  const rules = await readNatRules(exec, family, signal, clock);
  const traffic = { family, source: rangesOf(pods), destination: everyAddress(family) };
  const found = judgeForeign(rules, traffic, NO_FACTS).before;
  const places = new Set(found.map(({ place }) => place));
  const marked = judgeForeign(rules, { ...traffic, anyMark: true }, NO_FACTS).before.filter(
    ({ program, place }) => program === FELIX && !places.has(place),
  );
  return { rules: [...found, ...marked], gaps: rules.gaps };
}

/** One rule as a line. */
export const rivalText = ({ program, place, rule, certainty }: Verdict): string =>
  `${program === undefined ? '' : `${program}: `}${rule} (${place}; ${certainty})`;

/** What to do about them: a sentence for each program. */
export const remediesOf = (
  rules: readonly { readonly program?: string | undefined }[],
): readonly string[] => [...new Set(rules.map(({ program }) => remedyFor(program)))];
