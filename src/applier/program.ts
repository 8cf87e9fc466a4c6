// The applier as a process: the last good plan at once, then whatever the API says, kept in the kernel and reported.
import { setMaxListeners } from 'node:events';
import type { Logger } from 'pino';
import type { Api } from '../cluster/api.ts';
import type { Backend } from '../kernel/backend.ts';
import type { Clock } from '../kernel/clock.ts';
import { createDriver, type Driver } from '../kernel/driver.ts';
import type { Exec } from '../kernel/exec.ts';
import { startHealthServer } from '../telemetry/health-server.ts';
import { watchBackend } from './backend-watch.ts';
import { createKeeper, type Keeper } from './keeper.ts';
import { createApplierMetrics } from './metrics.ts';
import { createNodeReport, isProgrammed, type NodeReport } from './node-report.ts';
import { createPlanSource, type PlanSource, type SourceState } from './plan-source.ts';
import { type ApplyRecord, openRecord } from './record.ts';
import { createRivalWatch, type RivalWatch } from './rival-watch.ts';
import { nextPlan, renderedPlan, type Trouble, troubleOf, type WantedPlan } from './wanted-plan.ts';

export interface ApplierParts {
  readonly api: Api;
  readonly nodeName: string;
  readonly stateFile: string;
  readonly backend: 'auto' | Backend;
  /** Empty: no health server. */
  readonly healthAddress: string;
  readonly exec: Exec;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  /** From 0 to 1. */
  readonly random: () => number;
  readonly log: Logger;
}

/** Parts of a plan are written one after the other, and a list that fails is tried again. */
const PASSING: readonly string[] = ['PlanIncomplete', 'PlanUnreadable'];
const PATIENCE_MS = 5_000;
/** The keeper looks at the kernel every 30 s, and each child it starts is bounded. */
const STUCK_MS = 300_000;

/** Runs until the signal aborts, and leaves the rules as they are then. Rejects when the health server cannot listen. */
export async function runApplier(parts: ApplierParts, signal: AbortSignal): Promise<void> {
  const closers: (() => unknown)[] = [];
  try {
    const stop = stopWith(signal, closers);
    const { clock, wallClock, log, nodeName, random, api, exec } = parts;
    const metrics = createApplierMetrics();
    const node = () => source.state().node;
    const report = createNodeReport({ api, nodeName, clock, wallClock, random, log, metrics, node });
    const { record, last, notes } = await openRecord({
      path: parts.stateFile,
      nodeName,
      exec,
      clock,
      now: wallClock,
    });
    for (const note of notes) log.warn({ note }, 'state file');
    const rivals = createRivalWatch(parts, found => report.sawRivals(found));
    const kernel = createKernelSide(parts, record, report, rivals, stop);
    const source: PlanSource = createPlanSource({
      api,
      nodeName,
      clock,
      random,
      log,
      wallClock: () => wallClock().getTime(),
      onChange: createLook(parts, kernel, report, () => source.state(), stop),
    });

    if (last !== undefined) {
      log.info({ plan: last.origin?.name, appliedAt: last.appliedAt }, 'last good plan of this node');
      kernel.want(renderedPlan(last, undefined));
    }
    if (parts.healthAddress !== '') {
      const server = await startHealthServer({
        address: parts.healthAddress,
        sick: () => kernel.sick(),
        notReady: () => notReady(kernel, report, source.state()),
        metrics: () => {
          metrics.readsApi(source.state().failing?.since);
          return metrics.text();
        },
      });
      closers.push(() => server.close());
      log.info({ port: server.port }, 'health server listens');
    }
    await Promise.all([
      kernel.run(stop),
      source.run(stop),
      report.run(stop),
      rivals.run(stop),
      watchBackend(parts, why => report.otherBackend(why), stop),
    ]);
  } finally {
    for (const close of closers.toReversed()) await close();
  }
}

/** A signal that ends all parts: with the one given, or when one of them fails. */
function stopWith(signal: AbortSignal, closers: (() => unknown)[]): AbortSignal {
  const stop = new AbortController();
  // Every child process and request listens to it; more than ten are no leak here.
  setMaxListeners(0, stop.signal);
  const follow = (): void => stop.abort(signal.reason);
  signal.addEventListener('abort', follow, { once: true });
  if (signal.aborted) follow();
  closers.push(
    () => signal.removeEventListener('abort', follow),
    () => stop.abort(new Error('the applier stops')),
  );
  return stop.signal;
}

interface KernelSide {
  wanted(): WantedPlan | undefined;
  want(plan: WantedPlan): void;
  /** Nothing of ours shall be here, until another plan is wanted. */
  remove(): void;
  sick(): string | undefined;
  run: Keeper<WantedPlan>['run'];
}

