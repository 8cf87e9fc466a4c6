import { Command, Option } from 'commander';
import { LEASE_NAME } from '../api/own-group.ts';
import type { Api, RawObject } from '../cluster/api.ts';
import { refusedAnswer } from '../cluster/https.ts';
import { CALICO_VERSIONS } from '../operator/sources.ts';
import { calicoPools, demanded, withApi, withNeed } from './cluster-objects.ts';
import { CommandError, EXIT, type ExitCode, type Io, json } from './io.ts';
import { type OutputFormat, type PodOptions, withLease, withOutput, withPod } from './options.ts';
import { type ClusterObjects, clusterStatus, type ClusterStatus } from './status-model.ts';
import { statusText } from './status-text.ts';

interface Options extends PodOptions {
  readonly namespace: string;
  readonly allNodes: boolean;
  readonly node?: string;
  readonly output: OutputFormat;
}

export const statusCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withLease(withPod(new Command('status'))))
    .description('say how a cluster does: what is wrong, the operator, policies, plans, nodes')
    .addOption(new Option('--all-nodes', 'list every node, not only those with trouble').default(false))
    .addOption(new Option('--node <name>', 'list this node only').conflicts('allNodes'))
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing status
  natoutgoing status --context production --all-nodes
  natoutgoing status -o json | jq -r '.problems[]'

The first line says "all is well", or how many problems there are; what several objects share is told once.
JSON: {healthy, problems, warnings, operator: {leader, renewedSecondsAgo, fresh}, calicoGroup,
  totals: {nodes, ready, withTrouble, driftRepairs, contended, overruled},
  policies: [{name, priority, mode, accepted, nodes, trouble}],
  plans: [{name, parts, of, contentHash, nodes, programmed, trouble}],
  nodes: [{name, plan, ready, backend, ipv4: {state, jumpPosition}, ipv6: {…}, driftRepairs, verifiedSecondsAgo,
    contended, overruled, trouble}]}
Exit codes: 0 all is well; 1 something is wrong; 2 wrong usage, or the cluster cannot be read.`,
    )
    .action(async (options: Options) => {
      const objects = await withApi(options, io, api => objectsOf(api, options.namespace, io.signal));
      const status = listing(clusterStatus(objects, Date.now()), options);
      io.out(options.output === 'json' ? json(status) : statusText(status, io));
      exit(status.healthy ? EXIT.ok : EXIT.refused);
    });

/** Everything that `status` is about. Rejects when any of it cannot be read: it would look as if it were not there. */
export async function objectsOf(api: Api, namespace: string, signal: AbortSignal): Promise<ClusterObjects> {
  const [policies, plans, masqNodes, nodes, calico, lease] = await Promise.all([
    demanded(api, 'policies', signal),
    demanded(api, 'masqPlans', signal),
    demanded(api, 'masqNodes', signal),
    demanded(api, 'nodes', signal),
    calicoPools(api, signal),
    leaseOf(api, namespace, signal),
  ]);
  const version = calico === undefined ? undefined : CALICO_VERSIONS[calico.group];
  return {
    policies,
    plans,
    masqNodes,
    nodes,
    lease,
    calicoGroup: version === undefined ? undefined : `${version.group}/${version.version}`,
  };
}

async function leaseOf(api: Api, namespace: string, signal: AbortSignal): Promise<RawObject | undefined> {
  const folder = `/apis/coordination.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/leases`;
  const request = { method: 'GET', path: `${folder}/${LEASE_NAME}` } as const;
  const answer = await api.request(request, signal);
  if (answer.status === 404) return undefined;
  if (answer.status === 200) return answer.body as RawObject;
  throw withNeed(refusedAnswer(request, answer), 'get', 'leases.coordination.k8s.io');
}

/** The same, with the nodes that were asked for. */
function listing(status: ClusterStatus, { allNodes, node }: Options): ClusterStatus {
  if (node === undefined) {
    return { ...status, nodes: status.nodes.filter(({ trouble }) => allNodes || trouble !== '') };
  }
  const nodes = status.nodes.filter(({ name }) => name === node);
  if (nodes.length === 0) throw new CommandError(`there is no Node ${JSON.stringify(node)} with a MasqNode`);
  return { ...status, nodes };
}
