// Folders that go with the test, however it ends: 130 MB for each one that somebody interrupts would otherwise stay.
import { spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface TemporaryFolder {
  readonly path: string;
  /** Removes it, and waits until it is gone. May be called again. */
  readonly remove: () => Promise<void>;
}

// The servers may still write for a moment when the kernel is about to kill them: hence the second try.
const SCRIPT = 'cat >/dev/null; rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }';

/**
 * Makes one. A process beside the test waits for its stdin to end, which it does at `remove` or when this process dies,
 * and then removes the folder; it is in a session of its own, so that Ctrl-C does not reach it.
 */
export async function openTemporaryFolder(prefix: string): Promise<TemporaryFolder> {
  const path = await mkdtemp(join(tmpdir(), prefix));
  const child = spawn('sh', ['-c', SCRIPT, 'sh', path], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  const end = new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code =>
      code === 0 ? resolve() : reject(new Error(`${path} was not removed: exit code ${code}`)),
    );
  });
  return {
    path,
    remove: () => {
      child.stdin.end();
      return end;
    },
  };
}
