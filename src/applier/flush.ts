// connectionPolicy FlushChanged: after a new plan is in the kernel, the connections whose verdict changed lose their
// conntrack entry, so that their next packet is asked anew; every other connection keeps its own.
import { FAMILIES, type Family, formatAddress } from '../cidr/address.ts';
import type { Clock } from '../kernel/clock.ts';
import { type ConntrackEntry, deleteEntries, type EntryFilter, listEntries } from '../kernel/conntrack.ts';
import { KernelError } from '../kernel/errors.ts';
import type { Exec } from '../kernel/exec.ts';
import { type LocalAddress, localAddresses, outInterfaces, type Path } from '../kernel/routes.ts';
import { type RunContext, runContext } from '../kernel/run.ts';
import { type Group, groupsOf, withoutClient } from './flush-groups.ts';
import {
  flushingPolicies,
  type Judgement,
  judge,
  KEEPS,
  packetOf,
  type PlannedNode,
  standing,
} from './changed.ts';

export interface FlushOptions {
  /** What the kernel had until now; undefined: not known. */
  readonly before: PlannedNode | undefined;
  /** What it has now. */
  readonly after: PlannedNode;
  readonly exec: Exec;
  readonly clock: Clock;
  readonly signal?: AbortSignal;
  /** Milliseconds after which no further deletion is begun. Default two minutes. */
  readonly limitMs?: number;
  /** By which interface packets leave, for rules that ask for it; undefined where that is unknown. Default: routing. */
  readonly outInterfaceOf?: (paths: readonly Path[]) => Promise<readonly (string | undefined)[]>;
}

export interface FlushReport {
  /** Entries that were judged. */
  readonly looked: number;
  readonly deleted: number;
  /** By name. The policy is the one that decides after, or the one that decided before if that asked for the flush. */
  readonly perPolicy: readonly { readonly policy: string; readonly deleted: number }[];
  /** Entries that were left though their verdict changed, or may have. */
  readonly skipped: readonly { readonly reason: SkipReason; readonly entries: number }[];
  /** Why no entry was looked at. */
  readonly notLooked?: 'noFlushPolicy' | 'samePlan' | 'unknownBefore';
  /** What failed; a family that fails does not stop the other. */
  readonly errors: readonly KernelError[];
}

/**
 * `translatedByOthers`: the entry is not as the verdict before makes it, so another program has a hand in it.
 * `uncertain`: a rule asks for something that is not known, mostly an interface where routing has no answer.
 * `zones`: conntrack cannot name the entry alone. `timeLimit`: there was no time left. `unread`: a line of conntrack
 * that was not understood.
 */
export type SkipReason = 'translatedByOthers' | 'uncertain' | 'zones' | 'timeLimit' | 'unread';

const DEFAULT_LIMIT_MS = 120_000;

/**
 * Deletes the entries of connections
 * - whose verdict changed (sameVerdict), by a policy with FlushChanged before or after, and
 * - that are as the verdict before makes them: what kube-proxy, Felix or others translated stays, and
 * - that are not already as the verdict after would make them.
 * Costs one reading of the table for each family, and one more for each group of entries that decide alike (all but the
 * client's port is equal). Tools that fail are told in the report. Rejects with the signal's reason when it aborts, and
 * with a RangeError when a plan refers to a set that it does not hold.
 */
export async function flushChanged(options: FlushOptions): Promise<FlushReport> {
  const { before, after, exec, clock, signal, limitMs = DEFAULT_LIMIT_MS } = options;
  const tally = emptyTally();
  if (before === undefined) return reportOf(tally, 'unknownBefore');
  const notLooked = reasonNotToLook(before, after);
  if (notLooked !== undefined) return reportOf(tally, notLooked);
  const context = runContext({ exec, clock, signal });
  const deadline = clock.now() + limitMs;
  await noting(tally, async () => {
    const local = after.node.localAddresses ?? (await localAddresses(context));
    const work: Work = {
      context,
      local,
      localTexts: new Set(local.map(({ address }) => formatAddress(address))),
      judge: judge(withLocal(before, local), withLocal(after, local)),
      outInterfaceOf: options.outInterfaceOf ?? (paths => outInterfaces(context, paths)),
      tally,
    };
    for (const family of FAMILIES) {
      await noting(tally, async () => deleteAll(work, await outdated(work, family), deadline));
    }
  });
  return reportOf(tally);
}

function reasonNotToLook(before: PlannedNode, after: PlannedNode): FlushReport['notLooked'] {
  if (before.plan === after.plan && before.node.values === after.node.values) return 'samePlan';
  const flushes = flushingPolicies(before.plan).size + flushingPolicies(after.plan).size > 0;
  return flushes ? undefined : 'noFlushPolicy';
}

const withLocal = ({ plan, node }: PlannedNode, localAddresses: readonly LocalAddress[]): PlannedNode => ({
  plan,
  node: { ...node, localAddresses },
});

