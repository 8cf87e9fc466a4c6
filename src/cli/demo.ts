import { Command } from 'commander';
import { DEMO_NODE } from '../demo/manifests.ts';
import { runDemo } from '../demo/run.ts';
import { DEMO_WORLD } from '../demo/scenario.ts';
import { openWorld } from '../demo/world.ts';
import { systemClock } from '../kernel/clock.ts';
import { createDriver } from '../kernel/driver.ts';
import { silentLog } from '../kernel/log.ts';
import { DEFAULT_OPTIONS } from '../planner/assemble.ts';
import { explain, packetOf, parseIp, parseProtocol } from './explain.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import { complaints, type Loaded, load } from './load.ts';
import { requireRoot } from './root.ts';
import type { PlanningOptions } from './options.ts';
import { anyFailed, reportNotes, reportText } from './report.ts';

export const demoCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  new Command('demo')
    .description(
      'show what the rules do to real packets, in network namespaces of its own; touches nothing else',
    )
    .addHelpText(
      'after',
      `
Example:
  natoutgoing demo

Exit codes: 0 every packet went as expected; 1 one did not; 2 an error.`,
    )
    .action(async () => {
      requireRoot('demo');
      const world = await openWorld(DEMO_WORLD, io.signal);
      try {
        let loaded: Loaded | undefined;
        const good = await runDemo({
          world,
          write: text => io.out(text),
          applyManifests: async files => {
            loaded = await load(demoOptions(files), io);
            const driver = createDriver({
              exec: world.exec,
              clock: systemClock,
              backend: 'auto',
              log: silentLog,
            });
            const report = await driver.apply(loaded.tables, io.signal);
            io.out(`${reportText(report, io)}\n`);
            for (const line of [...complaints(loaded), ...reportNotes(report)]) io.err(`${line}\n`);
            if (anyFailed(report)) throw new CommandError('the rules could not be put into the kernel');
          },
          explain: async packet => {
            if (loaded === undefined) throw new Error('explain before apply');
            return explain(
              loaded,
              packetOf({
                src: parseIp(packet.source),
                dst: parseIp(packet.destination),
                protocol: parseProtocol(packet.protocol),
                outInterface: packet.outInterface,
                mark: 0,
                ...(packet.destinationPort === undefined ? {} : { dport: packet.destinationPort }),
              }),
            );
          },
        });
        exit(good ? EXIT.ok : EXIT.refused);
      } finally {
        await world.close();
      }
    });

const demoOptions = (files: readonly string[]): PlanningOptions => ({
  filename: files,
  node: DEMO_NODE,
  kubeMark: DEFAULT_OPTIONS.kubeMark,
  tunnelInterface: DEFAULT_OPTIONS.tunnelInterfaces,
  felixConfig: true,
});
