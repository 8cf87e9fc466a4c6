// The last applied plan, kept on the node: applied at boot before the API answers, and what a flush compares with.
// A file that cannot be used is the same as none, and is told; a disk that is full costs the file, never the rules.
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { integer, isObject, object, optional, own, required, string } from '../api/fields.ts';
import { quote, type Reader, validated } from '../api/report.ts';
import { objectName } from '../api/values.ts';
import { messageOf } from '../kernel/errors.ts';
import { decodePlan, encodePlan } from '../planner/codec.ts';
import type { NodeValues, Plan } from '../planner/plan.ts';

export interface AppliedState {
  /** RFC 3339, UTC. */
  readonly appliedAt: string;
  readonly nodeName: string;
  readonly plan: Plan;
  readonly values: NodeValues;
  /** Which object of the API the plan came from; absent: from files. */
  readonly origin?: PlanOrigin;
}

/** The MasqPlan that a plan was read from. */
export interface PlanOrigin {
  readonly name: string;
  /** metadata.generation of its first part. */
  readonly generation: number;
  readonly contentHash: string;
}

export type ReadState =
  | { readonly ok: true; readonly state: AppliedState }
  /** `missing`: there is no file, as on a new node; otherwise it is there and of no use. */
  | { readonly ok: false; readonly missing: boolean; readonly reason: string };

export type WrittenState = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const STATE_SCHEMA_VERSION = 1;
/** Of all plans; 100,000 networks are 2 MB. */
const MAX_FILE_BYTES = 256 * 1024 * 1024;

/**
 * Reads the file of this node; one of another node's is refused, since a disk image may carry it to many. Never
 * rejects: why it cannot be used is one sentence.
 */
export async function readState(path: string, nodeName: string): Promise<ReadState> {
  const unusable = (reason: string): ReadState => ({
    ok: false,
    missing: false,
    reason: `${path}: ${reason}`,
  });
  const text = await readText(path);
  if (!text.ok) return text.missing ? text : unusable(text.reason);
  let json: unknown;
  try {
    json = JSON.parse(text.text);
  } catch {
    return unusable(text.text === '' ? 'is empty' : 'is not JSON; it was cut or is not ours');
  }
  const version = isObject(json) ? own(json, 'schemaVersion') : undefined;
  if (typeof version === 'number' && version > STATE_SCHEMA_VERSION) {
    return unusable(`was written by a newer version of this program (schemaVersion ${version})`);
  }
  const read = validated(stateDocument, json);
  if (!read.ok) return unusable(faultText(read.faults));
  if (read.value.nodeName !== nodeName) {
    return unusable(`is of node ${quote(read.value.nodeName)}, and this is ${quote(nodeName)}`);
  }
  const decoded = decodePlan(read.value.plan);
  if (!decoded.ok) return unusable(`plan: ${faultText(decoded.faults)}`);
  const { appliedAt, origin } = read.value;
  const { plan, values } = decoded;
  return {
    ok: true,
    state: { appliedAt, nodeName, plan, values, ...(origin === undefined ? {} : { origin }) },
  };
}

/**
 * Puts the state into the file, whole or not at all: whoever reads sees the old or the new content, also after a crash
 * or a loss of power. Makes the folder. One writer at a time. Never rejects: why it failed is one sentence.
 */
export async function writeState(path: string, state: AppliedState): Promise<WrittenState> {
  const { appliedAt, nodeName, plan, values, origin } = state;
  const document = {
    schemaVersion: STATE_SCHEMA_VERSION,
    appliedAt,
    nodeName,
    ...(origin === undefined ? {} : { origin }),
    plan: encodePlan(plan, values),
  };
  const folder = dirname(path);
  const temporary = join(folder, `.${basename(path)}.tmp`);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeThrough(temporary, `${JSON.stringify(document)}\n`);
    await rename(temporary, path);
    await syncFolder(folder);
    return { ok: true };
  } catch (error) {
    // What was written of it takes up the space that others need.
    await rm(temporary, { force: true }).catch(() => {});
    return { ok: false, reason: `${path} could not be written: ${messageOf(error)}` };
  }
}

/** Removes the file, for good also after a loss of power. One that is not there is done. Never rejects. */
export async function removeState(path: string): Promise<WrittenState> {
  try {
    await rm(path, { force: true });
    await syncFolder(dirname(path));
    return { ok: true };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { ok: true };
    return { ok: false, reason: `${path} could not be removed: ${messageOf(error)}` };
  }
}

/** An old temporary file, of a crash, is replaced, not followed or reused: its mode may be another. */
async function writeThrough(path: string, text: string): Promise<void> {
  await rm(path, { force: true });
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Without it, the new name may be lost with the power though the content is on the disk. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

type ReadText =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly missing: boolean; readonly reason: string };

async function readText(path: string): Promise<ReadText> {
  try {
    const about = await stat(path);
    // Opening a pipe would wait for a writer.
    if (!about.isFile()) return { ok: false, missing: false, reason: 'is not a file' };
    if (about.size > MAX_FILE_BYTES) return { ok: false, missing: false, reason: 'is too large to be ours' };
    return { ok: true, text: await readFile(path, 'utf8') };
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    return { ok: false, missing, reason: missing ? `there is no ${path}` : messageOf(error) };
  }
}

const anything: Reader<unknown> = value => value;

const origin: Reader<PlanOrigin> = object(
  {
    name: required(objectName),
    generation: required(integer(0, Number.MAX_SAFE_INTEGER)),
    contentHash: required(string(text => /^[0-9a-f]{16,64}$/.test(text), 'a content hash')),
  },
  'refuse',
);

const stateDocument = object(
  {
    schemaVersion: required(integer(STATE_SCHEMA_VERSION, STATE_SCHEMA_VERSION)),
    appliedAt: required(
      string(text => !Number.isNaN(Date.parse(text)), 'a time such as 2026-01-31T12:00:00Z'),
    ),
    nodeName: required(objectName),
    origin: optional(origin),
    plan: required(anything),
  },
  'refuse',
);

/** Of many faults the first few tell enough. */
const faultText = (faults: readonly { readonly field: string; readonly reason: string }[]): string =>
  faults
    .slice(0, 3)
    .map(({ field, reason }) => `${field} ${reason}`.trim())
    .join('; ');
