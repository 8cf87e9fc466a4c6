// The command line: subcommands, exit codes, errors as one sentence.
import { Command, CommanderError } from 'commander';
import { messageOf } from '../kernel/errors.ts';
import { CommandError, EXIT, type ExitCode, type Io } from './io.ts';
import { VERSION } from './version.ts';

/** Makes a command; it says with which code the program shall end. */
export type MakeCommand = (io: Io, exit: (code: ExitCode) => void) => Command;

/** Runs one command line of a program with these commands, and returns its exit code. */
export async function run(
  args: readonly string[],
  io: Io,
  commands: readonly MakeCommand[],
): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.ok;
  const program = new Command('natoutgoing')
    .description('decides which pod traffic leaves a node with the node’s, a chosen or the pod’s own address')
    .version(VERSION, '-V, --version')
    .addHelpText(
      'after',
      `
Example:
  natoutgoing check -f manifests/ && natoutgoing apply -f manifests/ --node "$(hostname)"

Exit codes: 0 done; 1 refused, or differs; 2 wrong usage, or an error.`,
    );
  for (const make of commands) program.addCommand(make(io, code => void (exitCode = code)));
  for (const command of [program, ...program.commands]) {
    command
      .exitOverride()
      .showHelpAfterError('(add --help for the options and an example)')
      .configureOutput({ writeOut: text => io.out(text), writeErr: text => io.err(text) });
  }
  try {
    await program.parseAsync([...args], { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.error;
    io.err(`error: ${messageOf(error)}\n`);
    return error instanceof CommandError ? error.exitCode : EXIT.error;
  }
}
