import { Command, Option } from 'commander';
import { cleanup, type CleanupReport } from '../kernel/cleanup.ts';
import { systemExec } from '../kernel/exec.ts';
import { silentLog } from '../kernel/log.ts';
import { EXIT, type ExitCode, type Io, json } from './io.ts';
import { cleanupNodes } from './cleanup-nodes.ts';
import { requireRoot } from './root.ts';
import {
  type OutputFormat,
  type PodOptions,
  parseDuration,
  withLease,
  withOutput,
  withPod,
} from './options.ts';

export interface CleanupOptions extends PodOptions {
  readonly dryRun: boolean;
  readonly allNodes?: true;
  readonly namespace: string;
  readonly operatorDeployment: string;
  readonly timeLimit: number;
  readonly bestEffort: boolean;
  readonly output: OutputFormat;
}

export const cleanupCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withLease(withPod(withOutput(new Command('cleanup'))))
    .description(
      "remove everything of ours from this host's kernel, or with --all-nodes from a cluster's nodes",
    )
    .addOption(new Option('--dry-run', 'only say what would be removed from this host').default(false))
    .addOption(
      new Option(
        '--all-nodes',
        'stop the operator, let the applier of every node remove what is ours there, and delete MasqNodes and MasqPlans; policies stay',
      ).conflicts('dryRun'),
    )
    .addOption(
      new Option(
        '--operator-deployment <name>',
        'with --all-nodes: the Deployment that is scaled to 0',
      ).default('natoutgoing-operator'),
    )
    .addOption(
      new Option(
        '--time-limit <duration>',
        'with --all-nodes: how long the operator to stop, and then nodes, are waited for (5s to 1h)',
      )
        .argParser(parseDuration)
        .default(120_000, '120s'),
    )
    .addOption(
      new Option('--best-effort', 'with --all-nodes: exit code 0 also when nodes are left').default(false),
    )
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing cleanup --dry-run
  natoutgoing cleanup --all-nodes --time-limit 5m

Connections that live keep their translation. It may be called as often as wanted.
JSON with --all-nodes: {removed: [node], left: [{name, reason}]}
Exit codes: 0 nothing of ours is left; 1 with --all-nodes: nodes are left; 2 wrong usage, or something could not be
removed.`,
    )
    .action(async (options: CleanupOptions) => {
      if (options.allNodes === true) return exit(await cleanupNodes(options, io));
      requireRoot('cleanup');
      const report = await cleanup({ exec: systemExec, log: silentLog, dryRun: options.dryRun }, io.signal);
      io.out(options.output === 'json' ? json(report) : asText(report, options.dryRun));
      for (const { family, object, message } of report.failed)
        io.err(`error: ${family} ${object}: ${message}\n`);
      exit(report.ok ? EXIT.ok : EXIT.error);
    });

function asText(report: CleanupReport, dryRun: boolean): string {
  if (report.removed.length === 0 && report.failed.length === 0) return 'nothing of ours is there\n';
  const verb = dryRun ? 'would remove' : 'removed';
  return report.removed
    .map(
      ({ family, backend, object }) =>
        `${verb} ${family}${backend === undefined ? '' : ` ${backend}`} ${object}\n`,
    )
    .join('');
}
