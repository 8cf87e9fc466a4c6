import { Argument, Command, Option } from 'commander';
import { stringify } from 'yaml';
import { isObjectName } from '../api/values.ts';
import { messageOf } from '../kernel/errors.ts';
import { AGENT_FORMS, type AgentFlags, type AgentForm, readAgent } from '../migrate/agent.ts';
import { findAgent, type Found, merged, type ReadText } from '../migrate/agent-objects.ts';
import { masqPolicyOf, MOST_SPARED } from '../migrate/masq-policy.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import { documentsOf } from './manifest-documents.ts';
import { fileName, textAt } from './manifests.ts';

interface Options {
  readonly filename: readonly string[];
  readonly form?: AgentForm;
  readonly enableIpv6?: boolean;
  readonly nomasqAllReservedRanges?: boolean;
  readonly name: string;
}

export const migrateCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  new Command('migrate')
    .description('turn the configuration of ip-masq-agent into a MasqPolicy; questions go to stderr')
    .addArgument(new Argument('<from>', 'what is replaced').choices(['ip-masq-agent']))
    .requiredOption(
      '-f, --filename <path...>',
      'its configuration, ConfigMap, DaemonSet (for its arguments) or EgressNATPolicy; - is stdin',
    )
    .addOption(
      new Option('--form <form>', 'whose agent it is; told from the objects where they say so').choices(
        AGENT_FORMS,
      ),
    )
    .option('--enable-ipv6', 'the agent runs with this flag')
    .option('--nomasq-all-reserved-ranges', 'the agent runs with this flag')
    .option('--name <name>', 'name of the MasqPolicy', 'ip-masq-agent')
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing migrate ip-masq-agent -f config > policy.yaml
  kubectl -n kube-system get configmap/ip-masq-agent daemonset/ip-masq-agent -o yaml |
    natoutgoing migrate ip-masq-agent -f - > policy.yaml

Nothing is changed anywhere; answer the questions on stderr before you apply the policy.
Exit codes: 0 done; 1 what the agent itself would refuse, with file, field and reason; 2 wrong usage or error.`,
    )
    .action(async (_from: string, options: Options) => {
      if (!isObjectName(options.name))
        throw new CommandError(`--name: ${JSON.stringify(options.name)} is no name of an object`);
      const found = merged(await Promise.all(options.filename.map(path => findIn(path, io))));
      const flags = flagsOf(options, found);
      const read = readAgent(found.sources, flags);
      const faults = [...found.faults, ...(read.ok ? tooMany(read.agent.spared.length) : read.faults)];
      for (const fault of faults) io.err(`${fault}\n`);
      if (!read.ok || faults.length > 0) return exit(EXIT.refused);
      for (const question of [...read.questions, ...questionsOf(flags, found)])
        io.err(`question: ${question}\n`);
      io.out(stringify(masqPolicyOf(read.agent, options.name)));
    });

async function findIn(path: string, io: Io): Promise<Found> {
  const file = fileName(path);
  const text = await textAt(path, () => io.readStdin(), io.signal).catch((error: unknown) => {
    throw new CommandError(`${file}: cannot be read: ${messageOf(error)}`);
  });
  const { values, problems } = readText(file, text);
  return problems.length > 0
    ? { sources: [], flags: {}, faults: problems }
    : findAgent(file, values, readText);
}

const readText: ReadText = (where, text) => {
  const { objects, problems } = documentsOf(where, text);
  return { values: objects.map(({ value }) => value), problems };
};

/** What the user says counts more than what objects tell. */
const flagsOf = (options: Options, { flags }: Found): AgentFlags => ({
  form: options.form ?? flags.form ?? 'kubernetes',
  ipv6: options.enableIpv6 ?? flags.ipv6 ?? false,
  allReserved: options.nomasqAllReservedRanges ?? flags.allReserved ?? false,
});

const tooMany = (count: number): readonly string[] =>
  count <= MOST_SPARED
    ? []
    : [`${count} CIDRs do not fit into one MasqPolicy (${MOST_SPARED}): put them into a GlobalNetworkSet`];

/** What the files cannot answer. */
function questionsOf(flags: AgentFlags, { chain = 'IP-MASQ-AGENT' }: Found): readonly string[] {
  return [
    'does Calico masquerade what the agent spares? An IPPool with natOutgoing does, and Preserve ends it: hosts in ' +
      'these ranges then see addresses of pods and need a way back to them',
    'shall pods see one another by their own addresses? Rule cluster-pods says so for all IPPools, listed with the ' +
      'agent or not; the agent masquerades to pods that its list misses',
    'does something rely on the source ports? Newer agents masquerade to 32768-65535 only; if so add portRange to ' +
      'rule everything-else',
    ...(flags.ipv6
      ? []
      : [
          'does the agent run with --enable-ipv6? Without it IPv6 is left alone, and so it is by this policy',
        ]),
    `is the agent gone? Its DaemonSet leaves chain ${chain} behind on every node, which natoutgoing status names until ` +
      'it is removed (docs/migration.md)',
  ];
}
