import { Command, Option } from 'commander';
import type { Backend } from '../kernel/backend.ts';
import { systemClock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/errors.ts';
import { systemExec } from '../kernel/exec.ts';
import { endpointOf } from './endpoint.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import { requireRoot } from './root.ts';
import {
  type PodOptions,
  type ServiceOptions,
  withBackend,
  withNode,
  withPod,
  withService,
} from './options.ts';

interface Options extends PodOptions, ServiceOptions {
  readonly node: string;
  readonly backend: 'auto' | Backend;
  readonly stateFile: string;
}

export const applierCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withService(withBackend(withPod(withNode(new Command('applier')))), '127.0.0.1:9808')
    .description("keep this node's kernel as the cluster's plans say")
    .addOption(
      new Option('--state-file <path>', 'the last good plan, applied at boot before the API answers')
        .env('NATOUTGOING_STATE_FILE')
        .default('/var/lib/natoutgoing/applied.json'),
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
        if (!io.signal.aborted) throw new CommandError(messageOf(error));
      } finally {
        api.close();
      }
      exit(EXIT.ok);
    });
