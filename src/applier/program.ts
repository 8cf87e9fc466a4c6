// The applier as a process: the last good plan at once, then whatever the API says, kept in the kernel and reported.
import { setMaxListeners } from 'node:events';
import type { Logger } from 'pino';
import { FAMILIES } from '../cidr/address.ts';
import { shareEntries } from '../cidr/address-set.ts';
import type { Api } from '../cluster/api.ts';
import { applyObject } from '../cluster/apply.ts';
import { createRecorder } from '../cluster/events.ts';
import type { Backend } from '../kernel/backend.ts';
import type { Clock } from '../kernel/clock.ts';
import { createDriver } from '../kernel/driver.ts';
import type { Exec } from '../kernel/exec.ts';
import { type DriverReport, repairsOf } from '../kernel/report.ts';
import type { Plan } from '../planner/plan.ts';
import { renderFamily } from '../render/render.ts';
import { startHealthServer } from '../telemetry/health-server.ts';
import { watchBackend } from './backend-watch.ts';
import { createIncidents } from './incidents.ts';
import { createKeeper, type Wanted } from './keeper.ts';
import { createApplierMetrics } from './metrics.ts';
import { createPlanSource, MASQ_NODES, type SourceState } from './plan-source.ts';
import { type Applied, openRecord } from './record.ts';
import type { PlanOrigin } from './state-file.ts';
import { type NodeFacts, nodeStatus, type NodeStatus } from './status.ts';
import { createStatusWriter } from './status-writer.ts';

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

const FIELD_MANAGER = 'natoutgoing-applier';
/** Parts of a plan are written one after the other: for so long they may not fit together without a word about it. */
const INCOMPLETE_PATIENCE_MS = 5_000;
/** The keeper looks at the kernel every 30 s, and each child it starts is bounded. */
const STUCK_MS = 300_000;

interface WantedPlan extends Wanted, Applied {}

/** Runs until the signal aborts, and leaves the rules as they are then. Rejects when the health server cannot listen. */
export async function runApplier(parts: ApplierParts, signal: AbortSignal): Promise<void> {
  const { clock, wallClock, log, nodeName } = parts;
  const stop = new AbortController();
  // Every child process and request listens to it; more than ten are no leak here.
  setMaxListeners(0, stop.signal);
  const closers: (() => unknown)[] = [() => stop.abort(new Error('the applier stops'))];
  const follow = (): void => stop.abort(signal.reason);
  signal.addEventListener('abort', follow, { once: true });
  if (signal.aborted) follow();
  try {
    const metrics = createApplierMetrics();
    const driver = createDriver({ exec: parts.exec, clock, backend: parts.backend, log });
    const { record, last, notes } = await openRecord({
      path: parts.stateFile,
      nodeName,
      exec: parts.exec,
      clock,
      now: wallClock,
    });
    for (const note of notes) log.warn({ note }, 'state file');
    const facts: Changing<NodeFacts> = { generation: 0, driftRepairs: 0 };
    let lastRunAt = clock.now();
    let runBegan = clock.now();
    let wanted: WantedPlan | undefined;
    let incompleteSince: number | undefined;
    let told: NodeStatus | undefined;

    const writer = createStatusWriter({
      clock,
      random: parts.random,
      log,
      send: ({ uid, status }, over) => {
        const body = {
          apiVersion: 'natoutgoing.io/v1alpha1',
          kind: 'MasqNode',
          metadata: { name: nodeName },
          status,
        };
        const target = { collection: MASQ_NODES, name: nodeName, uid, subresource: 'status' } as const;
        return applyObject(parts.api, { ...target, fieldManager: FIELD_MANAGER, body }, over);
      },
    });
    const tell = (): void => {
      const { node } = source.state();
      if (node === undefined) return;
      facts.generation = node.generation;
      told = nodeStatus(facts, told, wallClock());
      writer.offer({ uid: node.uid, status: told });
    };
    const incidents = createIncidents({
      log,
      record: createRecorder({
        api: parts.api,
        clock,
        wallClock,
        log,
        controller: 'natoutgoing.io/applier',
        instance: nodeName,
      }),
      regarding: () => ({
        apiVersion: 'natoutgoing.io/v1alpha1',
        kind: 'MasqNode',
        name: nodeName,
        uid: source.state().node?.uid ?? '',
      }),
    });
    const keeper = createKeeper<WantedPlan>({
      driver,
      clock,
      random: parts.random,
      onReport: async (report, occasion, plan) => {
        lastRunAt = clock.now();
        metrics.ran(report, occasion, (lastRunAt - runBegan) / 1000);
        const ok = isOk(report);
        facts.report = report;
        if (ok) facts.verifiedAt = wallClock();
        if (ok && plan.origin !== undefined && facts.applied?.origin !== plan.origin) {
          facts.applied = { origin: plan.origin, at: wallClock() };
          metrics.follows(plan.origin.name, plan.origin.contentHash);
        }
        if (occasion === 'verify') facts.driftRepairs += repairsOf(report).length;
        incidents.saw(report, occasion);
        tell();
        if (ok && occasion === 'apply') await noteApplied(plan);
        runBegan = clock.now();
      },
    });
    const noteApplied = async (plan: WantedPlan): Promise<void> => {
      const { flush, notes: said } = await record.applied(plan, stop.signal);
      for (const note of said) log.info({ note }, 'plan applied');
      if (flush.deleted > 0) log.info({ deleted: flush.deleted }, 'connections flushed');
    };
    const want = (next: Applied): void => {
      const plan = sharing(wanted?.plan, next.plan);
      const tables = FAMILIES.map(family => renderFamily(plan, next.values, family));
      wanted = { ...next, plan, tables };
      runBegan = clock.now();
      keeper.want(wanted);
    };

    const look = (): void => {
      const state = source.state();
      metrics.readsApi(state.failing?.since);
      const trouble = troubleOf(state);
      const isYoung =
        trouble?.reason === 'PlanIncomplete' &&
        clock.now() - (incompleteSince ??= clock.now()) < INCOMPLETE_PATIENCE_MS;
      if (trouble?.reason !== 'PlanIncomplete') incompleteSince = undefined;
      if (isYoung) lookLater();
      else if (trouble === undefined) delete facts.trouble;
      else {
        if (facts.trouble?.message !== trouble.message)
          log.warn(trouble, 'the plan of the API cannot be followed');
        facts.trouble = trouble;
      }
      const next = nextOf(state, wanted);
      if (next !== undefined) {
        log.info({ plan: next.origin?.name, contentHash: next.origin?.contentHash }, 'plan wanted');
        want(next);
      }
      tell();
    };
    const lookLater = (): void => void clock.sleep(INCOMPLETE_PATIENCE_MS, stop.signal).then(look, () => {});
    const source = createPlanSource({
      api: parts.api,
      nodeName,
      clock,
      wallClock: () => wallClock().getTime(),
      random: parts.random,
      log,
      onChange: look,
    });

    if (last !== undefined) {
      log.info({ plan: last.origin?.name, appliedAt: last.appliedAt }, 'last good plan of this node');
      want(last);
    }
    if (parts.healthAddress !== '') {
      const server = await startHealthServer({
        address: parts.healthAddress,
        sick: () =>
          wanted !== undefined && clock.now() - lastRunAt > STUCK_MS
            ? 'the kernel is not looked at any more'
            : undefined,
        notReady: () => notReady(facts, wanted, source.state()),
        metrics: () => metrics.text(),
      });
      closers.push(() => server.close());
      log.info({ port: server.port }, 'health server listens');
    }
    const onBackend = (other: string | undefined): void => {
      if (facts.otherBackend === other) return;
      if (other === undefined) delete facts.otherBackend;
      else facts.otherBackend = other;
      tell();
    };
    await Promise.all([
      keeper.run(stop.signal),
      source.run(stop.signal),
      writer.run(stop.signal),
      watchBackend(parts, onBackend, stop.signal),
    ]);
  } finally {
    signal.removeEventListener('abort', follow);
    for (const close of closers.toReversed()) await close();
  }
}

