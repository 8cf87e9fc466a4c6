// Options that several commands share, each with an environment twin NATOUTGOING_….
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { PlanOptions } from '../planner/assemble.ts';
import { SERVICE_ACCOUNT_FOLDER } from '../cluster/in-cluster.ts';
import { LOG_LEVELS, type LogLevel } from '../telemetry/log-level.ts';

export interface FileOptions {
  readonly filename: readonly string[];
}

export interface PlanningOptions extends ObjectOptions, PlanFlags {
  readonly node: string;
}

/** The options of the operator that decide what is planned. */
export interface PlanFlags {
  readonly kubeMark: number;
  readonly tunnelInterface: readonly string[];
  readonly felixConfig: boolean;
}

export type OutputFormat = 'text' | 'json';

const INTERFACE_NAME = /^[A-Za-z0-9_.:-]{1,15}$/;

/** Where the Lease is by which one operator leads. */
export const withLease = (command: Command): Command =>
  command.addOption(
    new Option('--namespace <name>', "namespace of the operator's Lease")
      .env('NATOUTGOING_NAMESPACE')
      .default('natoutgoing'),
  );

const collect = (value: string, previous: readonly string[] | undefined): readonly string[] => [
  ...(previous ?? []),
  value,
];

const filename = (): Option =>
  new Option(
    '-f, --filename <path>',
    'file or folder of manifests (YAML or JSON), - for standard input; may be given again',
  ).argParser(collect);

export const withFiles = (command: Command): Command => command.addOption(filename().makeOptionMandatory());

/** Where a command reads from: manifests, or without -f the cluster. */
export interface ObjectOptions extends ClusterOptions {
  readonly filename?: readonly string[];
}

export const withObjects = (command: Command): Command =>
  withCluster(command.addOption(filename())).hook('preAction', (_, action) => {
    // Who gives -f means files, also where the environment names a cluster for all commands.
    if (action.getOptionValue('filename') === undefined) return;
    for (const name of ['kubeconfig', 'context'])
      if (action.getOptionValueSource(name) === 'env') action.setOptionValue(name, undefined);
  });

export const withOutput = (command: Command): Command =>
  command.addOption(
    new Option('-o, --output <format>', 'output format').choices(['text', 'json']).default('text'),
  );

export const withBackend = (command: Command): Command =>
  command.addOption(
    new Option(
      '--backend <backend>',
      'iptables backend; auto takes the one that kubelet, kube-proxy and Felix use',
    )
      .choices(['auto', 'nft', 'legacy'])
      .default('auto')
      .env('NATOUTGOING_BACKEND'),
  );

/** The node and the options of the operator that decide what the node's plan is. */
export const withPlanning = (command: Command): Command => withPlanFlags(withNode(withObjects(command)));

export const withNode = (command: Command): Command =>
  command.addOption(
    new Option('--node <name>', 'name of the Node whose rules are meant')
      .env('NATOUTGOING_NODE')
      .makeOptionMandatory(),
  );

export const withPlanFlags = (command: Command): Command =>
  command
    .addOption(
      new Option('--kube-mark <mark>', "kube-proxy's masquerade mark, one bit")
        .env('NATOUTGOING_KUBE_MARK')
        .argParser(parseMark)
        .default(0x4000, '0x4000'),
    )
    .addOption(
      new Option('--tunnel-interface <name>', 'masquerade host traffic into this tunnel; may be given again')
        .env('NATOUTGOING_TUNNEL_INTERFACES')
        .argParser(parseInterfaces)
        .default([], 'none'),
    )
    .addOption(
      new Option(
        '--no-felix-config',
        "do not take over the natOutgoing options of Calico's FelixConfiguration",
      ),
    );

export const planOptions = (options: PlanFlags): PlanOptions => ({
  kubeMark: options.kubeMark,
  tunnelInterfaces: options.tunnelInterface,
  inheritFelix: options.felixConfig,
});

const SECONDS_OF = { s: 1, m: 60, h: 3600 } as const;

/** "90s", "5m" or "1h" → milliseconds. */
export function parseDuration(text: string): number {
  const [, count = '', unit = 's'] = /^([0-9]{1,5})([smh])$/.exec(text) ?? [];
  const seconds = Number(count) * SECONDS_OF[unit as keyof typeof SECONDS_OF];
  if (!(seconds >= 5 && seconds <= 3600)) {
    throw new InvalidArgumentError('A duration from 5s to 1h is expected, such as 120s or 5m.');
  }
  return seconds * 1000;
}

export function parseMark(text: string): number {
  const mark = /^(0x[0-9a-fA-F]{1,8}|[0-9]{1,10})$/.test(text) ? Number(text) : Number.NaN;
  if (!(mark > 0 && mark <= 0xffffffff) || mark.toString(2).replaceAll('0', '').length !== 1) {
    throw new InvalidArgumentError('A mark of one bit is expected, such as 0x4000.');
  }
  return mark;
}

function parseApiServer(text: string): string {
  if (URL.canParse(text) && new URL(text).protocol === 'https:') return text;
  throw new InvalidArgumentError('An address is expected that begins with https://.');
}

function parseInterfaces(text: string, previous: readonly string[]): readonly string[] {
  const names = text.split(',');
  const wrong = names.find(name => !INTERFACE_NAME.test(name));
  if (wrong !== undefined) {
    throw new InvalidArgumentError(
      `${JSON.stringify(wrong)} is not an interface name of 1 to 15 characters.`,
    );
  }
  return [...previous, ...names];
}

export interface ClusterOptions {
  readonly kubeconfig?: string;
  readonly context?: string;
}

export const withCluster = (command: Command): Command =>
  command
    .addOption(
      new Option(
        '--kubeconfig <path>',
        'kubeconfig of the cluster (else KUBECONFIG, the account of the pod, ~/.kube/config)',
      ).env('NATOUTGOING_KUBECONFIG'),
    )
    .addOption(new Option('--context <name>', 'context of the kubeconfig').env('NATOUTGOING_CONTEXT'));

/** For what may run in a pod: the account stands in a folder. */
export interface PodOptions extends ClusterOptions {
  readonly apiServer?: string;
  readonly serviceAccount: string;
}

export const withPod = (command: Command): Command =>
  withCluster(command)
    .addOption(
      new Option(
        '--api-server <url>',
        "API server that is spoken to with the pod's account, instead of the cluster's Service",
      )
        .env('NATOUTGOING_API_SERVER')
        .argParser(parseApiServer)
        // A kubeconfig names its own server, and its credentials are for no other.
        .conflicts(['kubeconfig', 'context']),
    )
    .addOption(
      new Option('--service-account <folder>', "folder with the account's token and ca.crt")
        .env('NATOUTGOING_SERVICE_ACCOUNT')
        .default(SERVICE_ACCOUNT_FOLDER),
    );

export interface ServiceOptions {
  readonly healthAddress: string;
  readonly logLevel: LogLevel;
}

/** What both long-running parts have. */
export const withService = (command: Command, healthAddress: string): Command =>
  command
    .addOption(
      new Option(
        '--health-address <address>',
        'where /healthz, /readyz and /metrics are served; empty: nowhere',
      )
        .env('NATOUTGOING_HEALTH_ADDRESS')
        .default(healthAddress),
    )
    .addOption(
      new Option('--log-level <level>', 'least level of the log')
        .choices(LOG_LEVELS)
        .env('NATOUTGOING_LOG_LEVEL')
        .default('info'),
    );
