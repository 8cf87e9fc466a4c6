// What went wrong with ipset or iptables, read from its words once, here; everything else looks at `kind`.
import type { Command, CommandResult } from './exec.ts';

export type ErrorKind =
  | 'busy-lock'
  | 'missing-set'
  | 'missing-chain'
  | 'incompatible'
  | 'unsupported'
  | 'in-use'
  | 'full'
  | 'timeout'
  | 'not-found'
  | 'permission'
  /** The kernel does not show what was written, though no tool failed. */
  | 'readback'
  | 'other';

interface KernelErrorParts {
  readonly tool: string;
  readonly args: readonly string[];
  /** Exit code; null when the program did not end by itself. */
  readonly code: number | null;
  readonly stderr: string;
  readonly kind: ErrorKind;
  /** Which line of the input the tool complained about, counted from 1. */
  readonly line?: number;
}

/** A failed command, or (kind readback) a kernel that does not show what was written. */
export class KernelError extends Error {
  readonly tool: string;
  readonly args: readonly string[];
  readonly code: number | null;
  readonly stderr: string;
  readonly kind: ErrorKind;
  readonly line: number | undefined;

  constructor(message: string, parts: KernelErrorParts) {
    super(message);
    this.name = 'KernelError';
    this.tool = parts.tool;
    this.args = parts.args;
    this.code = parts.code;
    this.stderr = parts.stderr;
    this.kind = parts.kind;
    this.line = parts.line;
  }
}

/** The texts of iptables 1.8.9 (both backends) and ipset 7.17, first match counts. */
const KINDS: readonly (readonly [RegExp, ErrorKind])[] = [
  [/xtables lock|Resource temporarily unavailable/, 'busy-lock'],
  [/Permission denied|Operation not permitted|must be root/, 'permission'],
  [/\bSet \S+ doesn't exist|set with the given name does not exist|second set does not exist/, 'missing-set'],
  [/in use by a kernel component|Device or resource busy|Too many links/, 'in-use'],
  [/Hash is full/, 'full'],
  // iptables-nft says so of a chain that does not exist, too; of a table it is meant.
  [/\bchain `[^']*' in table `[^']*' is incompatible|Chain '[^']*' does not exist/, 'missing-chain'],
  [/\btable `[^']*' is incompatible/i, 'incompatible'],
  [/Couldn't load target `masq-/, 'missing-chain'],
  [
    /unknown option|Couldn't load (match|target)|type not supported|typename '[^']*' is unknown/,
    'unsupported',
  ],
  [
    /can't initialize ip6?tables table|Table does not exist|not supported|unsupported revision/,
    'unsupported',
  ],
  [/Could not fetch rule set generation id|Cannot open session to kernel/, 'unsupported'],
];

/** Sorts an unsuccessful result. Exit code 4 without known words is a busy resource: trying again is right. */
export function kindOf(command: Command, result: CommandResult): ErrorKind {
  if (result.timedOut) return 'timeout';
  if (result.spawnError === 'ENOENT') return 'not-found';
  if (result.spawnError === 'EACCES' || result.spawnError === 'EPERM') return 'permission';
  const known = KINDS.find(([words]) => words.test(result.stderr));
  if (known !== undefined) return known[1];
  // Said of a chain that is listed, and of a match or target that the kernel lacks when a rule is added.
  if (/No chain\/target\/match by that name/.test(result.stderr)) {
    return command.args.includes('-S') ? 'missing-chain' : 'unsupported';
  }
  return result.code === 4 ? 'busy-lock' : 'other';
}

/** The error for an unsuccessful command: one sentence with the tool's own words and the offending input line. */
export function commandError(command: Command, result: CommandResult): KernelError {
  const kind = kindOf(command, result);
  const found = /\bline:? (\d+)/.exec(result.stderr);
  const line = found === null ? undefined : Number(found[1]);
  const input = line === undefined ? undefined : command.stdin?.split('\n', line)[line - 1];
  const offending = input === undefined || input === '' ? '' : `; the line is: ${input}`;
  return new KernelError(`${howItEnded(command, result, kind)}${offending}`, {
    tool: command.tool,
    args: command.args,
    code: result.code,
    stderr: result.stderr.trim(),
    kind,
    ...(line === undefined ? {} : { line }),
  });
}

function howItEnded(command: Command, result: CommandResult, kind: ErrorKind): string {
  const { tool } = command;
  if (kind === 'not-found') return `${tool} is not installed or not in PATH`;
  if (kind === 'timeout') return `${tool} did not end within ${command.timeoutMs} ms and was killed`;
  if (result.spawnError !== undefined) return `${tool} could not be started (${result.spawnError})`;
  const ended = result.code === null ? 'was killed' : `ended with exit code ${result.code}`;
  const words = complaint(result.stderr);
  return `${tool} ${ended}${words === '' ? '' : `: ${words}`}`;
}

/** What the tool said, without hints about its help page and warnings about the other backend. */
function complaint(stderr: string): string {
  return stderr
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !line.startsWith('Try `') && !line.startsWith('# Warning'))
    .join(' ');
}

/** The sentence of any thrown value. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
