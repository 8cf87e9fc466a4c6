// What is known of this node's kernel and said of it: in the status of its MasqNode, in metrics, in Events.
import type { Logger } from 'pino';
import { API_VERSION, MASQ_NODES, OWN_GROUP } from '../api/own-group.ts';
import type { Api } from '../cluster/api.ts';
import { applyObject } from '../cluster/apply.ts';
import { createRecorder } from '../cluster/events.ts';
import type { CleanupReport } from '../kernel/cleanup.ts';
import type { Clock } from '../kernel/clock.ts';
import { type DriverReport, repairsOf } from '../kernel/report.ts';
import { createIncidents } from './incidents.ts';
import type { Occasion } from './keeper.ts';
import type { ApplierMetrics } from './metrics.ts';
import type { MasqNodeFacts } from './plan-source.ts';
import type { RivalsByFamily } from './rival-watch.ts';
import { type NodeFacts, nodeStatus, type NodeStatus } from './status.ts';
import { createStatusWriter } from './status-writer.ts';
import type { Trouble, WantedPlan } from './wanted-plan.ts';

export interface NodeReportParts {
  readonly api: Api;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  readonly random: () => number;
  readonly log: Logger;
  readonly metrics: ApplierMetrics;
  /** The MasqNode as it is known now; undefined: there is none to tell. */
  readonly node: () => MasqNodeFacts | undefined;
}

export interface NodeReport {
  /** The driver ran; `seconds` is how long. */
  ran(report: DriverReport, occasion: Occasion, plan: WantedPlan, seconds: number): void;
  /** Everything of ours was removed, or was tried to be. */
  removed(report: CleanupReport): void;
  /** The plan of the API cannot be followed, or can again; `tell` says so. */
  hasTrouble(trouble: Trouble | undefined): void;
  /** The chosen backend is not the one of others, or is. */
  otherBackend(why: string | undefined): void;
  /** Rules of others were looked for. */
  sawRivals(rivals: RivalsByFamily): void;
  /** Something about the MasqNode changed: it may have to be told anew. */
  tell(): void;
  /** Why this node is not as it shall be; undefined: it is. */
  fault(): string | undefined;
  /** Writes the status until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
}

const FIELD_MANAGER = 'natoutgoing-applier';

type Changing<T> = { -readonly [K in keyof T]: T[K] };

export const isProgrammed = (report: DriverReport): boolean =>
  Object.values(report.families).every(family => family.ok);

export function createNodeReport(parts: NodeReportParts): NodeReport {
  const { api, nodeName, clock, wallClock, log, metrics } = parts;
  const facts: Changing<NodeFacts> = { generation: 0, driftRepairs: 0 };
  let told: NodeStatus | undefined;
  const regarding = () => ({
    apiVersion: API_VERSION,
    kind: 'MasqNode',
    name: nodeName,
    uid: parts.node()?.uid ?? '',
  });
  const record = createRecorder({
    api,
    clock,
    wallClock,
    log,
    controller: `${OWN_GROUP}/applier`,
    instance: nodeName,
  });
  const incidents = createIncidents({ log, record, regarding });
  const writer = createStatusWriter({
    clock,
    random: parts.random,
    log,
    send: ({ uid, status }, signal) => {
      const node = parts.node();
      const body = { apiVersion: API_VERSION, kind: 'MasqNode', metadata: { name: nodeName }, status };
      const target = { collection: MASQ_NODES, name: nodeName, subresource: 'status', uid } as const;
      // On a status the server looks at no uid: the version alone keeps it from a MasqNode that was made anew.
      const lock = node?.uid === uid ? { lock: node.version } : {};
      return applyObject(api, { ...target, ...lock, fieldManager: FIELD_MANAGER, body }, signal);
    },
  });
  const set = <K extends keyof NodeFacts>(key: K, value: NodeFacts[K] | undefined): void => {
    if (value === undefined) delete facts[key];
    else facts[key] = value;
  };
  const tell = (): void => {
    const node = parts.node();
    // At the very start there is nothing to say, and the first thing that is would have to wait for it.
    const isNews = [facts.report, facts.trouble, facts.removal].some(it => it !== undefined);
    if (node === undefined || !isNews) return;
    told = nodeStatus(facts, told, wallClock());
    writer.offer({ uid: node.uid, status: told });
  };
  return {
    tell,
    ran(report, occasion, plan, seconds) {
      facts.report = report;
      delete facts.removal;
      if (isProgrammed(report)) {
        facts.verifiedAt = wallClock();
        nowInForce(facts, plan, wallClock());
        if (plan.origin !== undefined) metrics.follows(plan.origin.name, plan.origin.contentHash);
      }
      metrics.ran(report, occasion, seconds, facts.verifiedAt);
      if (occasion === 'verify') facts.driftRepairs += repairsOf(report).length;
      incidents.saw(report, occasion);
      tell();
    },
    removed(report) {
      for (const key of ['applied', 'report', 'verifiedAt', 'trouble', 'rivals'] as const) delete facts[key];
      const { ok, removed, failed } = report;
      log[ok ? 'info' : 'warn']({ removed: removed.length, failed }, 'everything of ours was to be removed');
      facts.removal = report;
      metrics.followsNothing();
      facts.generation = parts.node()?.generation ?? 0;
      tell();
    },
    hasTrouble(trouble) {
      if (trouble !== undefined && facts.trouble?.message !== trouble.message) {
        log.warn(trouble, 'the plan of the API cannot be followed');
      }
      set('trouble', trouble);
    },
    otherBackend(why) {
      set('otherBackend', why);
      tell();
    },
    sawRivals(rivals) {
      facts.rivals = rivals;
      metrics.sawRivals(rivals);
      incidents.sawRivals(rivals);
      tell();
    },
    fault() {
      if (facts.removal !== undefined) return 'everything of ours is removed, as the MasqNode asks';
      if (facts.trouble !== undefined) return facts.trouble.message;
      const holds = facts.report !== undefined && isProgrammed(facts.report);
      return holds ? undefined : 'the kernel does not hold the plan';
    },
    run: signal => writer.run(signal),
  };
}

/** The generation counts when its values are in force, not when it was seen. */
function nowInForce(facts: Changing<NodeFacts>, plan: WantedPlan, at: Date): void {
  if (plan.nodeGeneration !== undefined) facts.generation = plan.nodeGeneration;
  if (plan.origin === undefined || facts.applied?.origin === plan.origin) return;
  facts.applied = { origin: plan.origin, at };
}