/** Driver and keeper, with the record of what was applied. */
function createKernelSide(
  { exec, clock, backend, log, random }: ApplierParts,
  record: ApplyRecord,
  report: NodeReport,
  rivals: RivalWatch,
  stop: AbortSignal,
): KernelSide {
  let wanted: WantedPlan | undefined;
  let noted: WantedPlan | undefined;
  let removing = false;
  let lastRan = clock.now();
  const timed = timedDriver(createDriver({ exec, clock, backend, log }), clock);
  /** Once for each plan, whichever run brought it into the kernel; again when the file could not be written. */
  const note = async (plan: WantedPlan): Promise<void> => {
    if (plan === noted) return;
    const { flush, notes, saved } = await record.applied(plan, stop);
    for (const text of notes) log[saved ? 'info' : 'warn']({ note: text }, 'plan applied');
    if (flush.deleted > 0) log.info({ deleted: flush.deleted }, 'connections flushed');
    if (saved) noted = plan;
  };
  const keeper = createKeeper<WantedPlan>({
    driver: forgetting(timed.driver, record, log),
    clock,
    random,
    onReport: async (result, occasion, plan) => {
      lastRan = clock.now();
      report.ran(result, occasion, plan, timed.lastMs() / 1000);
      if (!isProgrammed(result)) return;
      rivals.inForce(plan.plan);
      await note(plan);
    },
    onRemoval: result => report.removed(result),
  });
  return {
    wanted: () => wanted,
    want(plan) {
      // Until there was something to do nobody waited for a run.
      if (wanted === undefined) lastRan = clock.now();
      wanted = plan;
      removing = false;
      keeper.want(plan);
    },
    remove() {
      if (removing) return;
      removing = true;
      wanted = undefined;
      noted = undefined;
      rivals.nothing();
      keeper.wantNothing();
    },
    sick: () =>
      wanted !== undefined && clock.now() - lastRan > STUCK_MS
        ? 'the kernel is not looked at any more'
        : undefined,
    run: signal => keeper.run(signal),
  };
}

/** The driver, which before it removes everything sees to it that a restart brings nothing back. */
function forgetting(driver: Driver, record: ApplyRecord, log: Logger): Driver {
  return {
    ...driver,
    async remove(signal) {
      const why = await record.forget();
      if (why !== undefined) log.warn({ why }, 'the last good plan stays on disk');
      return driver.remove(signal);
    },
  };
}

/** The driver, and how many milliseconds its last run took. */
function timedDriver(driver: Driver, clock: Clock): { readonly driver: Driver; lastMs(): number } {
  let lastMs = 0;
  const timing = async <T>(work: () => Promise<T>): Promise<T> => {
    const start = clock.now();
    const result = await work();
    lastMs = clock.now() - start;
    return result;
  };
  return {
    driver: {
      apply: (tables, signal) => timing(() => driver.apply(tables, signal)),
      verify: signal => timing(() => driver.verify(signal)),
      diff: (tables, signal) => driver.diff(tables, signal),
      remove: signal => driver.remove(signal),
    },
    lastMs: () => lastMs,
  };
}

/** What is done whenever the API says something else. */
function createLook(
  { clock, log }: ApplierParts,
  kernel: KernelSide,
  report: NodeReport,
  state: () => SourceState,
  stop: AbortSignal,
): () => void {
  let doubt: { over: boolean } | undefined;
  let hadNode = true;
  /** What may be over in a moment is not spoken of at once. */
  const isYoung = (trouble: Trouble | undefined): boolean => {
    if (trouble === undefined || !PASSING.includes(trouble.reason)) {
      doubt = undefined;
      return false;
    }
    if (doubt === undefined) {
      const mine = { over: false };
      doubt = mine;
      const end = (): void => {
        mine.over = true;
        if (doubt === mine) look();
      };
      void clock.sleep(PATIENCE_MS, stop).then(end, () => {});
    }
    return !doubt.over;
  };
  const look = (): void => {
    const now = state();
    if (now.noNode && hadNode) log.warn({}, 'there is no MasqNode of this node; what is in force stays');
    hadNode = !now.noNode;
    if (now.node?.asksRemoval === true) return kernel.remove();
    const trouble = troubleOf(now);
    if (!isYoung(trouble)) report.hasTrouble(trouble);
    const next = nextPlan(now, kernel.wanted());
    if (next === undefined) return report.tell();
    log.info({ plan: next.origin?.name, contentHash: next.origin?.contentHash }, 'plan wanted');
    // What the kernel makes of it is told then.
    kernel.want(next);
  };
  return look;
}

function notReady(
  kernel: KernelSide,
  report: NodeReport,
  { noNode, failing }: SourceState,
): string | undefined {
  if (noNode) return 'there is no MasqNode of this node; what is in force stays';
  return kernel.wanted() === undefined ? (failing?.reason ?? 'no plan has come yet') : report.fault();
}
