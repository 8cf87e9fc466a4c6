// What a command may touch of the process: streams, environment, the signal to stop. Tests bring their own.
import { styleText } from 'node:util';

export interface Io {
  /** Results only; everything else goes to stderr. */
  out(text: string): void;
  err(text: string): void;
  readStdin(): Promise<string>;
  readonly isTerminal: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborts on SIGTERM and SIGINT. */
  readonly signal: AbortSignal;
}

/** 0 done; 1 refused, or differs; 2 wrong usage, or an error. */
export const EXIT = { ok: 0, refused: 1, error: 2 } as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** An end that the user has to be told about in one sentence. */
export class CommandError extends Error {
  readonly exitCode: ExitCode;

  constructor(message: string, exitCode: ExitCode = EXIT.error) {
    super(message);
    this.name = 'CommandError';
    this.exitCode = exitCode;
  }
}

/** Columns as wide as their widest cell; the first row is the head, bold on a terminal. */
export function table(rows: readonly (readonly string[])[], io: Pick<Io, 'isTerminal'>): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map(row => (row[column] ?? '').length)));
  return rows
    .map((row, i) => {
      const line = row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd();
      return `${i === 0 && io.isTerminal ? styleText('bold', line) : line}\n`;
    })
    .join('');
}

/** JSON as machines and people read it: two blanks, bigints as numbers never occur. */
export const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
