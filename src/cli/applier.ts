import { Command, Option } from 'commander';
import type { Endpoint } from '../cluster/endpoint.ts';
import { inClusterEndpoint, SERVICE_ACCOUNT_FOLDER } from '../cluster/in-cluster.ts';
import type { Backend } from '../kernel/backend.ts';
import { systemClock } from '../kernel/clock.ts';
import { systemExec } from '../kernel/exec.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import { requireRoot } from './load.ts';
import {
  type ClusterOptions,
  type ServiceOptions,
  withBackend,
  withCluster,
  withNode,
  withService,
} from './options.ts';

interface Options extends ClusterOptions, ServiceOptions {
  readonly node: string;
  readonly backend: 'auto' | Backend;
  readonly stateFile: string;
  readonly apiServer?: string;
  readonly serviceAccount: string;
}

export const applierCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withService(withBackend(withCluster(withNode(new Command('applier')))), '127.0.0.1:9808')
    .description("keep this node's kernel as the cluster's plans say")
    .addOption(
      new Option('--state-file <path>', 'the last good plan, applied at boot before the API answers')
        .env('NATOUTGOING_STATE_FILE')
        .default('/var/lib/natoutgoing/applied.json'),
    )
    .addOption(
      new Option(
        '--api-server <url>',
        "API server, where it is not to be reached by the cluster's Service",
      ).env('NATOUTGOING_API_SERVER'),
    )
    .addOption(
      new Option('--service-account <folder>', 'folder with token and ca.crt')
        .env('NATOUTGOING_SERVICE_ACCOUNT')
        .default(SERVICE_ACCOUNT_FOLDER),
    )
    .addHelpText(
      'after',
      `
Example:
  natoutgoing applier --node worker-1

Rules stay when it ends; natoutgoing cleanup removes them. The log is JSON on stdout.
Exit codes: 0 ended by SIGTERM or SIGINT; 2 wrong usage, or it could not start.`,
    )
    .action(async (options: Options) => {
      requireRoot('applier');
      const [{ runApplier }, { createHttpsApi }, { createLog }] = await Promise.all([
        import('../applier/program.ts'),
        import('../cluster/https.ts'),
        import('../telemetry/log.ts'),
      ]);
      const api = createHttpsApi(await endpointOf(options, io));
      try {
        await runApplier(
          {
            api,
            nodeName: options.node,
            stateFile: options.stateFile,
            backend: options.backend,
            healthAddress: options.healthAddress,
            exec: systemExec,
            clock: systemClock,
            wallClock: () => new Date(),
            random: Math.random,
            log: createLog(options.logLevel),
          },
          io.signal,
        );
      } catch (error) {
        if (!io.signal.aborted)
          throw new CommandError(error instanceof Error ? error.message : String(error));
      } finally {
        api.close();
      }
      exit(EXIT.ok);
    });

/** A kubeconfig costs the Kubernetes client's memory, so only who asks for one pays. */
async function endpointOf(options: Options, io: Io): Promise<Endpoint> {
  if (options.kubeconfig !== undefined || options.context !== undefined) {
    const { kubeconfigEndpoint } = await import('../cluster/kubeconfig.ts');
    return kubeconfigEndpoint({ file: options.kubeconfig, context: options.context });
  }
  return inClusterEndpoint({
    folder: options.serviceAccount,
    env: io.env,
    now: () => systemClock.now(),
    ...(options.apiServer === undefined ? {} : { url: options.apiServer }),
  });
}
