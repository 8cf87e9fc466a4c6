// One address family's part of the kernel: observe, plan, execute, look again. What was put into place and seen there
// is believed until something fails or a look shows otherwise; with a belief, a change needs no reading.
import type { FamilyTables } from '../render/tables.ts';
import type { Toolset } from './backend.ts';
import { type Difference, type FamilyPlan, isInOrder, planFamily } from './changes.ts';
import { KernelError, messageOf } from './errors.ts';
import { removeChains, removeSets, runStep } from './execute.ts';
import type { JumpPlan } from './jump.ts';
import { createMoveCounter, type MoveLimit } from './moves.ts';
import { type Look, observe, observedOf } from './observe.ts';
import { createPending } from './pending.ts';
import {
  addWrites,
  countsOf,
  differenceText,
  familyName,
  type FamilyReport,
  NO_WRITES,
  reportedError,
  type Writes,
} from './report.ts';
import type { RunContext } from './run.ts';

export interface FamilyDriver {
  /** Makes the kernel so; without reading it first when the last tables are believed to be there. */
  apply(context: RunContext, tools: Toolset, tables: FamilyTables): Promise<FamilyReport>;
  /** Reads, compares, repairs. */
  verify(context: RunContext, tools: Toolset, tables: FamilyTables): Promise<FamilyReport>;
  /** Reads and compares. Throws KernelError. */
  diff(context: RunContext, tools: Toolset, tables: FamilyTables): Promise<readonly Difference[]>;
  /** Tries at once again to remove what could not be removed; returns what is left. */
  removePending(context: RunContext, tools: Toolset, tables: FamilyTables): Promise<readonly string[]>;
  /** Forgets what is believed, as when the backend changed. */
  forget(): void;
}

interface Converged {
  /** What differed. */
  readonly differences: readonly Difference[];
  /** Of the report. */
  readonly part: Pick<FamilyReport, 'ok' | 'jumpMoved'>;
}

const MOVED = { ok: true, jumpMoved: true } as const;
const STAYED = { ok: true } as const;

/** Large sets are compared entry by entry in every so many looks. */
const WHOLE_LOOK_EVERY = 10;

