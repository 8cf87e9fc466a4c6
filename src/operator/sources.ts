// What the operator watches, and how little of each object it keeps: a cluster has thousands of nodes, and most of a
// Node object is about images and conditions that change all the time and mean nothing here.
import { createHash } from 'node:crypto';
import { isObject, own } from '../api/fields.ts';
import { asksRemoval, OWN_GROUP, OWN_VERSION, PLAN_LABEL } from '../api/own-group.ts';
import type { RawObject } from '../cluster/api.ts';
import { canonicalJson } from '../planner/canonical.ts';

export type CalicoGroup = 'v1' | 'v3';
export const CALICO_GROUPS = ['v1', 'v3'] as const satisfies readonly CalicoGroup[];
export type CalicoKind = 'pools' | 'networkSets' | 'felixConfigs';
export const CALICO_KINDS = ['pools', 'networkSets', 'felixConfigs'] as const satisfies readonly CalicoKind[];

export type SourceKey =
  | 'policies'
  | 'nodes'
  | 'masqNodes'
  | 'masqPlans'
  | 'migrations'
  | `${CalicoKind}/${CalicoGroup}`;

export interface Source {
  readonly key: SourceKey;
  /** Empty for the core group. */
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  /** As a person calls the objects. */
  readonly what: string;
  /** Its objects go with their CustomResourceDefinition, which is not the same as being deleted. */
  readonly isCrd: boolean;
  readonly project: (object: RawObject) => RawObject;
}

export const CALICO_VERSIONS: {
  readonly [G in CalicoGroup]: { readonly group: string; readonly version: string };
} = {
  v1: { group: 'crd.projectcalico.org', version: 'v1' },
  v3: { group: 'projectcalico.org', version: 'v3' },
};

const CALICO: {
  readonly [K in CalicoKind]: { readonly plural: string; readonly kind: string; readonly what: string };
} = {
  pools: { plural: 'ippools', kind: 'IPPool', what: 'IPPools' },
  networkSets: { plural: 'globalnetworksets', kind: 'GlobalNetworkSet', what: 'GlobalNetworkSets' },
  felixConfigs: { plural: 'felixconfigurations', kind: 'FelixConfiguration', what: 'FelixConfigurations' },
};

/** The part of metadata that somebody here looks at. */
function metadataOf({ metadata }: RawObject): RawObject['metadata'] {
  const { name, uid, generation, resourceVersion } = metadata;
  return {
    name,
    uid,
    generation,
    resourceVersion,
    labels: own(metadata, 'labels') ?? null,
    annotations: own(metadata, 'annotations') ?? null,
    creationTimestamp: own(metadata, 'creationTimestamp') ?? null,
  };
}

const withSpec = (object: RawObject): RawObject => ({
  metadata: metadataOf(object),
  spec: own(object, 'spec'),
});

const node = (object: RawObject): RawObject => {
  const status = own(object, 'status');
  const addresses = isObject(status) ? own(status, 'addresses') : undefined;
  return { metadata: metadataOf(object), status: { addresses: addresses ?? [] } };
};

const policy = (object: RawObject): RawObject => ({
  metadata: { ...metadataOf(object), lock: lockOf(object) },
  spec: own(object, 'spec'),
  status: own(object, 'status'),
});

/**
 * Objects that are written again with their resourceVersion as a lock keep it under another name: for them its change
 * is a change.
 */
const lockOf = ({ metadata }: RawObject): unknown => metadata.resourceVersion;

const masqNode = (object: RawObject): RawObject => {
  const { metadata } = object;
  return {
    metadata: {
      name: metadata.name,
      uid: metadata.uid,
      generation: metadata.generation,
      lock: lockOf(object),
    },
    asksRemoval: asksRemoval(own(metadata, 'annotations')),
    digest: digestOf({ spec: own(object, 'spec'), owners: ownersOf(own(metadata, 'ownerReferences')) }),
    spec: { plan: planOf(object) },
    status: statusOf(own(object, 'status')),
  };
};

const planOf = (object: RawObject): unknown => {
  const spec = own(object, 'spec');
  return isObject(spec) ? own(spec, 'plan') : undefined;
};

function statusOf(status: unknown): unknown {
  if (!isObject(status)) return undefined;
  const { plan, contentHash, conditions, lastVerifiedTime, observedGeneration } = status;
  return { plan, contentHash, conditions, lastVerifiedTime, observedGeneration };
}

/** What is compared of the owners; the API server fills in the rest. */
export const ownersOf = (owners: unknown): unknown =>
  Array.isArray(owners)
    ? owners
        .filter(isObject)
        .map(owner => ({ kind: own(owner, 'kind'), name: own(owner, 'name'), uid: own(owner, 'uid') }))
    : [];

const migration = (object: RawObject): RawObject => ({
  metadata: { name: object.metadata.name },
  status: own(object, 'status'),
});

const masqPlan = (object: RawObject): RawObject => ({
  metadata: { name: object.metadata.name, uid: object.metadata.uid, lock: lockOf(object) },
  digest: planDigest(own(object, 'spec'), labelsOf(object)),
  plan: planOf(object),
});

const labelsOf = ({ metadata }: RawObject): unknown => own(metadata, 'labels');

/** What is compared of a part of a plan: the label too, without which no applier sees it. */
export const planDigest = (spec: unknown, labels: unknown): string =>
  digestOf({ spec, plan: isObject(labels) ? own(labels, PLAN_LABEL) : undefined });

/** The same for the same JSON, whatever the order of keys: an API server hands them out sorted. */
export const digestOf = (value: unknown): string =>
  createHash('sha256').update(canonicalJson(value)).digest('base64url');

const OURS = { group: OWN_GROUP, version: OWN_VERSION, isCrd: true } as const;

export const SOURCES: readonly Source[] = [
  {
    ...OURS,
    key: 'policies',
    plural: 'masqpolicies',
    kind: 'MasqPolicy',
    what: 'MasqPolicies',
    project: policy,
  },
  { ...OURS, key: 'masqNodes', plural: 'masqnodes', kind: 'MasqNode', what: 'MasqNodes', project: masqNode },
  { ...OURS, key: 'masqPlans', plural: 'masqplans', kind: 'MasqPlan', what: 'MasqPlans', project: masqPlan },
  {
    key: 'nodes',
    group: '',
    version: 'v1',
    plural: 'nodes',
    kind: 'Node',
    what: 'Nodes',
    isCrd: false,
    project: node,
  },
  {
    key: 'migrations',
    group: 'migration.projectcalico.org',
    version: 'v1beta1',
    plural: 'datastoremigrations',
    kind: 'DatastoreMigration',
    what: 'DatastoreMigrations',
    isCrd: true,
    project: migration,
  },
  ...CALICO_GROUPS.flatMap(group =>
    CALICO_KINDS.map(
      (kind): Source => ({
        key: `${kind}/${group}`,
        ...CALICO_VERSIONS[group],
        ...CALICO[kind],
        isCrd: true,
        project: withSpec,
      }),
    ),
  ),
];

export function sourceOf(key: SourceKey): Source {
  const source = SOURCES.find(it => it.key === key);
  if (source === undefined) throw new Error(`there is no source ${key}`);
  return source;
}

/** How objects of a source are kept. */
export const projectOf = (key: SourceKey): Source['project'] => sourceOf(key).project;

export const sourcePath = ({
  group,
  version,
  plural,
}: Pick<Source, 'group' | 'version' | 'plural'>): string =>
  `${group === '' ? '/api' : `/apis/${group}`}/${version}/${plural}`;
