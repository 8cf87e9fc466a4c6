// The file of the last applied plan on a disk that is full: the old content stays, and the failure is a value.
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type AppliedState, readState, writeState } from '../../src/applier/state-file.ts';
import { PLAN, VALUES } from '../unit/codec-plan.ts';

let keeper: ChildProcessWithoutNullStreams;
/** A disk of 64 KiB in a mount namespace of its own, seen through the process that keeps it. */
let disk = '';
beforeEach(async () => {
  const script = 'mount -t tmpfs -o size=64k none /mnt && echo ready && exec cat';
  keeper = spawn('unshare', ['-m', 'sh', '-c', script]);
  const [first] = (await Promise.race([once(keeper.stdout, 'data'), once(keeper, 'close')])) as unknown[];
  if (String(first) !== 'ready\n')
    throw new Error('a mount namespace could not be made; this test needs root');
  disk = `/proc/${keeper.pid}/root/mnt`;
});
afterEach(async () => {
  const closed = once(keeper, 'close');
  keeper.stdin.end();
  await closed;
});

const state = (appliedAt: string): AppliedState => ({
  appliedAt,
  nodeName: 'n1',
  plan: PLAN,
  values: VALUES,
});

it('is not written, and what was there stays whole', async () => {
  const path = `${disk}/plan.json`;
  const old = state('2026-11-30T12:00:00.000Z');
  expect(await writeState(path, old)).toEqual({ ok: true });
  await expect(writeFile(`${disk}/filler`, Buffer.alloc(128 * 1024))).rejects.toThrow('ENOSPC');
  const written = await writeState(path, state('2026-11-30T13:00:00.000Z'));
  expect(written.ok ? '' : written.reason).toContain(`${path} could not be written: ENOSPC`);
  expect(await readState(path, 'n1')).toEqual({ ok: true, state: old });
  expect(await readdir(disk)).toEqual(['filler', 'plan.json']);
  await rm(`${disk}/filler`);
  const later = state('2026-11-30T14:00:00.000Z');
  expect(await writeState(path, later)).toEqual({ ok: true });
  expect(await readState(path, 'n1')).toEqual({ ok: true, state: later });
});
