// The driver: "here is what I want; make it so". It finds the backend, runs both families side by side, and takes away
// what is ours in the other backend once the right one is programmed.
import type { Family } from '../cidr/address.ts';
import { withoutRandomFully } from '../render/older-tools.ts';
import type { FamilyTables } from '../render/tables.ts';
import {
  type Backend,
  type Capabilities,
  type Detection,
  detectBackend,
  findToolsets,
  probe,
  type Toolset,
} from './backend.ts';
import type { Difference } from './changes.ts';
import { cleanup, type CleanupReport } from './cleanup.ts';
import type { Clock } from './clock.ts';
import { KernelError, messageOf } from './errors.ts';
import type { Exec } from './exec.ts';
import { createFamilyDriver, type FamilyDriver } from './family.ts';
import type { KernelLog } from './log.ts';
import { DEFAULT_MOVE_LIMIT, type MoveLimit } from './moves.ts';
import { findOwnRules, namesOf, removeOwnRules } from './remove.ts';
import {
  countsOf,
  type DriverReport,
  familyName,
  type FamilyName,
  type FamilyReport,
  NO_WRITES,
  type ReportedError,
  reportedError,
} from './report.ts';
import { type RunContext, runContext } from './run.ts';

export interface DriverOptions {
  readonly exec: Exec;
  readonly clock: Clock;
  readonly backend: 'auto' | Backend;
  readonly log: KernelLog;
  /** Milliseconds for which a busy xtables lock is waited for, altogether. Default 30 s. */
  readonly lockWaitMs?: number;
  /** Milliseconds after which one run of a tool is killed. Default 30 s. */
  readonly childTimeoutMs?: number;
  readonly moveLimit?: MoveLimit;
}

export interface Driver {
  /** Makes the kernel hold these tables and nothing else of ours, per family. Rejects only when aborted. */
  apply(tables: readonly FamilyTables[], signal?: AbortSignal): Promise<DriverReport>;
  /** Reads, compares with the tables of the last apply, repairs. Without an apply before, it does nothing. */
  verify(signal?: AbortSignal): Promise<DriverReport>;
  /** Removes everything of ours, both backends and families; nothing is wanted then. Rejects only when aborted. */
  remove(signal?: AbortSignal): Promise<CleanupReport>;
  /** Reads and compares; writes nothing. Rejects only when aborted. */
  diff(tables: readonly FamilyTables[], signal?: AbortSignal): Promise<DriverDiff>;
}

export interface DriverDiff {
  readonly backend?: Backend;
  readonly families: {
    readonly [F in FamilyName]?: {
      readonly differences: readonly Difference[];
      readonly error?: ReportedError;
    };
  };
}

/** How often a changed backend is looked for, in milliseconds: it changes by a person's hand, if ever. */
const DETECT_EVERY_MS = 300_000;