export function createFamilyDriver(clock: RunContext['clock'], moveLimit: MoveLimit): FamilyDriver {
  const pending = createPending(clock);
  const moves = createMoveCounter(clock, moveLimit);
  let belief: FamilyTables | undefined;
  let seenJump: JumpPlan | undefined;
  let unreadable: ReadonlySet<string> = new Set();
  let searched = false;
  let looks = 0;
  /** Chains removed since the last look: on nft nothing would lead to one whose removal did not take place. */
  const removedChains = new Set<string>();

  async function look(
    context: RunContext,
    tools: Toolset,
    tables: FamilyTables,
    how: Omit<Look, 'chains'> & { readonly mayMove: boolean },
  ): Promise<FamilyPlan> {
    const observed = await observe(context, tools, tables, { ...how, chains: removedChains });
    return planFamily(observed, tables, { mayMove: how.mayMove, held: pending.names(), unreadable });
  }

  async function execute(
    context: RunContext,
    tools: Toolset,
    tables: FamilyTables,
    plan: Pick<FamilyPlan, 'steps' | 'staleChains' | 'staleSets'>,
    count: (writes: Writes) => void,
  ): Promise<void> {
    for (const step of plan.steps) {
      count(step.tool === 'ipset' ? ONE_IPSET : ONE_IPTABLES);
      await runStep(context, tools, tables, step);
    }
    const chainNames = [...plan.staleChains, ...pending.due('chain')];
    const chains = await removeChains(context, tools, tables.family, chainNames);
    pending.record('chain', chains);
    for (const name of chains.removed) removedChains.add(name);
    count({ ipsetRestores: 0, iptablesRestores: chains.transactions });
    const sets = await removeSets(context, [...plan.staleSets, ...pending.due('set')]);
    pending.record('set', sets);
    count({ ipsetRestores: sets.setRuns, iptablesRestores: 0 });
  }

  /** The whole way: read, write what differs, read again. */
  async function converge(
    context: RunContext,
    tools: Toolset,
    tables: FamilyTables,
    light: boolean,
    count: (writes: Writes) => void,
  ): Promise<Converged> {
    const everyChain = !searched;
    const plan = await look(context, tools, tables, { light, everyChain, mayMove: moves.mayMove() });
    unreadable = new Set(plan.unreadable.filter(name => unreadable.has(name)));
    seenJump = plan.jump;
    if (plan.jump.moves) moves.moved();
    else moves.seen(plan.jump.contendedBy === undefined);
    await execute(context, tools, tables, plan, count);
    let unseen = plan.unreadable;
    if (!isInOrder(plan)) {
      // ipset said that it took every entry: of large sets the count will do until the next whole look.
      const again = await look(context, tools, tables, { light: true, everyChain, mayMove: false });
      seenJump = again.jump;
      unseen = again.unreadable;
      unreadable = new Set(unseen);
      const left = again.differences.filter(({ object }) => !unseen.includes(object.replace('chain ', '')));
      if (left.length > 0) throw notAsWritten(left.map(differenceText).join('; '));
    }
    if (unseen.length > 0) {
      throw notAsWritten(
        `chain ${unseen.join(', ')} is shown without a set or target of its rules; it is left as it is`,
      );
    }
    belief = tables;
    searched = true;
    removedChains.clear();
    return { differences: plan.differences, part: plan.jump.moves ? MOVED : STAYED };
  }

  async function change(
    context: RunContext,
    tools: Toolset,
    tables: FamilyTables,
    old: FamilyTables,
    count: (writes: Writes) => void,
  ): Promise<void> {
    belief = undefined;
    const options = { mayMove: false, held: pending.names(), unreadable };
    const observed = observedOf(old, pending.names());
    await execute(context, tools, tables, planFamily(observed, tables, options), count);
    belief = tables;
  }

  function report(
    tables: FamilyTables,
    writes: Writes,
    part: Partial<FamilyReport> & Pick<FamilyReport, 'ok'>,
    warning?: string,
  ): FamilyReport {
    const { position, contendedBy, foreignAbove = [] } = seenJump ?? {};
    const unlisted = seenJump !== undefined && position === undefined ? [UNREADABLE_POSTROUTING] : [];
    return {
      changed: writes.ipsetRestores + writes.iptablesRestores > 0,
      ...countsOf(tables),
      writes,
      repairs: [],
      foreignAbove,
      pendingDestroys: [...pending.names()],
      warnings: warning === undefined ? unlisted : [...unlisted, warning],
      ...(position === undefined ? {} : { jumpPosition: position }),
      ...(contendedBy === undefined || moves.mayMove() ? {} : { contended: { foreign: contendedBy } }),
      ...part,
    };
  }

  function failure(context: RunContext, tables: FamilyTables, writes: Writes, error: unknown): FamilyReport {
    context.signal?.throwIfAborted();
    belief = undefined;
    searched = false;
    const reported = reportedError(error);
    // A host without IPv6 NAT, say, lacks nothing when no pod of that family is to be translated.
    if (!tables.needed && (reported.kind === 'not-found' || reported.kind === 'unsupported')) {
      const warning = `${familyName(tables.family)} is not programmed: ${reported.message}`;
      return report(tables, writes, { ok: true, unavailable: true }, warning);
    }
    return report(tables, writes, { ok: false, error: reported });
  }

  return {
    async apply(context, tools, tables) {
      let writes = NO_WRITES;
      const count = (more: Writes): void => void (writes = addWrites(writes, more));
      const names = [...tables.sets, ...tables.chains].map(({ name }) => name);
      // A set that waits for its removal is still there, with old content, and the belief knows nothing of it.
      const known = pending.release(names) ? undefined : belief;
      let warning: string | undefined;
      if (known !== undefined) {
        try {
          await change(context, tools, tables, known, count);
          return report(tables, writes, { ok: true });
        } catch (error) {
          // What the kernel holds now is not known: the whole way finds out, and says what is wrong if it still is.
          context.signal?.throwIfAborted();
          searched = false;
          warning = `the kernel was read anew, since a change failed: ${messageOf(error)}`;
        }
      }
      try {
        const { part } = await converge(context, tools, tables, false, count);
        return report(tables, writes, part, warning);
      } catch (error) {
        return failure(context, tables, writes, error);
      }
    },

    async verify(context, tools, tables) {
      let writes = NO_WRITES;
      const count = (more: Writes): void => void (writes = addWrites(writes, more));
      const believed = belief === tables;
      const light = looks++ % WHOLE_LOOK_EVERY !== 0;
      try {
        const { differences, part } = await converge(context, tools, tables, light, count);
        const repairs = believed ? differences.map(differenceText) : [];
        return report(tables, writes, { ...part, repairs });
      } catch (error) {
        return failure(context, tables, writes, error);
      }
    },

    async diff(context, tools, tables) {
      const how = { light: false, everyChain: true, mayMove: moves.mayMove() };
      return (await look(context, tools, tables, how)).differences;
    },

    async removePending(context, tools, tables) {
      pending.hurry();
      await execute(context, tools, tables, NOTHING, () => {});
      return [...pending.names()];
    },

    forget() {
      belief = undefined;
      searched = false;
    },
  };
}

const ONE_IPSET: Writes = { ipsetRestores: 1, iptablesRestores: 0 };
const ONE_IPTABLES: Writes = { ipsetRestores: 0, iptablesRestores: 1 };
const NOTHING = { steps: [], staleChains: [], staleSets: [] };

const UNREADABLE_POSTROUTING =
  'nat POSTROUTING holds native nftables rules that iptables cannot list; the place of our jump is unknown';

const notAsWritten = (what: string): KernelError =>
  new KernelError(`the kernel does not show what was written: ${what}`, {
    tool: 'iptables',
    args: [],
    code: 0,
    stderr: '',
    kind: 'readback',
  });
