// One run of the operator: what the watches know → plans → the writes that are missing → what policies are told.
// Level-triggered and without a memory that counts: every run looks at everything, and caches only save time.
import type { Snapshot } from '../api/model.ts';
import type { RecordedEvent } from '../cluster/events.ts';
import type { Clock } from '../kernel/clock.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { PlanOptions } from '../planner/assemble.ts';
import { type ClusterPlan, planCluster } from '../planner/plan-cluster.ts';
import { type Desired, type DesiredCache, desiredObjects } from './desired.ts';
import { type Gathered, gather, STALE_AFTER_MS, type Watched } from './gather.ts';
import { createKnown } from './known.ts';
import { createRefusalTeller } from './refusals.ts';
import { createRetries } from './retries.ts';
import { createSnapshotReader, type ReadSnapshot } from './snapshot.ts';
import { type CalicoGroup, projectOf } from './sources.ts';
import { createStatuses, type SendStatus } from './statuses.ts';
import { carryOut, type Send, type WriterParts, type WriteReport } from './writer.ts';
import { writesFor } from './writes.ts';

export interface ReconcilerParts {
  readonly watched: Watched;
  readonly send: Send;
  readonly sendStatus: SendStatus;
  readonly record: (event: RecordedEvent) => void;
  readonly planOptions: PlanOptions;
  readonly demandedGroup?: CalicoGroup;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  readonly log: KernelLog;
  /** Whether something changed since the present run began. */
  readonly isWoken: () => boolean;
  readonly onWrite: WriterParts['onWrite'];
}

export interface RunReport {
  readonly ready: boolean;
  /** Sentences: what is waited for, what fails. */
  readonly troubles: readonly string[];
  readonly written: number;
  readonly plans: number;
  readonly nodes: number;
  readonly policies: number;
  readonly refused: number;
  /** Milliseconds after which to run again though nothing changed. */
  readonly againMs?: number;
}

type Ready = Extract<Gathered, { ready: true }>;

/** So many failed writes are told. */
const TOLD_FAILURES = 10;
/** A change waits so long at most for writes that it has no part in. */
const STALENESS_MS = 50;
/** For how long statuses may wait for a stream of changes to pause. */
const STATUS_PATIENCE_MS = 1_000;

/** A reconciler with caches of its own. `run` rejects only when aborted. */
export function createReconciler(parts: ReconcilerParts): { run(signal: AbortSignal): Promise<RunReport> } {
  const { watched, clock, wallClock, log } = parts;
  const read = createSnapshotReader();
  const now = (): number => clock.now();
  const known = { masqplans: createKnown(now), masqnodes: createKnown(now) };
  const retries = createRetries(now);
  const tellStatuses = createStatuses(parts);
  const tellRefusals = createRefusalTeller(parts.record, log);
  let planned: { readonly read: ReadSnapshot; readonly plan: ClusterPlan } | undefined;
  let desiredCache: DesiredCache | undefined;
  let group: CalicoGroup | undefined;
  let statusAt = Number.NEGATIVE_INFINITY;

  const planFor = (snapshot: ReadSnapshot): ClusterPlan => {
    // Equal snapshots are the same object: a report of a node changes nothing that is planned with.
    const plan =
      planned?.read.snapshot === snapshot.snapshot
        ? planned.plan
        : planCluster(snapshot.snapshot, parts.planOptions, planned?.plan.cache);
    planned = { read: snapshot, plan };
    return plan;
  };

  const gatherNow = (): Gathered =>
    gather(watched, {
      now: wallClock().getTime(),
      ...given('demanded', parts.demandedGroup),
      ...given('previous', group),
    });

  /**
   * Whether what is planned with is not any more what it was, so that the rest of a run is better left. Asked seldom,
   * and not of what nodes report: our own writes come back as changes, and a run each would cost more than they do.
   */
  const staleness = (planned: Snapshot): (() => boolean) => {
    let askedAt = clock.now();
    return () => {
      if (!parts.isWoken() || clock.now() - askedAt < STALENESS_MS) return false;
      askedAt = clock.now();
      const gathered = gatherNow();
      return !gathered.ready || read(gathered.raw).snapshot !== planned;
    };
  };

  const write = (
    gathered: Ready,
    desired: Desired,
    isStale: () => boolean,
    signal: AbortSignal,
  ): Promise<WriteReport> => {
    const actual = {
      masqPlans: known.masqplans.over(gathered.masqPlans),
      masqNodes: known.masqnodes.over(gathered.masqNodes),
    };
    const writerParts = { send: parts.send, known, project: PROJECT, retries, onWrite: parts.onWrite };
    return carryOut(writesFor(desired, actual), writerParts, isStale, signal);
  };

  const againAfter = ({ interrupted }: WriteReport): number | undefined => {
    const retry = retries.nextMs();
    if (interrupted && retry === undefined) return 0;
    return soonest([retry, known.masqplans.doubtMs(), known.masqnodes.doubtMs()]);
  };

  return {
    async run(signal) {
      const gathered = gatherNow();
      if (!gathered.ready) return waiting(gathered.waitingFor);
      if (group !== gathered.group) log.info({ group: gathered.group }, 'API group of Calico chosen');
      group = gathered.group;
      const snapshot = read(gathered.raw);
      const plan = planFor(snapshot);
      const { desired, cache } = desiredObjects(plan, gathered.raw.nodes, desiredCache);
      desiredCache = cache;
      const isStale = staleness(snapshot.snapshot);
      const report = await write(gathered, desired, isStale, signal);
      const writeAgain = againAfter(report);
      let statusAgain: number | undefined = STATUS_PATIENCE_MS;
      const troubles = [...gathered.stale, ...firstOf(report.failures)];
      if (!parts.isWoken() || clock.now() - statusAt > STATUS_PATIENCE_MS) {
        tellRefusals(snapshot.refused, gathered.group);
        const input = { policies: gathered.raw.policies, masqNodes: gathered.masqNodes, read: snapshot };
        statusAgain = await tellStatuses({ ...input, planned: plan, desired, troubles, isStale }, signal);
        statusAt = clock.now();
      }
      return {
        ready: true,
        troubles,
        written: report.written,
        plans: desired.plans.length,
        nodes: desired.nodes.length,
        policies: gathered.raw.policies.size,
        refused: snapshot.refused.length,
        ...given(
          'againMs',
          soonest([writeAgain, statusAgain, gathered.failing ? STALE_AFTER_MS : undefined]),
        ),
      };
    },
  };
}

const PROJECT: WriterParts['project'] = {
  masqplans: projectOf('masqPlans'),
  masqnodes: projectOf('masqNodes'),
};

/** Thousands of nodes may fail alike. */
const firstOf = (failures: readonly string[]): readonly string[] =>
  failures.length <= TOLD_FAILURES
    ? failures
    : [
        ...failures.toSorted().slice(0, TOLD_FAILURES),
        `and ${failures.length - TOLD_FAILURES} more writes failed`,
      ];

const given = <K extends string, T>(key: K, value: T | undefined): { readonly [P in K]?: T } =>
  (value === undefined ? {} : { [key]: value }) as { readonly [P in K]?: T };

const soonest = (delays: readonly (number | undefined)[]): number | undefined => {
  const known = delays.filter(delay => delay !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
};

const waiting = (troubles: readonly string[]): RunReport => ({
  ready: false,
  troubles,
  written: 0,
  plans: 0,
  nodes: 0,
  policies: 0,
  refused: 0,
});
