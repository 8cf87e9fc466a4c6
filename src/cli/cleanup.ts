import { Command, Option } from 'commander';
import { cleanup, type CleanupReport } from '../kernel/cleanup.ts';
import { systemExec } from '../kernel/exec.ts';
import { silentLog } from '../kernel/log.ts';
import { EXIT, type ExitCode, type Io, json } from './io.ts';
import { requireRoot } from './root.ts';
import { type OutputFormat, withOutput } from './options.ts';

interface Options {
  readonly dryRun: boolean;
  readonly output: OutputFormat;
}

export const cleanupCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(new Command('cleanup'))
    .description("remove everything of ours from this host's kernel: both families, both backends")
    .addOption(new Option('--dry-run', 'only say what would be removed').default(false))
    .addHelpText(
      'after',
      `
Example:
  natoutgoing cleanup --dry-run

Connections that live keep their translation. It may be called as often as wanted.
Exit codes: 0 nothing of ours is left; 2 wrong usage, or something could not be removed.`,
    )
    .action(async (options: Options) => {
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
