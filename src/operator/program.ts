// The operator as a process: watches always, plans and writes while it leads.
import type { Logger } from 'pino';
import { API_VERSION, LEASE_NAME, OWN_GROUP } from '../api/own-group.ts';
import type { Api } from '../cluster/api.ts';
import { applyObject, deleteObject } from '../cluster/apply.ts';
import type { Endpoint } from '../cluster/endpoint.ts';
import { createRecorder } from '../cluster/events.ts';
import { fenced } from '../cluster/fence.ts';
import { createHttpsApi } from '../cluster/https.ts';
import { type Leadership, runLeading } from '../cluster/lease.ts';
import { limited } from '../cluster/rate-limit.ts';
import { systemClock } from '../kernel/clock.ts';
import type { PlanOptions } from '../planner/assemble.ts';
import { startHealthServer } from '../telemetry/health-server.ts';
import { createLoop } from './loop.ts';
import { createOperatorMetrics } from './metrics.ts';
import { MasqOperator } from './operator.ts';
import { createReconciler, type RunReport } from './reconcile.ts';
import type { CalicoGroup } from './sources.ts';
import type { SendStatus } from './statuses.ts';
import type { Send } from './writer.ts';

export interface OperatorOptions {
  readonly endpoint: Endpoint;
  /** Of the Lease. */
  readonly namespace: string;
  /** Milliseconds without a word of the leader after which another one takes over. */
  readonly leaseMs: number;
  /** Of this process; told in the Lease. */
  readonly identity: string;
  readonly planOptions: PlanOptions;
  readonly demandedGroup?: CalicoGroup;
  /** Empty: no health server. */
  readonly healthAddress: string;
  readonly log: Logger;
}

export const FIELD_MANAGER = 'natoutgoing-operator';
const RATE = { perSecond: 100, burst: 200 };
/** Between two runs: long enough to fold a burst, short enough that nobody waits. */
const MIN_INTERVAL_MS = 20;
/** A run makes thousands of writes at most, of which each is bounded in time. */
const STUCK_MS = 900_000;
const COLLECTION = `/apis/${API_VERSION}`;

/** Runs until the signal aborts. Rejects when the health server cannot listen. */
export async function runOperator(options: OperatorOptions, signal: AbortSignal): Promise<void> {
  const { endpoint, log } = options;
  const closers: (() => unknown)[] = [];
  try {
    const https = createHttpsApi(endpoint);
    closers.push(() => https.close());
    let leadership: Leadership | undefined;
    const leads = (): boolean => leadership?.isValid() === true;
    const api = limited(https, RATE, systemClock);
    const writing = limited(fenced(https, leads), RATE, systemClock);
    const metrics = createOperatorMetrics();
    let last: RunReport | undefined;
    let runBegan = Number.POSITIVE_INFINITY;
    let running: Promise<unknown> = Promise.resolve();

    const operator = new MasqOperator({
      api,
      url: endpoint.url,
      clock: systemClock,
      random: Math.random,
      log,
      onChange: () => loop.wake(),
    });
    const reconciler = createReconciler({
      watched: operator.watched,
      ...sendersOver(writing),
      record: recorderOf(writing, options),
      planOptions: options.planOptions,
      ...(options.demandedGroup === undefined ? {} : { demandedGroup: options.demandedGroup }),
      clock: systemClock,
      wallClock: () => new Date(),
      log,
      isWoken: () => loop.isWoken(),
      onWrite: metrics.onWrite,
    });
    const loop = createLoop({
      clock: systemClock,
      minIntervalMs: MIN_INTERVAL_MS,
      work: async () => {
        metrics.leads(leads());
        if (leadership === undefined || !leadership.isValid()) return undefined;
        const start = systemClock.now();
        runBegan = start;
        const run = runOnce(reconciler, leadership, log);
        running = run;
        const report = await run;
        runBegan = Number.POSITIVE_INFINITY;
        if (report === undefined) return undefined;
        metrics.ran(report, (systemClock.now() - start) / 1000);
        tellChanges(last, report, log);
        last = report;
        return report.againMs;
      },
    });

    if (options.healthAddress !== '') {
      const server = await startHealthServer({
        address: options.healthAddress,
        sick: () => (systemClock.now() - runBegan > STUCK_MS ? 'a run does not end' : undefined),
        // A replica that waits for its turn is as ready as it can be.
        notReady: () =>
          leads() && last?.ready !== true ? (last?.troubles.join('; ') ?? 'starting') : undefined,
        metrics: () => metrics.text(),
      });
      closers.push(() => server.close());
      log.info({ port: server.port }, 'health server listens');
    }
    await operator.start();
    closers.push(
      () => operator.ended(),
      () => operator.stop(),
    );
    const leading = runLeading(
      {
        api: https,
        namespace: options.namespace,
        name: LEASE_NAME,
        identity: options.identity,
        // As Kubernetes' own controllers have it: 15, 10 and 2 seconds.
        times: {
          lease: options.leaseMs,
          renew: (options.leaseMs * 2) / 3,
          retry: (options.leaseMs * 2) / 15,
        },
        clock: systemClock,
        wallClock: () => new Date(),
        log,
        onLeading(gained) {
          leadership = gained;
          loop.wake();
          // The lease is given back when the last write of this leadership has ended.
          return new Promise(resolve => {
            const ended = (): void => resolve();
            gained.signal.addEventListener('abort', () => void running.then(ended, ended), { once: true });
          });
        },
      },
      signal,
    );
    await Promise.all([loop.run(signal), leading]);
  } finally {
    for (const close of closers.toReversed()) await close();
  }
}