export function createDriver(options: DriverOptions): Driver {
  const { clock, log, moveLimit = DEFAULT_MOVE_LIMIT } = options;
  const families = { 4: createFamilyDriver(clock, moveLimit), 6: createFamilyDriver(clock, moveLimit) };
  const fitted = new WeakMap<FamilyTables, FamilyTables>();
  let abilities: { [F in Family]?: Capabilities } = {};
  let wanted: readonly FamilyTables[] = [];
  let detection: Detection | undefined;
  let detectedAt = 0;
  let othersCleaned = false;
  let last: Promise<unknown> = Promise.resolve();

  /** One at a time: two runs would each plan on what the other changes. */
  function oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    const result = last.then(work, work);
    last = result.catch(() => {});
    return result;
  }

  const contextOf = (signal: AbortSignal | undefined): RunContext => {
    const { exec, lockWaitMs, childTimeoutMs } = options;
    return runContext({ exec, clock, lockWaitMs, childTimeoutMs, signal });
  };

  async function toolsFor(context: RunContext, lookAgain: boolean): Promise<Detection> {
    const isOld = options.backend === 'auto' && clock.now() - detectedAt >= DETECT_EVERY_MS;
    if (detection !== undefined && !(lookAgain && isOld)) return detection;
    const found =
      options.backend === 'auto' ? await detectBackend(context) : await chosen(context, options.backend);
    detectedAt = clock.now();
    if (detection?.tools.backend !== found.tools.backend) {
      log.info({ backend: found.tools.backend, why: found.why }, 'iptables backend chosen');
      families[4].forget();
      families[6].forget();
      othersCleaned = false;
      abilities = {};
    }
    detection = found;
    return found;
  }

  /**
   * What this host's tools can be given: the same object for the same tables, since the belief goes by identity. Tools
   * that cannot be asked are given the tables as they are, and the family says what is wrong with them.
   */
  async function fitting(context: RunContext, tools: Toolset, tables: FamilyTables): Promise<FamilyTables> {
    const { family } = tables;
    if (abilities[family] === undefined) {
      try {
        abilities[family] = await probe(context, tools, family);
      } catch {
        context.signal?.throwIfAborted();
      }
    }
    if (abilities[family]?.randomFully !== false) return tables;
    const fit = fitted.get(tables) ?? withoutRandomFully(tables);
    fitted.set(tables, fit);
    return fit;
  }

  /** The family's own report, with a note when the tables had to be fitted. */
  const noting = (family: Family, report: FamilyReport): FamilyReport =>
    abilities[family]?.randomFully === false
      ? {
          ...report,
          warnings: [...report.warnings, 'this iptables does not know --random-fully; --random is used'],
        }
      : report;

  async function run(
    signal: AbortSignal | undefined,
    lookAgain: boolean,
    work: (
      driver: FamilyDriver,
      context: RunContext,
      tools: Toolset,
      t: FamilyTables,
    ) => Promise<FamilyReport>,
  ): Promise<DriverReport> {
    const context = contextOf(signal);
    let found: Detection;
    try {
      found = await toolsFor(context, lookAgain);
    } catch (error) {
      signal?.throwIfAborted();
      return reportOf(wanted.map(tables => [tables, failedReport(tables, reportedError(error))]));
    }
    const { tools } = found;
    const settled = await Promise.allSettled(
      wanted.map(async tables => {
        const fit = await fitting(context, tools, tables);
        return noting(tables.family, await work(families[tables.family], context, tools, fit));
      }),
    );
    const reports: (readonly [FamilyTables, FamilyReport])[] = [];
    settled.forEach((result, i) => {
      if (result.status === 'rejected') throw result.reason;
      reports.push([wanted[i] as FamilyTables, result.value]);
    });
    if (!othersCleaned && reports.every(([, report]) => report.ok)) {
      await cleanOthers(context, tools, reports);
    }
    return reportOf(reports, found);
  }

  /** Rules of ours in the other backend would be asked, too. Sets are shared, so those that it held are tried anew. */
  async function cleanOthers(
    context: RunContext,
    tools: Toolset,
    reports: (readonly [FamilyTables, FamilyReport])[],
  ): Promise<void> {
    const others = (await findToolsets(context)).filter(({ backend }) => backend !== tools.backend);
    for (const [i, [tables, report]] of reports.entries()) {
      for (const other of others) {
        const { removed, warnings } = await cleanOther(context, other, tables);
        if (removed.length + warnings.length === 0) continue;
        const pendingDestroys = await families[tables.family].removePending(context, tools, tables);
        const more = { changed: true, warnings: [...report.warnings, ...warnings], pendingDestroys };
        reports[i] = [tables, { ...report, ...more }];
      }
    }
    othersCleaned = true;
  }

  async function cleanOther(
    context: RunContext,
    other: Toolset,
    tables: FamilyTables,
  ): Promise<{ readonly removed: readonly string[]; readonly warnings: readonly string[] }> {
    try {
      const found = await findOwnRules(context, other, tables.family);
      if (namesOf(found).length === 0) return { removed: [], warnings: [] };
      const { removed, failed } = await removeOwnRules(context, other, tables.family, found);
      log.info({ backend: other.backend, removed }, 'rules of ours removed from the other iptables backend');
      const left = failed.map(({ object, message }) => `${object} in backend ${other.backend}: ${message}`);
      return { removed, warnings: left };
    } catch (error) {
      context.signal?.throwIfAborted();
      const message = `rules in backend ${other.backend} could not be removed: ${messageOf(error)}`;
      return { removed: [], warnings: [message] };
    }
  }

  return {
    apply: (tables, signal) =>
      oneAtATime(async () => {
        wanted = tables;
        return run(signal, false, (driver, context, tools, t) => driver.apply(context, tools, t));
      }),
    verify: signal =>
      oneAtATime(() => run(signal, true, (driver, context, tools, t) => driver.verify(context, tools, t))),
    remove: signal =>
      oneAtATime(() => {
        const { exec, lockWaitMs } = options;
        wanted = [];
        families[4].forget();
        families[6].forget();
        const parts = {
          exec,
          clock,
          log,
          dryRun: false,
          ...(lockWaitMs === undefined ? {} : { lockWaitMs }),
        };
        return cleanup(parts, signal);
      }),
    diff: (tables, signal) =>
      oneAtATime(async () => {
        const context = contextOf(signal);
        const results: [FamilyName, { differences: readonly Difference[]; error?: ReportedError }][] = [];
        for (const t of tables) {
          try {
            const { tools } = await toolsFor(context, false);
            const fit = await fitting(context, tools, t);
            const differences = await families[t.family].diff(context, tools, fit);
            results.push([familyName(t.family), { differences }]);
          } catch (error) {
            signal?.throwIfAborted();
            results.push([familyName(t.family), { differences: [], error: reportedError(error) }]);
          }
        }
        return {
          ...(detection === undefined ? {} : { backend: detection.tools.backend }),
          families: Object.fromEntries(results),
        };
      }),
  };
}

async function chosen(context: RunContext, backend: Backend): Promise<Detection> {
  const tools = (await findToolsets(context)).find(toolset => toolset.backend === backend);
  if (tools !== undefined) return { tools, why: 'set by option' };
  throw new KernelError(`iptables with backend ${backend} is not installed`, {
    tool: `iptables-${backend}`,
    args: ['--version'],
    code: null,
    stderr: '',
    kind: 'not-found',
  });
}

const failedReport = (tables: FamilyTables, error: ReportedError): FamilyReport => ({
  ok: false,
  changed: false,
  error,
  ...countsOf(tables),
  writes: NO_WRITES,
  repairs: [],
  foreignAbove: [],
  pendingDestroys: [],
  warnings: [],
});

const reportOf = (
  reports: readonly (readonly [FamilyTables, FamilyReport])[],
  found?: Detection,
): DriverReport => ({
  ...(found === undefined ? {} : { backend: found.tools.backend, why: found.why }),
  changed: reports.some(([, report]) => report.changed),
  families: Object.fromEntries(reports.map(([tables, report]) => [familyName(tables.family), report])),
});
