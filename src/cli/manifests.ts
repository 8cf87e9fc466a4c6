// Reads manifests from files, folders and standard input, for the commands that take -f.
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Snapshot } from '../api/model.ts';
import { messageOf } from '../kernel/errors.ts';
import { type Documents, documentsOf, type Placed, problemLine } from './manifest-documents.ts';
import { assemble, type ObjectVerdict } from './manifest-objects.ts';

export type { ObjectVerdict } from './manifest-objects.ts';

export interface Manifests {
  /** What was accepted. */
  readonly snapshot: Snapshot;
  /** One for each object, in the order of reading. */
  readonly verdicts: readonly ObjectVerdict[];
  /** What could not be read at all, or not as YAML or JSON, a line each: file:line:column: reason. */
  readonly problems: readonly string[];
}

/** The name of standard input in messages. */
const STDIN = 'stdin';

/** The files that a path stands for, or why there are none. */
interface Found {
  readonly files: readonly string[];
  readonly problems: readonly string[];
}

/**
 * Loads everything that the paths name: files, folders (their *.yaml, *.yml and *.json, sorted by name, with all
 * folders in them, hidden ones left out) and `-`, standard input, which `stdin` reads to its end. A file that is named
 * twice is read once. Rejects only when the signal is aborted: what is wrong is in `problems` and `verdicts`.
 */
export async function loadManifests(
  paths: readonly string[],
  stdin: () => Promise<string>,
  signal?: AbortSignal,
): Promise<Manifests> {
  const objects: Placed[] = [];
  const problems: string[] = [];
  const seen = new Set<string>();
  for (const asked of paths) {
    const found = asked === '-' ? { files: ['-'], problems: [] } : await filesOf(asked, signal);
    problems.push(...found.problems);
    for (const path of found.files) {
      if (seen.has(resolve(path))) continue;
      seen.add(resolve(path));
      const read = await documentsAt(path, stdin, signal);
      objects.push(...read.objects);
      problems.push(...read.problems);
    }
  }
  return { ...assemble(objects), problems };
}

async function documentsAt(
  path: string,
  stdin: () => Promise<string>,
  signal: AbortSignal | undefined,
): Promise<Documents> {
  const file = fileName(path);
  try {
    return documentsOf(file, await textAt(path, stdin, signal));
  } catch (error) {
    return { objects: [], problems: [unreadable(file, error, signal)] };
  }
}

/** The text of a file, or of standard input for `-`. Rejects when it cannot be read. */
export const textAt = (path: string, stdin: () => Promise<string>, signal?: AbortSignal): Promise<string> =>
  path === '-' ? stdin() : readFile(path, { encoding: 'utf8', ...(signal && { signal }) });

/** How messages name it. */
export const fileName = (path: string): string => (path === '-' ? STDIN : path);

/** The problem of a path; an abort is none, and is passed on. */
function unreadable(file: string, error: unknown, signal: AbortSignal | undefined): string {
  signal?.throwIfAborted();
  return problemLine(file, `cannot be read: ${messageOf(error)}`);
}

/** The file itself, or the files of the folder. */
async function filesOf(path: string, signal: AbortSignal | undefined): Promise<Found> {
  try {
    if (!(await stat(path)).isDirectory()) return { files: [path], problems: [] };
  } catch (error) {
    return { files: [], problems: [unreadable(path, error, signal)] };
  }
  const found = await filesIn(path, signal);
  if (found.files.length + found.problems.length > 0) return found;
  return { files: [], problems: [problemLine(path, 'holds no .yaml, .yml or .json file')] };
}

async function filesIn(folder: string, signal: AbortSignal | undefined): Promise<Found> {
  signal?.throwIfAborted();
  const files: string[] = [];
  const problems: string[] = [];
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (entry.name.startsWith('.')) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) {
        const inner = await filesIn(path, signal);
        files.push(...inner.files);
        problems.push(...inner.problems);
        // Links to files are followed, as a mounted ConfigMap consists of them; links to folders could go in circles.
      } else if (/\.(ya?ml|json)$/.test(entry.name) && !(await isFolder(path))) files.push(path);
    }
  } catch (error) {
    problems.push(unreadable(folder, error, signal));
  }
  return { files, problems };
}

const isFolder = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined))?.isDirectory() ?? false;
