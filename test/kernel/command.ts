// The command as users run it: bundled afresh, so that a test never runs yesterday's.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundle } from '../../scripts/bundle.mjs';

export interface BuiltCommand {
  /** The bundle, to be run with process.execPath. */
  readonly path: string;
  /** A folder for manifests and the like, gone with close. */
  readonly folder: string;
  close(): Promise<void>;
}

export async function buildForTest(): Promise<BuiltCommand> {
  const folder = await mkdtemp(join(tmpdir(), 'natoutgoing-test-'));
  const path = join(folder, 'natoutgoing.mjs');
  await bundle('src/main.ts', path);
  return { path, folder, close: () => rm(folder, { recursive: true }) };
}
