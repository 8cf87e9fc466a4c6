// Removes everything of ours from this kernel: both backends, both families; jumps, chains, sets, temporary sets. From
// any half-way state, as often as it is called.
import { FAMILIES, type Family } from '../cidr/address.ts';
import { type Backend, findToolsets, type Toolset } from './backend.ts';
import { type Clock, systemClock } from './clock.ts';
import { messageOf, KernelError } from './errors.ts';
import type { Exec } from './exec.ts';
import { removeSets } from './execute.ts';
import { ownSetNames } from './ipset.ts';
import type { KernelLog } from './log.ts';
import { type Failure, findOwnRules, namesOf, removeOwnRules } from './remove.ts';
import { familyName, type FamilyName } from './report.ts';
import { type RunContext, runContext } from './run.ts';

export interface CleanupOptions {
  readonly exec: Exec;
  readonly log: KernelLog;
  /** Only say what would be removed. */
  readonly dryRun: boolean;
  readonly clock?: Clock;
  readonly lockWaitMs?: number;
}

export interface CleanupReport {
  /** Nothing of ours is left (with dryRun: everything could be looked at). */
  readonly ok: boolean;
  /** What was removed, or with dryRun would be. */
  readonly removed: readonly CleanupItem[];
  readonly failed: readonly (CleanupItem & { readonly message: string })[];
}

export interface CleanupItem {
  readonly family: FamilyName;
  /** Absent for sets, which both backends share. */
  readonly backend?: Backend;
  /** `rule …` as iptables printed it, `chain NAME` or `set NAME`. */
  readonly object: string;
}

/** Removes rules first, then sets, since rules hold sets. Never throws but when the signal aborts. */
export async function cleanup(options: CleanupOptions, signal?: AbortSignal): Promise<CleanupReport> {
  const { exec, clock = systemClock, lockWaitMs } = options;
  const context = runContext({ exec, clock, lockWaitMs, signal });
  const { dryRun, log } = options;
  const removed: CleanupItem[] = [];
  const failed: (CleanupItem & { message: string })[] = [];
  const toolsets = await findToolsets(context);
  const works = FAMILIES.flatMap(family => [
    ...toolsets.map(tools => ({ family, backend: tools.backend, tools })),
    { family },
  ]);
  for (const work of works) {
    const item = { family: familyName(work.family), ...('backend' in work ? { backend: work.backend } : {}) };
    try {
      const result =
        'tools' in work
          ? await cleanRules(context, work.tools, work.family, dryRun)
          : await cleanSets(context, work.family, dryRun);
      removed.push(...result.removed.map(object => ({ ...item, object })));
      failed.push(...result.failed.map(failure => ({ ...item, ...failure })));
    } catch (error) {
      signal?.throwIfAborted();
      failed.push({ ...item, object: 'tools' in work ? 'rules' : 'sets', message: messageOf(error) });
    }
  }
  log.info({ removed: removed.length, failed: failed.length, dryRun }, 'cleanup is done');
  return { ok: failed.length === 0, removed, failed };
}

interface Cleaned {
  readonly removed: readonly string[];
  readonly failed: readonly Failure[];
}

async function cleanRules(
  context: RunContext,
  tools: Toolset,
  family: Family,
  dryRun: boolean,
): Promise<Cleaned> {
  const found = await findOwnRules(context, tools, family);
  const unseen = found.unseen.map(message => ({ object: 'rules', message }));
  if (dryRun) return { removed: namesOf(found), failed: unseen };
  const { removed, failed } = await removeOwnRules(context, tools, family, found);
  return { removed, failed: [...unseen, ...failed] };
}

async function cleanSets(context: RunContext, family: Family, dryRun: boolean): Promise<Cleaned> {
  const names = await setNames(context, family);
  if (dryRun) return { removed: names.map(setObject), failed: [] };
  const { removed, failed } = await removeSets(context, names);
  return {
    removed: removed.map(setObject),
    failed: failed.map(({ name, error }) => ({ object: setObject(name), message: error.message })),
  };
}

const setObject = (name: string): string => `set ${name}`;

/** A host without ipset holds no sets of ours. */
async function setNames(context: RunContext, family: Family): Promise<readonly string[]> {
  try {
    return await ownSetNames(context, family);
  } catch (error) {
    if (error instanceof KernelError && (error.kind === 'not-found' || error.kind === 'unsupported'))
      return [];
    throw error;
  }
}