interface Work {
  readonly context: RunContext;
  readonly local: readonly LocalAddress[];
  readonly localTexts: ReadonlySet<string>;
  readonly judge: ReturnType<typeof judge>;
  readonly outInterfaceOf: (paths: readonly Path[]) => Promise<readonly (string | undefined)[]>;
  readonly tally: Tally;
}

/** What is counted while it happens. */
interface Tally {
  looked: number;
  readonly deleted: Map<string, number>;
  readonly skipped: Map<SkipReason, number>;
  readonly errors: KernelError[];
}

const emptyTally = (): Tally => ({ looked: 0, deleted: new Map(), skipped: new Map(), errors: [] });

function count<K>(counts: Map<K, number>, key: K, more: number): void {
  if (more > 0) counts.set(key, (counts.get(key) ?? 0) + more);
}

function reportOf(tally: Tally, notLooked?: FlushReport['notLooked']): FlushReport {
  const perPolicy = [...tally.deleted].map(([policy, deleted]) => ({ policy, deleted }));
  return {
    looked: tally.looked,
    deleted: perPolicy.reduce((sum, { deleted }) => sum + deleted, 0),
    perPolicy: perPolicy.sort((a, b) => (a.policy < b.policy ? -1 : 1)),
    skipped: [...tally.skipped].map(([reason, entries]) => ({ reason, entries })),
    errors: tally.errors,
    ...(notLooked === undefined ? {} : { notLooked }),
  };
}

/** Does it; what goes wrong with a tool is noted and goes no further. */
async function noting(tally: Tally, doIt: () => Promise<void>): Promise<void> {
  try {
    await doIt();
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    tally.errors.push(error);
  }
}

interface Deletion {
  readonly policy: string;
  readonly filter: EntryFilter;
  /** How many entries the filter matched when they were listed. */
  readonly entries: number;
}

/** Lists a family and finds what is to be deleted, in as few deletions as name nothing else. */
async function outdated(work: Work, family: Family): Promise<readonly Deletion[]> {
  const listing = await listEntries(work.context, family);
  const { groups, looked, unread } = groupsOf(listing, first =>
    // What stays on the node is not seen by POSTROUTING.
    work.localTexts.has(formatAddress(first.reply.source)) ? KEEPS : work.judge(packetOf(first)),
  );
  work.tally.looked += looked;
  count(work.tally.skipped, 'unread', unread);
  const uncertain = groups.filter(({ judgement }) => judgement.kind === 'uncertain');
  const interfaces = await askInterfaces(work, uncertain);
  const deletions = groups.flatMap(group => {
    const { first, judgement } = group;
    const settled =
      judgement.kind === 'uncertain'
        ? work.judge(packetOf(first, interfaces.get(pathKey(first))))
        : judgement;
    if (settled.kind === 'uncertain') count(work.tally.skipped, 'uncertain', group.entries.length);
    return settled.kind === 'changed' ? deletionsOf(work, group, settled) : [];
  });
  return deletions.sort((a, b) => b.entries - a.entries);
}

const pathKey = ({ original, reply }: ConntrackEntry): string =>
  `${original.source.value} ${reply.source.value}`;

/** Asks each pair of source and destination once. */
async function askInterfaces(work: Work, groups: readonly Group[]): Promise<ReadonlyMap<string, string>> {
  const paths = new Map<string, Path>();
  for (const { first } of groups) {
    paths.set(pathKey(first), { source: first.original.source, destination: first.reply.source });
  }
  const known = new Map<string, string>();
  if (paths.size === 0) return known;
  await noting(work.tally, async () => {
    const names = await work.outInterfaceOf([...paths.values()]);
    [...paths.keys()].forEach((key, i) => {
      const name = names[i];
      if (name !== undefined) known.set(key, name);
    });
  });
  return known;
}

/**
 * One deletion for the group when all of it is outdated, else one for each entry that is. Connections that are born
 * meanwhile must not fall under the one: where they look like the old ones but for their port, there is none.
 */
function deletionsOf(
  { local, tally }: Work,
  { first, entries }: Group,
  { policy, before, after }: Extract<Judgement, { readonly kind: 'changed' }>,
): readonly Deletion[] {
  if (entries.some(entry => entry.directionalZone)) {
    count(tally.skipped, 'zones', entries.length);
    return [];
  }
  const old = entries.filter(entry => {
    const stands = standing(entry, before, after, local);
    if (stands === 'foreign') count(tally.skipped, 'translatedByOthers', 1);
    return stands === 'outdated';
  });
  const { portRange: _, ...anyPort } = after;
  const bornAlike = standing(first, before, anyPort, local) === 'already';
  return old.length === entries.length && !bornAlike
    ? [{ policy, filter: withoutClient(first), entries: old.length }]
    : old.map(filter => ({ policy, filter, entries: 1 }));
}

async function deleteAll(
  { context, tally }: Work,
  deletions: readonly Deletion[],
  deadline: number,
): Promise<void> {
  for (const { policy, filter, entries } of deletions) {
    if (context.clock.now() >= deadline) count(tally.skipped, 'timeLimit', entries);
    else count(tally.deleted, policy, (await deleteEntries(context, filter)).length);
  }
}
