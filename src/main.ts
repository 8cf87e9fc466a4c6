// The process around the command: streams, signals, exit code.
import { setMaxListeners } from 'node:events';
import { text } from 'node:stream/consumers';
import { applierCommand } from './cli/applier.ts';
import type { Io } from './cli/io.ts';
import { run } from './cli/program.ts';

/** How long a command may take to end after it was told to. */
const GRACE_MS = 10_000;

const stop = new AbortController();
// Each child process that runs listens to it; side by side they are more than the ten that Node takes for a leak.
setMaxListeners(0, stop.signal);
for (const name of ['SIGTERM', 'SIGINT'] as const) {
  process.once(name, () => {
    stop.abort(new Error(`stopped by ${name}`));
    setTimeout(() => {
      process.stderr.write(`error: did not end within ${GRACE_MS / 1000} s after ${name}\n`);
      process.exit(2);
    }, GRACE_MS).unref();
  });
}
// A reader that closes the pipe early (head, less) ends the output, not in an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

const io: Io = {
  out: data => void process.stdout.write(data),
  err: data => void process.stderr.write(data),
  readStdin: () => text(process.stdin),
  isTerminal: process.stdout.isTTY,
  env: process.env,
  signal: stop.signal,
};

const args = process.argv.slice(2);
// The applier's memory is paid on every node: it loads no command but its own.
const commands = args[0] === 'applier' ? [applierCommand] : (await import('./cli/commands.ts')).COMMANDS;
process.exitCode = await run(args, io, commands);