/** Undefined when leadership ended meanwhile. */
async function runOnce(
  reconciler: ReturnType<typeof createReconciler>,
  leadership: Leadership,
  log: Logger,
): Promise<RunReport | undefined> {
  try {
    return await reconciler.run(leadership.signal);
  } catch (error) {
    if (!leadership.signal.aborted) throw error;
    log.info({ why: String(leadership.signal.reason) }, 'the run was broken off');
    return undefined;
  }
}

/** Troubles are logged when they come and when they go, not in every run. */
function tellChanges(last: RunReport | undefined, now: RunReport, log: Logger): void {
  if (now.written > 0)
    log.info({ written: now.written, plans: now.plans, nodes: now.nodes }, 'plans written');
  if (JSON.stringify(last?.troubles ?? []) === JSON.stringify(now.troubles)) return;
  if (now.troubles.length > 0)
    log.warn({ troubles: now.troubles }, now.ready ? 'something is wrong' : 'waiting; nothing is written');
  else log.info({}, 'nothing is wrong any more');
}

function sendersOver(api: Api): { readonly send: Send; readonly sendStatus: SendStatus } {
  return {
    send: async (write, signal) => {
      const collection = `${COLLECTION}/${write.plural}`;
      if (write.verb === 'delete') {
        const deleted = await deleteObject(api, { collection, name: write.name, uid: write.uid }, signal);
        return deleted.result === 'done'
          ? { result: 'done', object: { metadata: { name: write.name } } }
          : deleted;
      }
      const { name, body } = write.object;
      const lock = write.lock === undefined ? {} : { lock: write.lock };
      return applyObject(api, { collection, name, fieldManager: FIELD_MANAGER, body, ...lock }, signal);
    },
    sendStatus: ({ name, uid, lock }, status, signal) => {
      const body = { apiVersion: API_VERSION, kind: 'MasqPolicy', metadata: { name }, status };
      return applyObject(
        api,
        {
          collection: `${COLLECTION}/masqpolicies`,
          name,
          subresource: 'status',
          fieldManager: FIELD_MANAGER,
          body,
          ...(typeof lock === 'string' ? { lock } : {}),
          ...(typeof uid === 'string' ? { uid } : {}),
        },
        signal,
      );
    },
  };
}

const recorderOf = (api: Api, { log, identity }: OperatorOptions): ReturnType<typeof createRecorder> =>
  createRecorder({
    api,
    clock: systemClock,
    wallClock: () => new Date(),
    log,
    controller: `${OWN_GROUP}/operator`,
    instance: identity,
  });
