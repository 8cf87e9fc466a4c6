// The objects of a cluster, for the commands that read without -f: each once, of Calico's group that counts.
import { type Api, ApiError, type RawObject } from '../cluster/api.ts';
import { createHttpsApi } from '../cluster/https.ts';
import { listAll } from '../cluster/list.ts';
import { SERVICE_ACCOUNT_FOLDER } from '../cluster/in-cluster.ts';
import { chooseGroup, type GroupState, isMigrated } from '../operator/calico-group.ts';
import {
  CALICO_KINDS,
  CALICO_GROUPS,
  type CalicoGroup,
  type Source,
  sourcePath,
  SOURCES,
} from '../operator/sources.ts';
import { endpointOf } from './endpoint.ts';
import { CommandError, type Io } from './io.ts';
import type { Placed } from './manifest-documents.ts';
import { assemble } from './manifest-objects.ts';
import type { Manifests } from './manifests.ts';
import type { ClusterOptions } from './options.ts';

const PAGE_SIZE = 500;

/** Opens the cluster's API for one piece of work. Rejects with one sentence. */
export async function withApi<T>(
  options: ClusterOptions,
  io: Io,
  work: (api: Api) => Promise<T>,
): Promise<T> {
  let endpoint: Awaited<ReturnType<typeof endpointOf>>;
  try {
    endpoint = await endpointOf({ ...options, serviceAccount: SERVICE_ACCOUNT_FOLDER }, io);
  } catch (error) {
    throw new CommandError(error instanceof Error ? error.message : String(error));
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

/** Everything that plans are made of. Rejects when any of it cannot be listed whole. */
export const loadCluster = (options: ClusterOptions, io: Io): Promise<Manifests> =>
  withApi(options, io, async api => {
    const [policies, nodes] = await Promise.all([
      listed(api, sourceOf('policies'), io.signal),
      listed(api, sourceOf('nodes'), io.signal),
    ]);
    if (policies === undefined) {
      throw new CommandError(
        'the cluster has no MasqPolicies: the CustomResourceDefinitions of natoutgoing.io are not installed',
      );
    }
    const group = await groupInUse(api, io.signal);
    const calico = await Promise.all(
      CALICO_KINDS.map(kind => listed(api, sourceOf(`${kind}/${group}`), io.signal)),
    );
    const objects = [policies, nodes ?? [], ...calico.map(it => it ?? [])].flat();
    const placed = objects.map(
      (value, i): Placed => ({ place: { file: 'cluster', document: i + 1 }, value }),
    );
    return { ...assemble(placed), problems: [] };
  });

/** Calico's API group that counts in this cluster. */
export async function groupInUse(api: Api, signal: AbortSignal): Promise<CalicoGroup> {
  const [migrations, ...pools] = await Promise.all([
    listed(api, sourceOf('migrations'), signal),
    ...CALICO_GROUPS.map(group => listed(api, sourceOf(`pools/${group}`), signal)),
  ]);
  const stateOf = (found: readonly RawObject[] | undefined): GroupState =>
    found === undefined ? 'absent' : 'listed';
  const group = chooseGroup({
    states: { v1: stateOf(pools[0]), v3: stateOf(pools[1]) },
    migrated: isMigrated(migrations ?? []),
  });
  if (group === undefined) {
    throw new CommandError(
      'the cluster has no IPPools: neither crd.projectcalico.org/v1 nor projectcalico.org/v3 is served',
    );
  }
  return group;
}

export function sourceOf(key: Source['key']): Source {
  const source = SOURCES.find(it => it.key === key);
  if (source === undefined) throw new Error(`there is no source ${key}`);
  return source;
}

/** The objects with their apiVersion and kind, which items of lists may lack; undefined: the kind is not served. */
export async function listed(
  api: Api,
  source: Source,
  signal: AbortSignal,
): Promise<readonly RawObject[] | undefined> {
  const { group, version, kind } = source;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  const objects: RawObject[] = [];
  try {
    await listAll(
      api,
      { path: sourcePath(source) },
      PAGE_SIZE,
      object => objects.push({ ...object, apiVersion, kind }),
      signal,
    );
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
  return objects;
}
