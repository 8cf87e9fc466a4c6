// The objects of a cluster, for the commands that read without -f: each once, of Calico's group that counts.
import { OWN_GROUP } from '../api/own-group.ts';
import { type Api, ApiError, type RawObject } from '../cluster/api.ts';
import { createHttpsApi } from '../cluster/https.ts';
import { SERVICE_ACCOUNT_FOLDER } from '../cluster/in-cluster.ts';
import { listAll } from '../cluster/list.ts';
import { messageOf } from '../kernel/errors.ts';
import { chooseGroup, type GroupState, isMigrated } from '../operator/calico-group.ts';
import { CALICO_KINDS, type CalicoGroup, type SourceKey, sourceOf, sourcePath } from '../operator/sources.ts';
import { endpointOf } from './endpoint.ts';
import { CommandError, type Io } from './io.ts';
import type { Placed } from './manifest-documents.ts';
import { assemble } from './manifest-objects.ts';
import type { Manifests } from './manifests.ts';
import type { ClusterOptions, PodOptions } from './options.ts';

const PAGE_SIZE = 500;
/** Pages of a list may take longer than the server remembers it; then it is listed anew, so often. */
const LIST_TRIES = 3;

/** Opens the cluster's API for one piece of work. Rejects with one sentence. */
export async function withApi<T>(
  options: ClusterOptions & Partial<PodOptions>,
  io: Io,
  work: (api: Api) => Promise<T>,
): Promise<T> {
  let endpoint: Awaited<ReturnType<typeof endpointOf>>;
  try {
    endpoint = await endpointOf({ serviceAccount: SERVICE_ACCOUNT_FOLDER, ...options }, io);
  } catch (error) {
    throw new CommandError(messageOf(error));
  }
  const api = createHttpsApi(endpoint);
  try {
    return await work(api);
  } catch (error) {
    io.signal.throwIfAborted();
    if (error instanceof ApiError)
      throw new CommandError(`the cluster at ${endpoint.url} cannot be read: ${error.message}`);
    throw error;
  } finally {
    api.close();
  }
}

/**
 * Everything that plans are made of. Rejects with ApiError when any of it cannot be listed whole, and with
 * CommandError when a kind is not served that a plan cannot do without: neither is the same as "there are none".
 */
export async function clusterManifests(api: Api, signal: AbortSignal): Promise<Manifests> {
  const [policies, nodes, calico] = await Promise.all([
    demanded(api, 'policies', signal),
    demanded(api, 'nodes', signal),
    calicoPools(api, signal),
  ]);
  if (calico === undefined) throw new CommandError(`the cluster has no IPPools: ${NO_POOLS}`);
  const { group, pools } = calico;
  // A cluster may have IPPools and no CRD of GlobalNetworkSets.
  const others = await Promise.all(
    CALICO_KINDS.filter(kind => kind !== 'pools').map(
      async kind => (await listed(api, `${kind}/${group}`, signal)) ?? [],
    ),
  );
  const placed = [policies, nodes, pools, ...others]
    .flat()
    .map((value, i): Placed => ({ place: { file: 'cluster', document: i + 1 }, value }));
  return { ...assemble(placed), problems: [] };
}

export interface CalicoPools {
  /** The one of Calico's API groups that counts in this cluster. */
  readonly group: CalicoGroup;
  readonly pools: readonly RawObject[];
}

export const NO_POOLS = 'neither crd.projectcalico.org/v1 nor projectcalico.org/v3 is served';

/** Undefined when neither group is served. Rejects with ApiError when it cannot be told which one counts. */
export async function calicoPools(api: Api, signal: AbortSignal): Promise<CalicoPools | undefined> {
  const [migrations, v1, v3] = await Promise.all([
    tried(api, 'migrations', signal),
    tried(api, 'pools/v1', signal),
    tried(api, 'pools/v3', signal),
  ]);
  const found = { v1, v3 };
  const group = chooseGroup({
    states: { v1: stateOf(v1), v3: stateOf(v3) },
    ...(migrations.error === undefined ? { migrated: isMigrated(migrations.objects ?? []) } : {}),
  });
  if (group !== undefined) return { group, pools: found[group]?.objects ?? [] };
  const [error] = [v1, v3, migrations].flatMap(it => it.error ?? []);
  if (error !== undefined) throw error;
  return undefined;
}

interface Tried {
  /** Undefined when the kind is not served, or cannot be listed. */
  readonly objects?: readonly RawObject[] | undefined;
  readonly error?: ApiError;
}

/** What fails may be a group that does not count: whether that matters is seen when all have answered. */
async function tried(api: Api, key: SourceKey, signal: AbortSignal): Promise<Tried> {
  try {
    return { objects: await listed(api, key, signal) };
  } catch (error) {
    if (error instanceof ApiError) return { error };
    throw error;
  }
}

function stateOf({ objects, error }: Tried): GroupState {
  if (error !== undefined) return 'unknown';
  return objects === undefined ? 'absent' : 'listed';
}

/** The objects of a kind that has to be served. */
export async function demanded(api: Api, key: SourceKey, signal: AbortSignal): Promise<readonly RawObject[]> {
  const objects = await listed(api, key, signal);
  if (objects !== undefined) return objects;
  const { what, group } = sourceOf(key);
  const why =
    group === OWN_GROUP
      ? `the CustomResourceDefinitions of ${OWN_GROUP} are not installed`
      : 'they are not served';
  throw new CommandError(`the cluster has no ${what}: ${why}`);
}

/** The objects with their apiVersion and kind, which items of lists may lack; undefined: the kind is not served. */
async function listed(
  api: Api,
  key: SourceKey,
  signal: AbortSignal,
): Promise<readonly RawObject[] | undefined> {
  const source = sourceOf(key);
  const { group, version, kind, plural } = source;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  for (let left = LIST_TRIES - 1; ; left--) {
    const objects: RawObject[] = [];
    const keep = (object: RawObject): void => void objects.push({ ...object, apiVersion, kind });
    try {
      await listAll(api, { path: sourcePath(source) }, PAGE_SIZE, keep, signal);
      return objects;
    } catch (error) {
      const status = error instanceof ApiError ? error.status : undefined;
      if (status === 404) return undefined;
      if (status !== 410 || left === 0) throw withNeed(error, 'list', `${plural}${group && `.${group}`}`);
    }
  }
}

/** Says of a 403 which right is missing, in the words of roles. */
export function withNeed(error: unknown, verb: string, resource: string): unknown {
  if (!(error instanceof ApiError) || error.status !== 403) return error;
  const { status, reason } = error;
  return new ApiError(`${error.message} (its account needs the verb ${verb} on ${resource})`, {
    status,
    reason,
    cause: error,
  });
}
