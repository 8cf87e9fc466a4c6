// A command line run inside of the test's process.
import { COMMANDS } from '../../src/cli/commands.ts';
import { run } from '../../src/cli/program.ts';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export async function natoutgoing(...args: readonly string[]): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const io = {
    out: (text: string) => void (stdout += text),
    err: (text: string) => void (stderr += text),
    readStdin: () => Promise.resolve(''),
    isTerminal: false,
    env: {},
    signal: new AbortController().signal,
  };
  const code = await run(args, io, COMMANDS);
  return { code, stdout, stderr };
}
