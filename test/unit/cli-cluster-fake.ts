// A cluster in memory for the commands that read one: collections by path, everything else is not served.
import { objectsOf } from '../../src/cli/status.ts';
import { clusterStatus, type ClusterStatus } from '../../src/cli/status-model.ts';
import type { ApiAnswer, RawObject } from '../../src/cluster/api.ts';
import { type FakeApi, fakeApi, listOf, queryOfPath, refusal } from './cluster-fake.ts';

export const LEASE = '/apis/coordination.k8s.io/v1/namespaces/natoutgoing/leases/natoutgoing-operator';
export const NOW = Date.parse('2026-06-01T12:00:00Z');
export const secondsAgo = (seconds: number): string => new Date(NOW - seconds * 1000).toISOString();

export interface Served {
  readonly policies?: readonly RawObject[];
  readonly plans?: readonly RawObject[];
  readonly masqNodes?: readonly RawObject[];
  readonly nodes?: readonly RawObject[];
  /** Pools by group; a group that is absent is not served. */
  readonly v1?: readonly RawObject[];
  readonly v3?: readonly RawObject[];
  readonly migrations?: readonly RawObject[];
  readonly lease?: RawObject;
}

const PATHS: { readonly [K in keyof Served]: string } = {
  policies: '/apis/natoutgoing.io/v1alpha1/masqpolicies',
  plans: '/apis/natoutgoing.io/v1alpha1/masqplans',
  masqNodes: '/apis/natoutgoing.io/v1alpha1/masqnodes',
  nodes: '/api/v1/nodes',
  v1: '/apis/crd.projectcalico.org/v1/ippools',
  v3: '/apis/projectcalico.org/v3/ippools',
  migrations: '/apis/migration.projectcalico.org/v1beta1/datastoremigrations',
};

/** Pages of two objects. `wrong` may say something else about a path than what is there. */
export function clusterFake(
  served: Served,
  wrong: (path: string, count: number) => ApiAnswer | undefined = () => undefined,
): FakeApi {
  return fakeApi({
    answer: ({ path: full }, count) => {
      const [path = ''] = full.split('?');
      const said = wrong(path, count);
      if (said !== undefined) return said;
      if (path === LEASE && served.lease !== undefined) return { status: 200, body: served.lease };
      const [key] = Object.entries(PATHS).find(([, at]) => at === path) ?? [];
      const objects = served[key as keyof Served] as readonly RawObject[] | undefined;
      if (objects === undefined) return refusal(404, 'NotFound');
      const from = Number(queryOfPath(full)['continue'] ?? 0);
      // As an API server does, items come without what the list says already.
      const page = objects.slice(from, from + 2).map(({ apiVersion: _a, kind: _k, ...rest }) => rest);
      return listOf(1, page, from + 2 < objects.length ? String(from + 2) : '');
    },
  });
}

const object = (name: string, more: object, metadata: object = {}): RawObject => ({
  metadata: { name, uid: `uid-${name}`, resourceVersion: '1', generation: 1, ...metadata },
  ...more,
});

export const poolObject = (name: string, cidr: string): RawObject =>
  object(name, { spec: { cidr, natOutgoing: true } });

export const nodeObject = (name: string, labels: object = {}): RawObject =>
  object(name, { status: { addresses: [] } }, { labels });

export const leaseObject = (renewed: number, spec: object = {}): RawObject =>
  object('natoutgoing-operator', {
    spec: {
      holderIdentity: 'operator-a',
      leaseDurationSeconds: 15,
      renewTime: secondsAgo(renewed),
      ...spec,
    },
  });

export interface Said {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

const GOOD: Readonly<Record<string, string>> = {
  Accepted: 'True',
  ResolvedRefs: 'True',
  Programmed: 'True',
  Conflicted: 'False',
  Degraded: 'False',
};

/** A policy of which all is well but for the conditions that are given. */
export function policyObject(name: string, conditions: readonly Said[] = [], more: object = {}): RawObject {
  const said = Object.entries(GOOD).map(
    ([type, status]) =>
      conditions.find(it => it.type === type) ?? { type, status, reason: type, message: 'well' },
  );
  return object(name, {
    spec: {
      priority: 500,
      enforcementMode: 'Enforce',
      source: { ipPools: {} },
      rules: [{ name: 'a', action: 'Preserve' }],
    },
    status: { observedGeneration: 1, conditions: said, nodes: { summary: '1/1' } },
    ...more,
  });
}

/** One part of a plan; the first names the hash. */
export const planObject = (plan: string, part = 0, of = 1): RawObject =>
  object(part === 0 ? plan : `${plan}-${part}`, {
    spec: { schemaVersion: 1, plan, part, of, ...(part === 0 ? { contentHash: `hash-of-${plan}` } : {}) },
  });

/** A node that holds its plan, but for what is given of its status. */
export function masqNodeObject(name: string, plan: string, status: object = {}): RawObject {
  const family = { state: 'Programmed', sets: 1, entries: 1, rules: 1, jumpPosition: 1 };
  return object(name, {
    spec: { plan },
    status: {
      observedGeneration: 1,
      plan,
      contentHash: `hash-of-${plan}`,
      backend: 'nft',
      families: { ipv4: family, ipv6: family },
      lastVerifiedTime: secondsAgo(60),
      driftRepairs: 0,
      conditions: [condition('Ready', 'True')],
      ...status,
    },
  });
}

export const condition = (type: string, status: string, reason = 'Because', message = 'it is so'): Said => ({
  type,
  status,
  reason,
  message,
});

export const HEALTHY: Served = {
  policies: [policyObject('payments')],
  plans: [planObject('plan-a')],
  masqNodes: [masqNodeObject('n1', 'plan-a'), masqNodeObject('n2', 'plan-a')],
  nodes: [nodeObject('n1'), nodeObject('n2'), nodeObject('win', { 'kubernetes.io/os': 'windows' })],
  v1: [poolObject('main', '10.244.0.0/16')],
  lease: leaseObject(2),
};

/** The status of the healthy cluster with other objects in it. */
export const statusOf = async (served: Served): Promise<ClusterStatus> =>
  clusterStatus(
    await objectsOf(clusterFake({ ...HEALTHY, ...served }), 'natoutgoing', new AbortController().signal),
    NOW,
  );

export const problemsOf = async (served: Served): Promise<readonly string[]> =>
  (await statusOf(served)).problems;

export const numbered = (count: number): readonly string[] =>
  Array.from({ length: count }, (_, i) => `n${String(i).padStart(4, '0')}`);
