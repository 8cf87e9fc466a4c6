// What this node was last told to do, remembered over runs in a file, and the flush of connections that a new plan
// judges otherwise.
import type { Clock } from '../kernel/clock.ts';
import type { Exec } from '../kernel/exec.ts';
import type { NodeValues, Plan } from '../planner/plan.ts';
import { flushChanged, type FlushReport } from './flush.ts';
import { type AppliedState, type PlanOrigin, readState, removeState, writeState } from './state-file.ts';

export interface Applied {
  readonly plan: Plan;
  readonly values: NodeValues;
  readonly origin?: PlanOrigin;
}

export interface RecordParts {
  readonly path: string;
  readonly nodeName: string;
  readonly exec: Exec;
  readonly clock: Clock;
  /** The time of day, for the file. */
  readonly now: () => Date;
}

export interface ApplyRecord {
  /**
   * Call it when the kernel holds the plan. Flushes the connections that policies with FlushChanged ask for, then
   * notes the plan. `notes` are sentences for a person. Not `saved`: the file could not be written; to be called again.
   */
  applied(
    applied: Applied,
    signal?: AbortSignal,
  ): Promise<{ readonly flush: FlushReport; readonly notes: readonly string[]; readonly saved: boolean }>;
  /** Nothing is in force any more, also for a later run. Why the file stays is one sentence; undefined: it is gone. */
  forget(): Promise<string | undefined>;
}

/** Reads the record of an earlier run, whose state is `last`. A file that is of no use is the same as none. */
export async function openRecord(parts: RecordParts): Promise<{
  readonly record: ApplyRecord;
  readonly last?: AppliedState;
  readonly notes: readonly string[];
}> {
  const { path, nodeName, exec, clock, now } = parts;
  const read = await readState(path, nodeName);
  let before: Applied | undefined = read.ok ? read.state : undefined;
  const record: ApplyRecord = {
    async applied(applied, signal) {
      const flush = await flushChanged({
        before: before && { plan: before.plan, node: { values: before.values } },
        after: { plan: applied.plan, node: { values: applied.values } },
        exec,
        clock,
        ...(signal === undefined ? {} : { signal }),
      });
      before = applied;
      const { plan, values, origin } = applied;
      const state = { appliedAt: now().toISOString(), nodeName, plan, values };
      const written = await writeState(path, origin === undefined ? state : { ...state, origin });
      return {
        flush,
        saved: written.ok,
        notes: [...flushNotes(flush, applied.plan), ...(written.ok ? [] : [`warning: ${written.reason}`])],
      };
    },
    async forget() {
      before = undefined;
      const removed = await removeState(path);
      return removed.ok ? undefined : removed.reason;
    },
  };
  return {
    record,
    ...(read.ok ? { last: read.state } : {}),
    notes: read.ok || read.missing ? [] : [`warning: ${read.reason}; it is not used`],
  };
}

function flushNotes(flush: FlushReport, plan: Plan): readonly string[] {
  const asked = plan.policies.some(policy => policy.connectionPolicy === 'FlushChanged');
  return [
    ...(flush.notLooked === 'unknownBefore' && asked
      ? ['note: what was in force before is not known, so no connection is flushed']
      : []),
    ...flush.perPolicy.map(
      ({ policy, deleted }) => `flushed: ${deleted} connections whose verdict policy ${policy} changed`,
    ),
    ...flush.skipped.map(({ reason, entries }) => `note: ${entries} connections are left (${reason})`),
    ...flush.errors.map(error => `warning: connections could not be flushed: ${error.message}`),
  ];
}
