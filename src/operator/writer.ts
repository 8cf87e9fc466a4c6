// Carries out the writes that writes.ts asks for, stage by stage, and remembers what they made of the objects.
import type { RawObject } from '../cluster/api.ts';
import type { Outcome } from '../cluster/apply.ts';
import { messageOf } from '../kernel/errors.ts';
import type { KernelLog } from '../kernel/log.ts';
import type { Known } from './known.ts';
import type { Stages, Write } from './writes.ts';

/** How a write reaches the API; cluster/apply.ts behind the fence of leadership. */
export interface Send {
  (write: Write, signal: AbortSignal): Promise<Outcome>;
}

export interface WriterParts {
  readonly send: Send;
  readonly known: { readonly masqplans: Known; readonly masqnodes: Known };
  /** What is kept of a written object, as of a watched one. */
  readonly project: {
    readonly masqplans: (o: RawObject) => RawObject;
    readonly masqnodes: (o: RawObject) => RawObject;
  };
  readonly log: KernelLog;
  /** Called for each write that was answered. */
  readonly onWrite: (write: Write, result: Outcome['result'] | 'failed') => void;
}

export interface WriteReport {
  readonly written: number;
  /** Somebody else wrote in between: to be looked at again when the watch has shown it. */
  readonly conflicts: number;
  /** Sentences. */
  readonly failures: readonly string[];
  /** Not all was tried, since something changed meanwhile. */
  readonly interrupted: boolean;
}

/** Writes in flight at once. The rate is limited elsewhere. */
const SIDE_BY_SIDE = 8;

/** Does the stages in order; `isStale` is asked between writes of nodes, of which there may be thousands. */
export async function carryOut(
  stages: Stages,
  parts: WriterParts,
  isStale: () => boolean,
  signal: AbortSignal,
): Promise<WriteReport> {
  const tally = { written: 0, conflicts: 0, failures: [] as string[] };
  const one = async (write: Write): Promise<boolean> => {
    signal.throwIfAborted();
    try {
      const outcome = await parts.send(write, signal);
      parts.onWrite(write, outcome.result);
      return note(write, outcome, parts, tally);
    } catch (error) {
      signal.throwIfAborted();
      parts.onWrite(write, 'failed');
      tally.failures.push(`${nameOf(write)} could not be written: ${messageOf(error)}`);
      return false;
    }
  };
  // Parts of one plan in order; a plan of which one part fails is left, its first part says nothing new yet.
  await inParallel(stages.plans, async plan => {
    for (const write of plan) if (!(await one(write))) return;
  });
  const plansFailed = tally.failures.length + tally.conflicts > 0;
  let interrupted = plansFailed;
  // A node must not be pointed at a plan that is not there.
  if (!plansFailed) {
    await inParallel(stages.nodes, async write => {
      interrupted ||= isStale();
      if (!interrupted) await one(write);
    });
    interrupted ||= isStale();
  }
  const nodesFailed = tally.failures.length + tally.conflicts > 0;
  if (!interrupted && !nodesFailed) await inParallel(stages.removals, async write => void (await one(write)));
  return { ...tally, interrupted };
}

const nameOf = (write: Write): string =>
  `${write.plural}/${write.verb === 'apply' ? write.object.name : write.name}`;

function note(
  write: Write,
  outcome: Outcome,
  { known, project }: WriterParts,
  tally: { written: number; conflicts: number; failures: string[] },
): boolean {
  const mine = known[write.plural];
  if (outcome.result === 'conflict') {
    tally.conflicts += 1;
    mine.forget(write.verb === 'apply' ? write.object.name : write.name);
    return false;
  }
  if (outcome.result === 'refused') {
    tally.failures.push(`${nameOf(write)} was refused: ${outcome.message}`);
    return false;
  }
  if (write.verb === 'delete') mine.deleted(write.name, write.uid);
  else if (outcome.result === 'done') mine.wrote(write.object.name, project[write.plural](outcome.object));
  tally.written += 1;
  return true;
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  const lane = async (): Promise<void> => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
}
