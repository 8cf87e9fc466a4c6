import { Command } from 'commander';
import type { Backend } from '../kernel/backend.ts';
import { systemClock } from '../kernel/clock.ts';
import { createDriver, type DriverDiff } from '../kernel/driver.ts';
import { systemExec } from '../kernel/exec.ts';
import { silentLog } from '../kernel/log.ts';
import { isThisHost } from './host.ts';
import { CommandError, EXIT, type ExitCode, type Io, json } from './io.ts';
import { anyRefused, complaints, load, unusable } from './load.ts';
import { requireRoot } from './root.ts';
import { type OutputFormat, type PlanningOptions, withBackend, withOutput, withPlanning } from './options.ts';

interface Options extends PlanningOptions {
  readonly backend: 'auto' | Backend;
  readonly output: OutputFormat;
}

export const diffCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withBackend(withPlanning(new Command('diff'))))
    .description("compare this host's kernel with what manifests or the cluster want; writes nothing")
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing diff -f manifests/ --node worker-1
  natoutgoing diff --kubeconfig admin.conf --node worker-1

Without -f the objects of the cluster are read. The kernel is always this host's, so run it on the node.
Exit codes: 0 same; 1 differs; 2 wrong usage, an object was refused, or an error.`,
    )
    .action(async (options: Options) => {
      requireRoot('diff');
      const loaded = await load(options, io);
      for (const line of complaints(loaded)) io.err(`${line}\n`);
      const obstacle = unusable(loaded.manifests);
      if (obstacle !== undefined) throw new CommandError(`nothing was compared: ${obstacle}`);
      const { nodes } = loaded.manifests.snapshot;
      if (options.filename === undefined && !(await isThisHost(options.node, nodes, io.signal)))
        io.err(`warning: this host has neither the name nor an address of Node ${options.node}\n`);
      const driver = createDriver({
        exec: systemExec,
        clock: systemClock,
        backend: options.backend,
        log: silentLog,
      });
      const difference = await driver.diff(loaded.tables, io.signal);
      io.out(options.output === 'json' ? json(difference) : asText(difference));
      const families = Object.entries(difference.families);
      const failed = families.flatMap(([name, { error }]) =>
        error === undefined ? [] : [`${name}: ${error.message}`],
      );
      if (failed.length > 0) throw new CommandError(failed.join('; '));
      if (anyRefused(loaded.manifests))
        throw new CommandError('an object was refused, so not all is compared');
      exit(families.some(([, { differences }]) => differences.length > 0) ? EXIT.refused : EXIT.ok);
    });

const asText = (difference: DriverDiff): string =>
  Object.entries(difference.families)
    .flatMap(([family, { differences }]) =>
      differences.map(({ object, is, wanted }) => `${family} ${object}\n  - ${is}\n  + ${wanted}\n`),
    )
    .join('');
