// Waiting for a state with a limit: tests never sleep and hope.
import { setTimeout as sleep } from 'node:timers/promises';

export interface WaitOptions {
  /** What is waited for, as a sentence part: "the API server to be ready". */
  readonly what: string;
  readonly limitMs: number;
  /** Between two looks; 50 ms when absent. */
  readonly intervalMs?: number;
  /** Added to the error when the limit has passed: what was seen last, say. */
  readonly detail?: () => string | Promise<string>;
}

/**
 * Looks until there is a value other than undefined, and gives that. An error of `look` ends the wait, as an abort
 * does; the limit rejects with what was waited for.
 */
export async function waitFor<T>(
  look: () => T | undefined | Promise<T | undefined>,
  options: WaitOptions,
  signal?: AbortSignal,
): Promise<T> {
  const end = performance.now() + options.limitMs;
  for (;;) {
    signal?.throwIfAborted();
    const value = await look();
    if (value !== undefined) return value;
    if (performance.now() >= end) {
      const detail = (await options.detail?.()) ?? '';
      throw new Error(
        `waited ${options.limitMs} ms for ${options.what}${detail === '' ? '' : `: ${detail}`}`,
      );
    }
    // Only an abort rejects it, with an error of its own; the caller shall have the signal's.
    await sleep(options.intervalMs ?? 50, undefined, signal === undefined ? {} : { signal }).catch(() => {});
  }
}
