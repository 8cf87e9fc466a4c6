// A cluster for tests: API server with audit log, our CRDs, Calico's in the groups that are asked for, and our roles.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { systemExec } from '../../src/kernel/exec.ts';
import { type ApiServer, startApiServer } from './api-server.ts';
import { AUDIT_POLICY, type AuditEntry, readAudit } from './audit.ts';
import { component } from './components.ts';
import { openHelm } from './helm.ts';
import { create, type Crd, installCrds, type KubeObject, readObjects, refusalOf } from './objects.ts';
import { startServer } from './server-process.ts';
import { openTemporaryFolder } from './temporary-folder.ts';
import { MIN_TOKEN_S, requestToken, shortened } from './tokens.ts';

export type CalicoGroupName = 'v1' | 'v3';
const GROUP_NAMES = { v1: 'crd.projectcalico.org', v3: 'projectcalico.org' } as const;
const VERSIONS = { v1: 'crd.projectcalico.org/v1', v3: 'projectcalico.org/v3' } as const;

export const OPERATOR = 'system:serviceaccount:natoutgoing:natoutgoing-operator';
export const APPLIER = 'system:serviceaccount:natoutgoing:natoutgoing-applier';

export interface ClusterOptions {
  /** Groups whose CRDs are installed; v1 when absent. */
  readonly calico?: readonly CalicoGroupName[];
  readonly flags?: readonly string[];
  /** Whether a real controller manager collects garbage. */
  readonly controllers?: boolean;
}

export interface Cluster {
  readonly server: ApiServer;
  /** Creates or replaces an object; fails on a refusal. Its kind is one of those below. */
  apply(object: object): Promise<KubeObject>;
  /** JSON merge patch. */
  patch(kind: Kind, name: string, patch: object, subresource?: 'status'): Promise<KubeObject>;
  remove(kind: Kind, name: string): Promise<void>;
  /** Undefined when there is none. */
  get(kind: Kind, name: string): Promise<KubeObject | undefined>;
  list(kind: Kind): Promise<readonly KubeObject[]>;
  /**
   * A token of a ServiceAccount of namespace natoutgoing, bound to the node where one is named. One that was used may
   * be taken for ten seconds more than it is valid.
   */
  token(account: string, options?: { readonly node?: string; readonly seconds?: number }): Promise<string>;
  installCalico(group: CalicoGroupName): Promise<void>;
  audit(): Promise<readonly AuditEntry[]>;
  close(): Promise<void>;
}

const PATHS = {
  MasqPolicy: '/apis/natoutgoing.io/v1alpha1/masqpolicies',
  MasqPlan: '/apis/natoutgoing.io/v1alpha1/masqplans',
  MasqNode: '/apis/natoutgoing.io/v1alpha1/masqnodes',
  Node: '/api/v1/nodes',
  'IPPool/v1': `/apis/${VERSIONS.v1}/ippools`,
  'IPPool/v3': `/apis/${VERSIONS.v3}/ippools`,
  'GlobalNetworkSet/v1': `/apis/${VERSIONS.v1}/globalnetworksets`,
  'FelixConfiguration/v1': `/apis/${VERSIONS.v1}/felixconfigurations`,
  'GlobalNetworkSet/v3': `/apis/${VERSIONS.v3}/globalnetworksets`,
  'FelixConfiguration/v3': `/apis/${VERSIONS.v3}/felixconfigurations`,
  Event: '/apis/events.k8s.io/v1/namespaces/default/events',
  Lease: '/apis/coordination.k8s.io/v1/namespaces/natoutgoing/leases',
  CustomResourceDefinition: '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
} as const;
export type Kind = keyof typeof PATHS;

/** Starts it; close() ends everything, and so does the end of this process. */
export async function startCluster(options: ClusterOptions, signal: AbortSignal): Promise<Cluster> {
  const { path: folder, remove } = await openTemporaryFolder('natoutgoing-cluster-');
  const closers: (() => Promise<void>)[] = [remove];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  try {
    const policy = join(folder, 'audit-policy.json');
    const log = join(folder, 'audit.log');
    await writeFile(policy, JSON.stringify(AUDIT_POLICY));
    const flags = [
      `--audit-policy-file=${policy}`,
      `--audit-log-path=${log}`,
      '--audit-log-mode=blocking',
      ...(options.flags ?? []),
    ];
    const server = await startApiServer({ flags }, signal);
    closers.push(() => server.close());
    await installCrds(server.client, await readObjects('crds'), signal);
    const cluster = clusterOf(server, log, signal, close);
    for (const group of options.calico ?? ['v1']) await cluster.installCalico(group);
    await installRoles(server, signal);
    if (options.controllers === true)
      closers.push(await startControllers(server, ['garbage-collector-controller'], signal));
    return cluster;
  } catch (error) {
    await close();
    throw error;
  }
}

