import { Command, Option } from 'commander';
import type { Api, RawObject } from '../cluster/api.ts';
import { CALICO_VERSIONS } from '../operator/sources.ts';
import { groupInUse, listed, sourceOf, withApi } from './cluster-objects.ts';
import { CommandError, EXIT, type ExitCode, type Io, json, table } from './io.ts';
import { type ClusterOptions, type OutputFormat, withCluster, withOutput } from './options.ts';
import { type ClusterObjects, clusterStatus, type ClusterStatus, type NodeRow } from './status-model.ts';

interface Options extends ClusterOptions {
  readonly namespace: string;
  readonly allNodes: boolean;
  readonly node?: string;
  readonly output: OutputFormat;
}

export const statusCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withCluster(new Command('status')))
    .description('say how a cluster does: operator, policies, plans, nodes, and what is wrong')
    .addOption(
      new Option('--namespace <name>', "namespace of the operator's Lease")
        .env('NATOUTGOING_NAMESPACE')
        .default('natoutgoing'),
    )
    .addOption(new Option('--all-nodes', 'list every node, not only those with trouble').default(false))
    .addOption(new Option('--node <name>', 'list this node only'))
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing status
  natoutgoing status --context production --all-nodes
  natoutgoing status -o json | jq '.problems'

Exit codes: 0 all is well; 1 something is wrong; 2 wrong usage, or the cluster cannot be read.`,
    )
    .action(async (options: Options) => {
      const objects = await withApi(options, io, api => objectsOf(api, options.namespace, io.signal));
      const status = clusterStatus(objects, Date.now());
      if (options.node !== undefined && !status.nodes.some(({ name }) => name === options.node)) {
        throw new CommandError(`there is no MasqNode ${JSON.stringify(options.node)}`);
      }
      io.out(options.output === 'json' ? json(status) : asText(status, options, io));
      exit(status.healthy ? EXIT.ok : EXIT.refused);
    });

async function objectsOf(api: Api, namespace: string, signal: AbortSignal): Promise<ClusterObjects> {
  const ours = async (key: 'policies' | 'masqPlans' | 'masqNodes'): Promise<readonly RawObject[]> => {
    const objects = await listed(api, sourceOf(key), signal);
    if (objects !== undefined) return objects;
    const { what } = sourceOf(key);
    throw new CommandError(
      `the cluster has no ${what}: the CustomResourceDefinitions of natoutgoing.io are not installed`,
    );
  };
  const [policies, plans, masqNodes, nodes, group, lease] = await Promise.all([
    ours('policies'),
    ours('masqPlans'),
    ours('masqNodes'),
    listed(api, sourceOf('nodes'), signal),
    groupInUse(api, signal),
    api.request(
      {
        method: 'GET',
        path: `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/natoutgoing-operator`,
      },
      signal,
    ),
  ]);
  const { group: name, version } = CALICO_VERSIONS[group];
  return {
    policies,
    plans,
    masqNodes,
    // Windows has no iptables.
    nodes: (nodes ?? []).filter(isLinux),
    lease: lease.status === 200 ? (lease.body as RawObject) : undefined,
    calicoGroup: `${name}/${version}`,
  };
}

const isLinux = ({ metadata }: RawObject): boolean => {
  const labels = metadata['labels'] as Readonly<Record<string, unknown>> | null | undefined;
  return (labels?.['kubernetes.io/os'] ?? 'linux') === 'linux';
};

/** Problems that are printed; a rollout to thousands of nodes has as many. */
const MAX_PROBLEMS = 10;

function asText(status: ClusterStatus, options: Options, io: Io): string {
  const { problems, operator, totals, calicoGroup } = status;
  const more = problems.length > MAX_PROBLEMS ? [`  … and ${problems.length - MAX_PROBLEMS} more`] : [];
  const head =
    problems.length === 0
      ? 'all is well'
      : `${problems.length} ${problems.length === 1 ? 'problem' : 'problems'}:`;
  const lines = [
    head,
    ...problems.slice(0, MAX_PROBLEMS).map(problem => `  ${problem}`),
    ...more,
    '',
    `operator  ${operator.leader ?? 'none leads'}${operator.renewedSecondsAgo === null ? '' : `, ${operator.renewedSecondsAgo} s ago`}; reads ${calicoGroup}`,
    `nodes     ${totals.ready} of ${totals.nodes} ready; ${totals.driftRepairs} drift repairs; ${totals.contended} contended`,
    '',
  ];
  return [
    lines.join('\n'),
    policyTable(status, io),
    planTable(status, io),
    nodeTable(status, options, io),
  ].join('\n');
}

const policyTable = ({ policies }: ClusterStatus, io: Io): string =>
  policies.length === 0
    ? 'no policies\n'
    : table(
        [
          ['POLICY', 'PRIORITY', 'MODE', 'ACCEPTED', 'NODES', 'TROUBLE'],
          ...policies.map(it => [
            it.name,
            `${it.priority ?? '-'}`,
            it.mode,
            it.accepted,
            it.nodes,
            short(it.trouble),
          ]),
        ],
        io,
      );

const planTable = ({ plans }: ClusterStatus, io: Io): string =>
  plans.length === 0
    ? 'no plans\n'
    : table(
        [
          ['PLAN', 'PARTS', 'HASH', 'PROGRAMMED'],
          ...plans.map(it => [
            it.name,
            `${it.parts}`,
            it.contentHash.slice(0, 8),
            `${it.programmed}/${it.nodes}`,
          ]),
        ],
        io,
      );

function nodeTable({ nodes }: ClusterStatus, { allNodes, node }: Options, io: Io): string {
  const shown = nodes.filter(it => (node === undefined ? allNodes || it.trouble !== '' : it.name === node));
  if (shown.length === 0)
    return nodes.length === 0 ? 'no nodes\n' : 'no node has trouble (--all-nodes lists all)\n';
  const head = ['NODE', 'READY', 'BACKEND', 'IPV4', 'IPV6', 'JUMP', 'REPAIRS', 'VERIFIED', 'PLAN', 'TROUBLE'];
  return table([head, ...shown.map(nodeCells)], io);
}

const nodeCells = (row: NodeRow): readonly string[] => [
  row.name,
  row.ready,
  row.backend,
  row.ipv4,
  row.ipv6,
  `${row.jumpPosition ?? '-'}`,
  `${row.driftRepairs}`,
  row.verifiedSecondsAgo === null ? '-' : `${row.verifiedSecondsAgo} s ago`,
  row.plan,
  short(row.trouble),
];

/** A table's cell; -o json has all of it. */
const short = (text: string): string => (text.length <= 100 ? text : `${text.slice(0, 99)}…`);
