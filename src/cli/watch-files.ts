// Notices changes of manifests by looking at them again and again: editors and configuration tools replace files by
// rename, link them, or write them in place, and folders come and go, which file events do not all tell.
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';

const LOOK_MS = 500;

/** Resolves when what the paths hold is no longer as `seen` says (see signatureOf); rejects when aborted. */
export async function untilChanged(
  paths: readonly string[],
  seen: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  while ((await signatureOf(paths)) === seen) await clock.sleep(LOOK_MS, signal);
}

/** A text that changes when a file below the paths is written, replaced, added or removed. */
export async function signatureOf(paths: readonly string[]): Promise<string> {
  const parts: string[] = [];
  for (const path of paths) parts.push(await signatureOfPath(path));
  return parts.join('\n');
}

async function signatureOfPath(path: string): Promise<string> {
  try {
    const info = await stat(path, { bigint: true });
    if (!info.isDirectory()) return `${path} ${info.ino} ${info.size} ${info.mtimeNs} ${info.ctimeNs}`;
    const names = (await readdir(path)).sort();
    return await signatureOf(names.map(name => join(path, name)));
  } catch (error) {
    return `${path} ${(error as NodeJS.ErrnoException).code ?? 'unreadable'}`;
  }
}