type Changing<T> = { -readonly [K in keyof T]: T[K] };

const isOk = (report: DriverReport): boolean => Object.values(report.families).every(family => family.ok);

/** With the entries of the plan before it where they are equal: whoever compares by identity sees what changed. */
function sharing(before: Plan | undefined, plan: Plan): Plan {
  if (before === undefined) return plan;
  const sets = [...plan.sets.values()].map(set => {
    const old = before.sets.get(set.id);
    if (old === undefined) return set;
    const [a, b] = [
      shareEntries(old.addresses[4], set.addresses[4]),
      shareEntries(old.addresses[6], set.addresses[6]),
    ];
    return { id: set.id, addresses: { 4: a, 6: b } };
  });
  return { ...plan, sets: new Map(sets.map(set => [set.id, set])) };
}

/** The plan of the API, when it is whole and another one than is wanted already. */
function nextOf({ plan }: SourceState, wanted: WantedPlan | undefined): Applied | undefined {
  if (plan === undefined || !plan.joined.ok) return undefined;
  const { name, generation, joined } = plan;
  const origin: PlanOrigin = { name, generation, contentHash: joined.contentHash };
  const key = (it: Applied): string =>
    JSON.stringify([it.origin?.name, it.origin?.contentHash, [...it.values]], bigintText);
  const next: Applied = { plan: joined.plan, values: joined.values, origin };
  return wanted !== undefined && key(wanted) === key(next) ? undefined : next;
}

const bigintText = (_key: string, value: unknown): unknown =>
  typeof value === 'bigint' ? value.toString() : value;

const REASONS = {
  Incomplete: 'PlanIncomplete',
  NotUnderstood: 'PlanNotUnderstood',
  Invalid: 'PlanInvalid',
} as const;

function troubleOf({ plan }: SourceState): { readonly reason: string; readonly message: string } | undefined {
  if (plan === undefined || plan.joined.ok) return undefined;
  const { why, reason } = plan.joined;
  return { reason: REASONS[why], message: `plan ${plan.name} cannot be followed: ${reason}` };
}

function notReady(facts: NodeFacts, wanted: WantedPlan | undefined, state: SourceState): string | undefined {
  if (facts.trouble !== undefined) return facts.trouble.message;
  if (wanted === undefined) {
    return state.noNode
      ? 'there is no MasqNode of this node yet'
      : (state.failing?.reason ?? 'no plan has come yet');
  }
  return facts.report !== undefined && isOk(facts.report) ? undefined : 'the kernel does not hold the plan';
}
