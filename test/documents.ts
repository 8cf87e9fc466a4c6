// The commands in the pages for users, so that tests run what users are told to run.
import { readFileSync } from 'node:fs';

export interface DocumentedCommands {
  /** The commands of one block, as a shell reads them. */
  readonly script: string;
  /** What the next block shows as their output; undefined when none follows. */
  readonly output: string | undefined;
}

/** The shell blocks of a page, in order. */
export function commandBlocks(path: string): readonly DocumentedCommands[] {
  const blocks = readFileSync(path, 'utf8').matchAll(/^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?/gms);
  return [...blocks].map(([, script = '', output]) => ({ script, output }));
}

/** The commands of a script, one for each line that is not continued, split as a shell splits what is plainly quoted. */
export const commandsOf = (script: string): readonly (readonly string[])[] =>
  script
    .replaceAll('\\\n', ' ')
    .split('\n')
    .map(line =>
      [...line.replace(/ #.*/, '').matchAll(/'([^']*)'|\S+/g)].map(([word, quoted]) => quoted ?? word),
    )
    .filter(words => words.length > 0);

/** The first command of a page that starts with these words, without them. */
export function documentedArguments(path: string, ...start: readonly string[]): readonly string[] {
  const found = commandBlocks(path)
    .flatMap(({ script }) => commandsOf(script))
    .find(words => start.every((word, i) => words[i] === word));
  if (found === undefined) throw new Error(`${path} has no command ${start.join(' ')}`);
  return found.slice(start.length);
}
