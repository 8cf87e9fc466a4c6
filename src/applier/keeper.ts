// Keeps the kernel as the latest wanted tables say: applies what is new at once, looks soon after every write, then
// every 30 s, repairs, and backs off from errors without ever giving up. Level-triggered: only what was wanted last
// counts, however many came in between.
import type { CleanupReport } from '../kernel/cleanup.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Driver } from '../kernel/driver.ts';
import { DEFAULT_MOVE_LIMIT } from '../kernel/moves.ts';
import type { DriverReport } from '../kernel/report.ts';
import type { FamilyTables } from '../render/tables.ts';
import { createNap } from './nap.ts';

export type Occasion = 'apply' | 'verify';

/** What shall be in the kernel; whoever gives it may say more, and gets it back with the report. */
export interface Wanted {
  readonly tables: readonly FamilyTables[];
}

export interface KeeperParts<W extends Wanted> {
  readonly driver: Driver;
  readonly clock: Clock;
  /** A number from 0 to 1, for jitter. */
  readonly random: () => number;
  /** Called after each run, in order, with what was wanted. It may take its time: the next run waits for it. */
  readonly onReport: (report: DriverReport, occasion: Occasion, wanted: W) => void | Promise<void>;
  /** Called after each try to remove everything. */
  readonly onRemoval?: (report: CleanupReport) => void;
}

export interface Keeper<W extends Wanted> {
  /** This is wanted from now on. Returns at once. */
  want(wanted: W): void;
  /** Nothing of ours is wanted from now on: it is removed, and tried again until nothing is left. Returns at once. */
  wantNothing(): void;
  /** Works until the signal aborts; leaves the rules as they are then. Resolves, never rejects. */
  run(signal: AbortSignal): Promise<void>;
}

/** After a write: others that write without our lock, or insist on our place, show themselves soon. */
const SOON_MS = [5_000, 10_000, 20_000] as const;
const STEADY_MS = 30_000;
/** While another program insists on our place, its rule decides until the next look. */
const FIGHT_PACE_MS = 5_000;
const FIRST_RETRY_MS = 1_000;
/** Wanted, where everything of ours is to be removed. */
const NOTHING = Symbol('nothing');

export function createKeeper<W extends Wanted>({
  driver,
  clock,
  random,
  onReport,
  onRemoval = () => {},
}: KeeperParts<W>): Keeper<W> {
  const nap = createNap(clock);
  let latest: W | typeof NOTHING | undefined;
  let fresh = false;
  let looksSinceWrite = SOON_MS.length as number;
  let failures = 0;
  let fightsUntil = Number.NEGATIVE_INFINITY;

  const pause = (): number => {
    const base =
      failures > 0
        ? Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), STEADY_MS)
        : Math.min(
            SOON_MS[looksSinceWrite] ?? STEADY_MS,
            clock.now() < fightsUntil ? FIGHT_PACE_MS : STEADY_MS,
          );
    return base * (0.9 + random() * 0.2);
  };

  /** Until the next look is due or new tables came. */
  const rest = (ms: number, signal: AbortSignal): Promise<void> =>
    fresh ? Promise.resolve() : nap.sleep(ms, signal);

  const runOnce = async (wanted: W, signal: AbortSignal): Promise<void> => {
    const occasion: Occasion = fresh ? 'apply' : 'verify';
    fresh = false;
    const report =
      occasion === 'apply' ? await driver.apply(wanted.tables, signal) : await driver.verify(signal);
    const failed = Object.values(report.families).some(family => !family.ok);
    failures = failed ? failures + 1 : 0;
    if (Object.values(report.families).some(family => family.jumpMoved === true))
      fightsUntil = clock.now() + DEFAULT_MOVE_LIMIT.windowMs;
    looksSinceWrite = report.changed ? 0 : looksSinceWrite + 1;
    await onReport(report, occasion, wanted);
  };

  const remove = async (signal: AbortSignal): Promise<void> => {
    fresh = false;
    const report = await driver.remove(signal);
    failures = report.ok ? 0 : failures + 1;
    // What is gone comes back by nobody: there is nothing to look after.
    if (report.ok && !fresh) latest = undefined;
    onRemoval(report);
  };

  const wantNow = (wanted: W | typeof NOTHING): void => {
    latest = wanted;
    fresh = true;
    nap.wake();
  };

  return {
    want: wantNow,
    wantNothing: () => wantNow(NOTHING),
    async run(signal) {
      while (!signal.aborted) {
        if (latest === undefined) {
          await rest(STEADY_MS, signal);
          continue;
        }
        try {
          await (latest === NOTHING ? remove(signal) : runOnce(latest, signal));
        } catch (error) {
          // Only an abort makes the driver throw; anything else is a fault of ours that must be seen.
          if (!signal.aborted) throw error;
        }
        if (!signal.aborted) await rest(pause(), signal);
      }
    },
  };
}
