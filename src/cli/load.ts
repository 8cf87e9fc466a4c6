// What most commands begin with: manifests → plan of the node → wanted kernel state of both families.
import { FAMILIES } from '../cidr/address.ts';
import { type NodePlan, planNode } from '../planner/plan-snapshot.ts';
import type { Problem } from '../planner/problem.ts';
import { renderFamily } from '../render/render.ts';
import type { FamilyTables } from '../render/tables.ts';
import { clusterManifests, withApi } from './cluster-objects.ts';
import { CommandError, type Io } from './io.ts';
import { loadManifests, type Manifests } from './manifests.ts';
import { type ObjectOptions, type PlanningOptions, planOptions } from './options.ts';

export interface Loaded extends NodePlan {
  readonly manifests: Manifests;
  readonly tables: readonly FamilyTables[];
}

/**
 * The objects of the files, or without files those of the cluster. Rejects with one sentence when the cluster cannot
 * be read whole: a list that fails is not an empty one.
 */
export async function readObjects(options: ObjectOptions, io: Io): Promise<Manifests> {
  const { filename, kubeconfig, context } = options;
  if (filename === undefined) return withApi(options, io, api => clusterManifests(api, io.signal));
  if (kubeconfig !== undefined || context !== undefined) {
    throw new CommandError('-f reads files, and --kubeconfig and --context a cluster: give one of them');
  }
  return loadManifests(filename, () => io.readStdin());
}

/** Reads the objects and plans the node. Refused objects are in manifests.verdicts; the others are planned. */
export async function load(
  options: PlanningOptions,
  io: Io,
  earlier?: NodePlan['resolver'],
): Promise<Loaded> {
  const manifests = await readObjects(options, io);
  if (options.filename === undefined) requireNode(manifests, options.node);
  const planned = planNode(manifests.snapshot, options.node, planOptions(options), earlier);
  return {
    ...planned,
    manifests,
    tables: FAMILIES.map(family => renderFamily(planned.plan, planned.values, family)),
  };
}

/** Files may be about a node without having it; a cluster that does not have it has no plan for it either. */
function requireNode({ snapshot, verdicts }: Manifests, name: string): void {
  const isThere = snapshot.nodes.some(node => node.name === name);
  const isRefused = verdicts.some(it => it.kind === 'Node' && it.name === name && it.verdict === 'refused');
  if (!isThere && !isRefused) throw new CommandError(`the cluster has no Node ${JSON.stringify(name)}`);
}

/** One line for each fault and problem: where, object, field, reason. */
export function complaints(loaded: Pick<Loaded, 'manifests' | 'problems'>): readonly string[] {
  const { manifests, problems } = loaded;
  return [
    ...manifests.problems,
    ...manifests.verdicts.flatMap(verdict =>
      [...verdict.faults, ...verdict.warnings].map(
        fault => `${verdict.file}: ${verdict.kind}/${verdict.name}: ${fault.field}: ${fault.reason}`,
      ),
    ),
    ...problems.map(problemLine),
  ];
}

export const problemLine = (problem: Problem): string =>
  `${problem.kind}/${problem.name}: ${problem.field === '' ? '' : `${problem.field}: `}${problem.message}`;

/**
 * Why the manifests cannot be acted on at all; undefined when they can. What a file holds that cannot be read is not
 * known, and to act without it would remove its rules, or masquerade what its pools spare. The same goes for an empty
 * folder: whoever wants no rules says so by `cleanup`.
 */
export function unusable(manifests: Manifests): string | undefined {
  if (manifests.problems.length > 0) return 'not everything that is wanted could be read';
  if (manifests.verdicts.every(({ verdict }) => verdict === 'passed over')) {
    return 'there is no object that says anything about address translation (natoutgoing cleanup removes all rules)';
  }
  return undefined;
}

/** Whether an object or a file was refused, so that not all that was asked for is in the plan. */
export const anyRefused = (manifests: Manifests): boolean =>
  manifests.problems.length > 0 || manifests.verdicts.some(verdict => verdict.verdict === 'refused');