function clusterOf(server: ApiServer, log: string, signal: AbortSignal, close: () => Promise<void>): Cluster {
  const demand = async (
    method: string,
    path: string,
    statuses: readonly number[],
    body?: object,
    contentType?: string,
  ): Promise<{ readonly status: number; readonly body: KubeObject }> => {
    const sent = {
      ...(body === undefined ? {} : { body }),
      ...(contentType === undefined ? {} : { contentType }),
    };
    const answer = await server.client.request(method, path, sent, signal);
    if (!statuses.includes(answer.status))
      throw new Error(`${method} ${path}: ${answer.status} ${refusalOf(answer).message}`);
    return answer as { status: number; body: KubeObject };
  };
  return {
    server,
    close,
    audit: () => readAudit(log),
    async apply(object) {
      const { status, ...desired } = object as KubeObject & {
        readonly apiVersion: string;
        readonly status?: object;
      };
      const path = `${pathOf(desired.kind, desired.apiVersion)}/${desired.metadata.name}`;
      const query = '?fieldManager=test&force=true&fieldValidation=Strict';
      const { body } = await demand(
        'PATCH',
        `${path}${query}`,
        [200, 201],
        desired,
        'application/apply-patch+yaml',
      );
      if (status === undefined) return body;
      return (await demand('PATCH', `${path}/status`, [200], { status }, 'application/merge-patch+json'))
        .body;
    },
    async patch(kind, name, patch, subresource) {
      const path = `${PATHS[kind]}/${name}${subresource === undefined ? '' : `/${subresource}`}`;
      return (await demand('PATCH', path, [200], patch, 'application/merge-patch+json')).body;
    },
    async remove(kind, name) {
      await demand('DELETE', `${PATHS[kind]}/${name}`, [200, 202, 404]);
    },
    async get(kind, name) {
      const { status, body } = await demand('GET', `${PATHS[kind]}/${name}`, [200, 404]);
      return status === 200 ? body : undefined;
    },
    async list(kind) {
      const { body } = await demand('GET', PATHS[kind], [200]);
      return (body as unknown as { items: readonly KubeObject[] }).items;
    },
    async token(account, { node, seconds = 3600 } = {}) {
      const of = { namespace: 'natoutgoing', name: account };
      const bound =
        node === undefined ? undefined : (await demand('GET', `${PATHS.Node}/${node}`, [200])).body;
      const { uid = '' } = (bound?.metadata ?? {}) as { uid?: string };
      const boundTo = node === undefined ? {} : { boundTo: { kind: 'Node', name: node, uid } as const };
      const long = await requestToken(server, of, { ...boundTo, seconds: Math.max(seconds, MIN_TOKEN_S) });
      return seconds < MIN_TOKEN_S ? shortened(server, long, seconds) : long;
    },
    async installCalico(group) {
      const crds = (await readObjects('test/fixtures/calico')).filter(
        object => (object as Crd).spec?.group === GROUP_NAMES[group],
      );
      expect(crds.length).toBeGreaterThan(2);
      await installCrds(server.client, crds, signal);
    },
  };
}

function pathOf(kind: string, apiVersion: string): string {
  const version = apiVersion === VERSIONS.v3 ? '/v3' : apiVersion === VERSIONS.v1 ? '/v1' : '';
  const path = PATHS[`${kind}${version}` as Kind];
  if (path === undefined) throw new Error(`nobody knows the path of ${kind} in ${apiVersion}`);
  return path;
}

const ROLE_PATHS: Readonly<Record<string, string>> = {
  Namespace: '/api/v1/namespaces',
  ServiceAccount: '/api/v1/namespaces/natoutgoing/serviceaccounts',
  ClusterRole: '/apis/rbac.authorization.k8s.io/v1/clusterroles',
  ClusterRoleBinding: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
  Role: '/apis/rbac.authorization.k8s.io/v1/namespaces/natoutgoing/roles',
  RoleBinding: '/apis/rbac.authorization.k8s.io/v1/namespaces/natoutgoing/rolebindings',
  ValidatingAdmissionPolicy: '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies',
  ValidatingAdmissionPolicyBinding: '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings',
};

/** The accounts, roles and the admission policy of the chart, in its namespace. */
async function installRoles(server: ApiServer, signal: AbortSignal): Promise<void> {
  const helm = await openHelm(signal);
  try {
    const rendered = await helm.template();
    const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'natoutgoing' } };
    for (const object of [namespace, ...rendered.filter(({ kind }) => ROLE_PATHS[kind] !== undefined)]) {
      const answer = await create(server.client, ROLE_PATHS[object.kind] ?? '', object);
      if (answer.status !== 201)
        throw new Error(`${object.kind} ${object.metadata.name}: ${refusalOf(answer).message}`);
    }
  } finally {
    await helm.close();
  }
}

/** Those of a real controller manager's controllers that are named, until the function that it gives is called. */
export async function startControllers(
  server: ApiServer,
  controllers: readonly string[],
  signal: AbortSignal,
): Promise<() => Promise<void>> {
  const tools = { exec: systemExec, env: process.env, log: (line: string) => console.error(line) };
  const path = await component('kube-controller-manager', tools, signal);
  const manager = await startServer({
    path,
    args: [
      `--kubeconfig=${server.kubeconfig}`,
      `--controllers=${controllers.join(',')}`,
      '--leader-elect=false',
      '--secure-port=0',
      '--kube-api-qps=300',
      '--kube-api-burst=500',
    ],
    logFile: join(server.folder, 'controllers.log'),
    env: { PATH: process.env['PATH'] ?? '', HOME: server.folder },
  });
  return () => manager.kill();
}
