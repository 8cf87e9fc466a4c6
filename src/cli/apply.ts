import { Command, Option } from 'commander';
import { createKeeper } from '../applier/keeper.ts';
import { type ApplyRecord, openRecord } from '../applier/record.ts';
import { createRivalWatch, lookForRivals, type RivalsByFamily } from '../applier/rival-watch.ts';
import type { Backend } from '../kernel/backend.ts';
import { systemClock } from '../kernel/clock.ts';
import { createDriver, type Driver } from '../kernel/driver.ts';
import { systemExec } from '../kernel/exec.ts';
import type { DriverReport } from '../kernel/report.ts';
import { hostAddresses, missingAddresses } from './host.ts';
import { CommandError, EXIT, type ExitCode, type Io, json } from './io.ts';
import { anyRefused, complaints, type Loaded, load, unusable } from './load.ts';
import { requireRoot } from './root.ts';
import {
  type FileOptions,
  type OutputFormat,
  type PlanFlags,
  withBackend,
  withFiles,
  withNode,
  withOutput,
  withPlanFlags,
} from './options.ts';
import { anyFailed, reportNotes, reportText, rivalNotes } from './report.ts';
import { signatureOf, untilChanged } from './watch-files.ts';

interface Options extends FileOptions, PlanFlags {
  readonly node: string;
  readonly watch: boolean;
  readonly backend: 'auto' | Backend;
  readonly stateFile: string;
  readonly output: OutputFormat;
}

export const applyCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withBackend(withPlanFlags(withNode(withFiles(new Command('apply'))))))
    .description("put the rules into this host's kernel, as the applier of a cluster does")
    .addOption(
      new Option('--watch', 'go on: apply changes of the files, verify, repair; ends on SIGTERM').default(
        false,
      ),
    )
    .addOption(
      new Option('--state-file <path>', 'remembers what was applied, to know which connections changed')
        .env('NATOUTGOING_STATE_FILE')
        .default('/run/natoutgoing/applied.json'),
    )
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing apply -f manifests/ --node worker-1
  natoutgoing apply -f manifests/ --node worker-1 --watch

Rules stay when the command ends; natoutgoing cleanup removes them.
A file that cannot be read, and a folder without objects, change nothing.
Exit codes: 0 done; 1 an object was refused (the others are applied); 2 wrong usage, or an error.`,
    )
    .action(async (options: Options) => {
      requireRoot('apply');
      const driver = createDriver({
        exec: systemExec,
        clock: systemClock,
        backend: options.backend,
        log: { info: () => {}, warn: (_fields, message) => io.err(`warning: ${message}\n`) },
      });
      const { record, notes } = await openRecord({
        path: options.stateFile,
        nodeName: options.node,
        exec: systemExec,
        clock: systemClock,
        now: () => new Date(),
      });
      for (const note of notes) io.err(`${note}\n`);
      if (options.watch) return watch(options, io, driver, record);
      const loaded = await loadAndTell(options, io);
      const obstacle = unusable(loaded.manifests);
      if (obstacle !== undefined) throw new CommandError(`nothing was changed: ${obstacle}`);
      const report = await driver.apply(loaded.tables, io.signal);
      const flushed = anyFailed(report) ? undefined : await record.applied(loaded, io.signal);
      const rivals = anyFailed(report) ? undefined : await lookForRivals(systemExec, loaded.plan, io.signal);
      if (rivals !== undefined) for (const note of rivalNotes(rivals)) io.err(`${note}\n`);
      tell(report, flushed, options, io, rivals);
      if (anyFailed(report)) return exit(EXIT.error);
      exit(anyRefused(loaded.manifests) ? EXIT.refused : EXIT.ok);
    });

async function loadAndTell(options: Options, io: Io, earlier?: Loaded): Promise<Loaded> {
  const loaded = await load(options, io, earlier?.resolver);
  const warnings = missingAddresses(loaded.plan, loaded.values, await hostAddresses(io.signal));
  for (const line of [...complaints(loaded), ...warnings]) io.err(`${line}\n`);
  return loaded;
}

type Flushed = Awaited<ReturnType<ApplyRecord['applied']>>;

function tell(
  report: DriverReport,
  flushed: Flushed | undefined,
  options: Options,
  io: Io,
  rivals?: RivalsByFamily,
): void {
  for (const note of [...reportNotes(report), ...(flushed?.notes ?? [])]) io.err(`${note}\n`);
  io.out(
    options.output === 'json'
      ? json({ ...report, flushed: flushed?.flush.deleted ?? 0, ...(rivals === undefined ? {} : { rivals }) })
      : reportText(report, io),
  );
}

/** Applies, follows the files, verifies and repairs until the signal. Reports only what changed or failed. */
async function watch(options: Options, io: Io, driver: Driver, record: ApplyRecord): Promise<void> {
  let told = '';
  let toldOfRivals = '';
  const rivals = createRivalWatch({ exec: systemExec, clock: systemClock }, found => {
    const notes = rivalNotes(found).join('\n');
    if (notes !== toldOfRivals)
      io.err(notes === '' ? 'note: no rule of others is asked before ours any more\n' : `${notes}\n`);
    toldOfRivals = notes;
  });
  const keeper = createKeeper<Loaded>({
    driver,
    clock: systemClock,
    random: Math.random,
    onReport: async (report, occasion, loaded) => {
      const flushed =
        occasion === 'apply' && !anyFailed(report) ? await record.applied(loaded, io.signal) : undefined;
      const notes = reportNotes(report).join('\n');
      // A fault that lasts is told once, not every 30 seconds.
      if (occasion === 'apply' || report.changed || notes !== told) tell(report, flushed, options, io);
      told = notes;
      if (!anyFailed(report)) rivals.inForce(loaded.plan);
    },
  });
  await Promise.all([
    keeper.run(io.signal),
    rivals.run(io.signal),
    followFiles(options, io, loaded => keeper.want(loaded)),
  ]);
}

async function followFiles(options: Options, io: Io, want: (loaded: Loaded) => void): Promise<void> {
  let loaded: Loaded | undefined;
  while (!io.signal.aborted) {
    // The signature is taken before reading, so that a change in between is seen as one.
    const seen = await signatureOf(options.filename);
    loaded = await loadAndTell(options, io, loaded);
    const obstacle = unusable(loaded.manifests);
    if (obstacle === undefined) want(loaded);
    else io.err(`error: the rules stay as they are: ${obstacle}\n`);
    await untilChanged(options.filename, seen, systemClock, io.signal).catch(() => {});
  }
}
