// Which rules of other programs are asked before ours for what pods send. They come and go by others' hands, so they
// are looked for again and again, apart from the driver: no change of ours waits for it.
import { FAMILIES } from '../cidr/address.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Exec } from '../kernel/exec.ts';
import { readRivals, type Rivals } from '../kernel/foreign/rivals.ts';
import { type FamilyName, familyName } from '../kernel/report.ts';
import type { Plan } from '../planner/plan.ts';
import { podSources } from '../planner/pod-sources.ts';
import { createNap } from './nap.ts';

export type RivalsByFamily = { readonly [F in FamilyName]: Rivals };

/** Looks once. What cannot be read is a gap; rejects only when the signal aborts. */
export async function lookForRivals(
  exec: Exec,
  plan: Plan,
  signal?: AbortSignal,
  clock?: Clock,
): Promise<RivalsByFamily> {
  const found: { [F in FamilyName]?: Rivals } = {};
  for (const family of FAMILIES) {
    found[familyName(family)] = await readRivals(exec, podSources(plan, family), signal, clock);
  }
  return found as RivalsByFamily;
}

export interface RivalWatch {
  /** This plan is in the kernel. The first is looked at soon, the others when it is time. */
  inForce(plan: Plan): void;
  /** None is, and nothing is to be told. */
  nothing(): void;
  /** Looks until the signal aborts. Resolves, never rejects. */
  run(signal: AbortSignal): Promise<void>;
}

/** Next to 5,000 Services a look takes 270 ms of processor time, 520 where both backends have them (measured). */
const LOOK_EVERY_MS = 300_000;

/** `tell` hears of every look. */
export function createRivalWatch(
  { exec, clock }: { readonly exec: Exec; readonly clock: Clock },
  tell: (rivals: RivalsByFamily) => void,
): RivalWatch {
  const nap = createNap(clock);
  let plan: Plan | undefined;
  let due = false;
  return {
    inForce(next) {
      due ||= plan === undefined;
      plan = next;
      if (due) nap.wake();
    },
    nothing() {
      plan = undefined;
    },
    async run(signal) {
      while (!signal.aborted) {
        due = false;
        const rivals = plan === undefined ? undefined : await look(plan, signal);
        // Everything may have been removed meanwhile.
        if (rivals !== undefined && plan !== undefined) tell(rivals);
        if (!due) await nap.sleep(LOOK_EVERY_MS, signal);
      }
    },
  };

  async function look(asked: Plan, signal: AbortSignal): Promise<RivalsByFamily | undefined> {
    try {
      return await lookForRivals(exec, asked, signal, clock);
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    }
  }
}
