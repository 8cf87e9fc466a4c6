import { Command, Option } from 'commander';
import type { FamilyTables } from '../render/tables.ts';
import { ipsetText, iptablesText } from '../render/text.ts';
import { EXIT, type ExitCode, type Io, json } from './io.ts';
import { anyRefused, complaints, load } from './load.ts';
import { type OutputFormat, type PlanningOptions, withOutput, withPlanning } from './options.ts';

interface Options extends PlanningOptions {
  readonly family?: '4' | '6';
  readonly output: OutputFormat;
}

export const renderCommand = (io: Io, exit: (code: ExitCode) => void): Command =>
  withOutput(withPlanning(new Command('render')))
    .description('print what would be given to ipset restore and iptables-restore on a node')
    .addOption(new Option('--family <family>', 'only this family').choices(['4', '6']))
    .addHelpText(
      'after',
      `
Examples:
  natoutgoing render -f pools.yaml -f policies/ --node worker-1 --family 4
  natoutgoing render --context production --node worker-1

Without -f the objects of the cluster are read.
Exit codes: 0 done; 1 an object was refused (the others are rendered); 2 wrong usage or error.`,
    )
    .action(async (options: Options) => {
      const loaded = await load(options, io);
      for (const line of complaints(loaded)) io.err(`${line}\n`);
      const tables = loaded.tables.filter(
        ({ family }) => options.family === undefined || `${family}` === options.family,
      );
      io.out(options.output === 'json' ? json(tables.map(asJson)) : tables.map(asText).join('\n'));
      exit(anyRefused(loaded.manifests) ? EXIT.refused : EXIT.ok);
    });

const asText = (tables: FamilyTables): string =>
  `# IPv${tables.family}: ipset restore\n${ipsetText(tables)}\n` +
  `# IPv${tables.family}: ip${tables.family === 4 ? '' : '6'}tables-restore --noflush\n${iptablesText(tables)}`;

const asJson = (tables: FamilyTables): object => ({
  family: tables.family,
  sets: tables.sets,
  chains: tables.chains,
  jump: tables.jump,
  ipsetRestore: ipsetText(tables),
  iptablesRestore: iptablesText(tables),
});
