// The writing half of the operator over the model of the API, and what must be true at every moment of it.
import type { Snapshot } from '../../src/api/model.ts';
import { type Desired, desiredObjects, partName } from '../../src/operator/desired.ts';
import { createKnown } from '../../src/operator/known.ts';
import { createRetries } from '../../src/operator/retries.ts';
import { createSnapshotReader } from '../../src/operator/snapshot.ts';
import { planDigest, projectOf } from '../../src/operator/sources.ts';
import { carryOut, type WriteReport } from '../../src/operator/writer.ts';
import { type Write, writesFor } from '../../src/operator/writes.ts';
import { planCluster } from '../../src/planner/plan-cluster.ts';
import { planObjects } from '../../src/planner/plan-objects.ts';
import { createModelApi, type ModelApi, rawOf } from './operator-support.ts';

/** What is desired for a snapshot; with plans dealt to parts of that many bytes. */
export function desiredFor(snapshot: Snapshot, partBytes?: number): Desired {
  const raw = rawOf(snapshot);
  const planned = planCluster(createSnapshotReader()(raw).snapshot);
  const { desired } = desiredObjects(planned, raw.nodes);
  if (partBytes === undefined) return desired;
  return {
    ...desired,
    plans: desired.plans.map((plan, i) => {
      const group = planned.groups[i];
      const specs = group === undefined ? [] : planObjects(group.plan, plan.name, partBytes);
      const labels = { 'natoutgoing.io/plan': plan.name };
      const parts = specs.map(spec => ({
        name: partName(plan.name, spec.part),
        plan: plan.name,
        digest: planDigest(spec, labels),
        body: {
          apiVersion: 'natoutgoing.io/v1alpha1',
          kind: 'MasqPlan',
          metadata: { name: partName(plan.name, spec.part), labels },
          spec,
        },
      }));
      return { ...plan, parts: parts.toReversed() };
    }),
  };
}

/** The operator's writing half, with a memory as the operator has it. */
export function createHand(api: ModelApi, onSent: (write: Write, desired: Desired) => void = () => {}) {
  const time = { now: 0 };
  const known = { masqplans: createKnown(() => time.now), masqnodes: createKnown(() => time.now) };
  const retries = createRetries(() => time.now);
  const project = { masqplans: projectOf('masqPlans'), masqnodes: projectOf('masqNodes') };
  const run = (desired: Desired, isStale = (): boolean => false): Promise<WriteReport> => {
    const actual = {
      masqPlans: known.masqplans.over(api.shown.masqplans),
      masqNodes: known.masqnodes.over(api.shown.masqnodes),
    };
    const send = async (write: Write) => {
      try {
        return await api.send(write);
      } finally {
        onSent(write, desired);
      }
    };
    const parts = { send, known, project, retries, onWrite: () => {} };
    return carryOut(writesFor(desired, actual), parts, isStale, new AbortController().signal);
  };
  return { time, run, retries };
}

/** Runs until nothing is left to do; the watch shows everything in between. */
export async function settle(
  { time, run }: ReturnType<typeof createHand>,
  api: ModelApi,
  desired: Desired,
): Promise<void> {
  for (let runs = 0; runs < 30; runs += 1) {
    const before = api.sent.length;
    await run(desired);
    api.show();
    if (api.sent.length === before) return;
    time.now += 40_000;
  }
  throw new Error('it never settles');
}

/** Everything but versions and uids. */
export const contentOf = (api: ModelApi): unknown =>
  Object.fromEntries(
    (['masqplans', 'masqnodes'] as const).map(plural => [
      plural,
      Object.fromEntries(
        [...api.stored[plural]]
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([name, { metadata, spec }]) => [
            name,
            { spec, labels: metadata['labels'], owners: metadata['ownerReferences'] },
          ]),
      ),
    ]),
  );

export const contentOfDesired = (desired: Desired): unknown => {
  const api = createModelApi();
  for (const { parts } of desired.plans) for (const { name, body } of parts) api.put('masqplans', name, body);
  for (const { name, body } of desired.nodes) api.put('masqnodes', name, body);
  return contentOf(api);
};

/**
 * No node is pointed at what is not whole and right; no plan goes that a node names. What was wrong is kept, since the
 * writer takes an error for a server that does not answer.
 */
export const guard =
  (api: ModelApi, wrong: string[]) =>
  (write: Write, desired: Desired): void => {
    const planOfNode = (name: string): unknown =>
      (api.stored.masqnodes.get(name)?.['spec'] as { plan?: unknown })?.plan;
    if (
      write.verb === 'apply' &&
      write.plural === 'masqnodes' &&
      planOfNode(write.object.name) === write.object.plan
    ) {
      const joined = api.joined(write.object.plan, write.object.name);
      const wanted = desired.plans.find(({ name }) => name === write.object.plan)?.contentHash;
      if (!joined.ok || joined.contentHash !== wanted)
        wrong.push(`${write.object.name} follows ${JSON.stringify(joined)}`);
    }
    if (write.verb === 'delete' && write.plural === 'masqplans' && !api.stored.masqplans.has(write.name)) {
      const isWanted = desired.plans.some(({ name }) => name === write.plan);
      const users = [...api.stored.masqnodes.keys()].filter(name => planOfNode(name) === write.plan);
      if (!isWanted && users.length > 0) wrong.push(`${write.name} went, and ${users.join()} follow it`);
    }
  };
