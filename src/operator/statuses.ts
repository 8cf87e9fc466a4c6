// What policies are told, when there is something new to tell.
import { isObject } from '../api/fields.ts';
import type { Outcome } from '../cluster/apply.ts';
import type { RawObject } from '../cluster/api.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { ClusterPlan } from '../planner/plan-cluster.ts';
import type { Desired } from './desired.ts';
import { createKnown } from './known.ts';
import { tallyOf } from './node-states.ts';
import { policyFacts, type Shadows, shadowsOf } from './policy-facts.ts';
import { type Condition, policyStatus, type PolicyStatus } from './policy-status.ts';
import type { RawObjects, ReadSnapshot } from './snapshot.ts';
import { projectOf } from './sources.ts';
import { createRetries } from './retries.ts';
import { createStatusPace } from './status-pace.ts';

export interface StatusParts {
  /** Writes the status of a policy. */
  readonly sendStatus: SendStatus;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  readonly log: KernelLog;
}

/** `lock` is the version of the object that was read. */
export interface SendStatus {
  (
    policy: { readonly name: string; readonly uid: unknown; readonly lock: unknown },
    status: PolicyStatus,
    signal: AbortSignal,
  ): Promise<Outcome>;
}

export interface StatusInput {
  readonly policies: RawObjects;
  readonly masqNodes: RawObjects;
  readonly read: ReadSnapshot;
  readonly planned: ClusterPlan;
  readonly desired: Desired;
  /** Sentences about what cannot be read or written at present. */
  readonly troubles: readonly string[];
  /** Whether the rest is better left to the next run. */
  readonly isStale: () => boolean;
}

/** A teller with a memory. A run writes what is due, and gives the milliseconds after which more may be. */
export function createStatuses(
  parts: StatusParts,
): (input: StatusInput, signal: AbortSignal) => Promise<number | undefined> {
  const { clock, wallClock, log } = parts;
  const pace = createStatusPace();
  const known = createKnown(() => clock.now());
  const retries = createRetries(() => clock.now());
  const shadowsFor = createShadows();

  const tell = async (object: RawObject, status: PolicyStatus, signal: AbortSignal): Promise<void> => {
    const { name, uid } = object.metadata;
    try {
      const outcome = await parts.sendStatus({ name, uid, lock: object.metadata['lock'] }, status, signal);
      if (outcome.result === 'done') {
        pace.wrote(name, clock.now());
        retries.done(name);
        known.wrote(name, projectOf('policies')(outcome.object));
        return;
      }
      known.forget(name);
      // Another one wrote, or the policy is gone: the watch will say so.
      if (outcome.result === 'refused')
        log.warn({ policy: name, why: outcome.message }, 'status was refused');
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ policy: name, why: messageOf(error) }, 'status could not be written');
    }
    retries.failed(name, lockOf(object), undefined);
  };

  return async (input, signal) => {
    const now = wallClock();
    const policies = known.over(input.policies);
    const tallies = new Map(
      input.desired.plans.map(plan => [plan.group, tallyOf(plan, input.masqNodes, now.getTime())]),
    );
    const { read, planned, troubles } = input;
    const state = { read, planned, tallies, shadows: shadowsFor(planned, input.desired), stale: troubles };
    pace.keep(policies);
    retries.keep(new Set(policies.keys()));
    let again: number | undefined;
    const wait = (ms: number | undefined): void => {
      if (ms !== undefined) again = Math.min(again ?? ms, ms);
    };
    for (const [name, facts] of policyFacts(policies, state)) {
      if (input.isStale()) return 0;
      const object = policies.get(name) as RawObject;
      const there = object['status'];
      const status = policyStatus(facts, conditionsIn(there), now.toISOString());
      const due = pace.due(name, there, status, clock.now());
      if (due === undefined) retries.done(name);
      if (due !== 0) wait(due);
      else if (retries.held(name, lockOf(object)) === undefined) await tell(object, status, signal);
    }
    wait(retries.nextMs());
    wait(known.doubtMs());
    return again;
  };
}

/** Shadow analysis takes long for large plans, so it is done once for each content. */
function createShadows(): (plan: ClusterPlan, desired: Desired) => ReadonlyMap<string, Shadows> {
  let kept: ReadonlyMap<string, { readonly contentHash: string; readonly shadows: Shadows }> = new Map();
  return (plan, desired) => {
    const hashes = new Map(desired.plans.map(({ group, contentHash }) => [group, contentHash]));
    kept = new Map(
      plan.groups.map(group => {
        const contentHash = hashes.get(group.id) ?? '';
        const old = kept.get(group.id);
        return [
          group.id,
          old?.contentHash === contentHash ? old : { contentHash, shadows: shadowsOf(group.plan) },
        ];
      }),
    );
    return new Map([...kept].map(([id, { shadows }]) => [id, shadows]));
  };
}

const lockOf = ({ metadata }: RawObject): string => String(metadata['lock']);

/** The conditions of a stored status whose times are to be kept; whatever else stands there has no say. */
function conditionsIn(status: unknown): readonly Pick<Condition, 'type' | 'status' | 'lastTransitionTime'>[] {
  const conditions = (status as { conditions?: unknown } | undefined)?.conditions;
  return Array.isArray(conditions) ? (conditions as unknown[] as Condition[]).filter(isObject) : [];
}
