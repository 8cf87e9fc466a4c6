// The log of the long-running parts: JSON lines on stdout, without worker threads.
import pino, { type Logger } from 'pino';
import type { LogLevel } from './log-level.ts';

/** Written synchronously: the last words before an end are the ones that are needed. */
export const createLog = (level: LogLevel): Logger =>
  pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: label => ({ level: label }) },
    },
    pino.destination({ dest: 1, sync: true }),
  );
