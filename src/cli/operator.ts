import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { messageOf } from '../kernel/errors.ts';
import { endpointOf } from './endpoint.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import {
  type PodOptions,
  type PlanFlags,
  planOptions,
  type ServiceOptions,
  withPlanFlags,
  withPod,
  withService,
} from './options.ts';

interface Options extends PodOptions, PlanFlags, ServiceOptions {
  readonly namespace: string;
  readonly leaseSeconds: number;
  readonly calicoApiGroup: 'auto' | 'crd.projectcalico.org/v1' | 'projectcalico.org/v3';
}

const GROUPS = { auto: undefined, 'crd.projectcalico.org/v1': 'v1', 'projectcalico.org/v3': 'v3' } as const;

export const operatorCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withService(withPlanFlags(withPod(new Command('operator'))), ':9807')
    .description('watch the cluster and write the plans that the nodes follow')
    .addOption(
      new Option('--namespace <name>', 'namespace of the Lease by which one of several replicas leads')
        .env('NATOUTGOING_NAMESPACE')
        .default('natoutgoing'),
    )
    .addOption(
      new Option(
        '--lease-seconds <n>',
        'after so many seconds without a word of the leader another replica takes over (3 to 600)',
      )
        .argParser(parseSeconds)
        .env('NATOUTGOING_LEASE_SECONDS')
        .default(15),
    )
    .addOption(
      new Option(
        '--calico-api-group <group>',
        'API group of Calico that is read; auto follows what the cluster serves, also through a migration',
      )
        .choices(Object.keys(GROUPS))
        .env('NATOUTGOING_CALICO_API_GROUP')
        .default('auto'),
    )
    .addHelpText(
      'after',
      `
Example:
  natoutgoing operator --kubeconfig ~/.kube/config --namespace natoutgoing

Plans stay in force when it ends; the log is JSON on stdout.
Exit codes: 0 ended by SIGTERM or SIGINT; 2 wrong usage, or it could not start.`,
    )
    .action(async (options: Options) => {
      // dot-i's Operator reads the default kubeconfig by itself, and fails where that is broken.
      if (options.kubeconfig !== undefined) process.env['KUBECONFIG'] = options.kubeconfig;
      // Only this command pays for the Kubernetes client's memory.
      const [{ runOperator }, { createLog }] = await Promise.all([
        import('../operator/program.ts'),
        import('../telemetry/log.ts'),
      ]);
      const demandedGroup = GROUPS[options.calicoApiGroup];
      try {
        await runOperator(
          {
            endpoint: await endpointOf(options, io),
            namespace: options.namespace,
            leaseMs: options.leaseSeconds * 1000,
            // Two processes of one host name would take each other's Lease for their own.
            identity: `${hostname()}-${randomBytes(4).toString('hex')}`,
            planOptions: planOptions(options),
            ...(demandedGroup === undefined ? {} : { demandedGroup }),
            healthAddress: options.healthAddress,
            log: createLog(options.logLevel),
          },
          io.signal,
        );
      } catch (error) {
        if (!io.signal.aborted) throw new CommandError(messageOf(error));
      }
      exit(EXIT.ok);
    });

function parseSeconds(text: string): number {
  const seconds = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (seconds >= 3 && seconds <= 600) return seconds;
  throw new InvalidArgumentError('A whole number from 3 to 600 is expected.');
}
