// The file of the last applied plan: whole or absent, and never a reason to stop.
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type AppliedState, readState, writeState } from '../../src/applier/state-file.ts';
import { PLAN, VALUES } from './codec-plan.ts';

const STATE: AppliedState = {
  appliedAt: '2026-11-30T12:00:00.000Z',
  nodeName: 'n1',
  plan: PLAN,
  values: VALUES,
};

let folder = '';
let path = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'state-'));
  path = join(folder, 'lib', 'natoutgoing', 'plan.json');
});
afterEach(() => rm(folder, { recursive: true }));

const permissions = async (of: string): Promise<number> => (await stat(of)).mode & 0o777;

describe('writing', () => {
  it('makes the folder, keeps the file from others, and leaves nothing beside it', async () => {
    expect(await writeState(path, STATE)).toEqual({ ok: true });
    expect(await readState(path, 'n1')).toEqual({ ok: true, state: STATE });
    expect(await permissions(path)).toBe(0o600);
    expect(await permissions(join(folder, 'lib', 'natoutgoing'))).toBe(0o700);
    expect(await readdir(join(folder, 'lib', 'natoutgoing'))).toEqual(['plan.json']);
    const json: unknown = JSON.parse(await readFile(path, 'utf8'));
    expect(json).toMatchObject({ schemaVersion: 1, nodeName: 'n1', plan: { schemaVersion: 1 } });
  });

  it('replaces what is there, also what a crash left half done', async () => {
    await writeState(path, STATE);
    const left = join(folder, 'lib', 'natoutgoing', '.plan.json.tmp');
    await writeFile(left, '{"schemaVersion":1,"app');
    await chmod(left, 0o644);
    const later = { ...STATE, appliedAt: '2026-11-30T13:00:00.000Z' };
    expect(await writeState(path, later)).toEqual({ ok: true });
    expect(await readState(path, 'n1')).toEqual({ ok: true, state: later });
    expect(await permissions(path)).toBe(0o600);
    expect(await readdir(join(folder, 'lib', 'natoutgoing'))).toEqual(['plan.json']);
  });

  it('does not follow a link that stands in the way', async () => {
    await mkdir(join(folder, 'lib', 'natoutgoing'), { recursive: true });
    const other = join(folder, 'other');
    await writeFile(other, 'mine');
    await symlink(other, join(folder, 'lib', 'natoutgoing', '.plan.json.tmp'));
    expect(await writeState(path, STATE)).toEqual({ ok: true });
    expect(await readFile(other, 'utf8')).toBe('mine');
  });

  it('says why it cannot, and leaves what was there', async () => {
    await writeFile(join(folder, 'lib'), 'a file where a folder should be');
    const written = await writeState(path, STATE);
    expect(written).toMatchObject({ ok: false });
    expect(written.ok ? '' : written.reason).toMatch(/plan\.json could not be written: E(EXIST|NOTDIR)/);
    expect(await readdir(folder)).toEqual(['lib']);
  });
});

describe('reading', () => {
  it('tells a file that is not there from one that cannot be used', async () => {
    expect(await readState(path, 'n1')).toEqual({ ok: false, missing: true, reason: `there is no ${path}` });
  });

  it.each([
    ['is empty', () => '', 'is empty'],
    ['was cut', (text: string) => text.slice(0, text.length / 2), 'is not JSON; it was cut or is not ours'],
    ['holds zeros, as after a loss of power', () => '\0'.repeat(4096), 'is not JSON'],
    ['is of another program', () => '{"kind":"Config"}', 'kind is not a known field'],
    ['is a list', () => '[]', 'a list is not an object'],
    ['is null', () => 'null', 'null is not an object'],
    [
      'is of a newer version',
      (text: string) => text.replace('n":1', 'n":2'),
      'newer version of this program (schemaVersion 2)',
    ],
    [
      'holds a plan of a newer version',
      (text: string) => text.replace('{"schemaVersion":1,"sets"', '{"schemaVersion":7,"sets"'),
      'plan: schemaVersion 7 is a version',
    ],
    [
      'holds a bad plan',
      (text: string) => text.replace('"10.244.0.0/16"', '"10.244.0.0"'),
      'plan: sets[2].ipv4[0] "10.244.0.0" is not a CIDR',
    ],
    ['has no plan', (text: string) => text.replace(/"plan":.*/, '"plan":null}'), 'plan is null'],
    [
      'is of another node',
      (text: string) => text.replace('"nodeName":"n1"', '"nodeName":"n2"'),
      'is of node "n2", and this is "n1"',
    ],
    [
      'has no time',
      (text: string) => text.replace('2026-11-30T12:00:00.000Z', 'yesterday'),
      'appliedAt "yesterday" is not a time',
    ],
  ])('a file that %s gives the reason', async (_what, spoil, words) => {
    await writeState(path, STATE);
    const text = await readFile(path, 'utf8');
    await writeFile(path, spoil(text));
    expect(await readFile(path, 'utf8')).not.toBe(text);
    const read = await readState(path, 'n1');
    expect(read).toMatchObject({ ok: false, missing: false });
    expect(read.ok ? '' : read.reason).toContain(words);
    expect(read.ok ? '' : read.reason.startsWith(`${path}: `)).toBe(true);
  });

  it('a folder in its place gives the reason', async () => {
    await mkdir(path, { recursive: true });
    expect(await readState(path, 'n1')).toEqual({
      ok: false,
      missing: false,
      reason: `${path}: is not a file`,
    });
  });
});
