// Carries out the writes that writes.ts asks for, stage by stage, and remembers what they made of the objects.
import type { RawObject } from '../cluster/api.ts';
import type { Outcome } from '../cluster/apply.ts';
import { messageOf } from '../kernel/errors.ts';
import type { Known } from './known.ts';
import type { Retries } from './retries.ts';
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
  readonly retries: Retries;
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
/** After so many writes without an answer the server is not asked for more in this run. */
const MOST_UNANSWERED = 8;

interface Tally {
  written: number;
  conflicts: number;
  unanswered: number;
  readonly failures: string[];
}

/** Does the stages in order; `isStale` is asked between writes of nodes, of which there may be thousands. */
export async function carryOut(
  stages: Stages,
  parts: WriterParts,
  isStale: () => boolean,
  signal: AbortSignal,
): Promise<WriteReport> {
  const tally: Tally = { written: 0, conflicts: 0, unanswered: 0, failures: [] };
  const all = [...stages.plans.flat(), ...stages.nodes, ...stages.removals];
  parts.retries.keep(new Set(all.map(nameOf)));
  const one = (write: Write): Promise<boolean> => send(write, parts, tally, signal);
  const isOver = (): boolean => tally.unanswered >= MOST_UNANSWERED;
  // Parts of one plan in order; a plan of which one part fails is left, its first part says nothing new yet.
  const failed = new Set<string>();
  await inParallel(stages.plans, async plan => {
    for (const write of plan) {
      if (!isOver() && (await one(write))) continue;
      failed.add(planOf(write));
      return;
    }
  });
  let interrupted = isOver();
  // A node must not be pointed at a plan that is not there; those of other plans need not wait for it.
  await inParallel(stages.nodes, async write => {
    interrupted ||= isStale() || isOver();
    if (!interrupted && !failed.has(planOf(write))) await one(write);
  });
  interrupted ||= isStale();
  // What is in use was asked before the first write, so whatever failed meanwhile is spared. A conflict says that it
  // may not be so any more.
  if (!interrupted && tally.conflicts === 0) {
    const removals = stages.removals.filter(write => !failed.has(planOf(write)));
    await inParallel(removals, async write => void (isOver() || (await one(write))));
  }
  const { written, conflicts, failures } = tally;
  return { written, conflicts, failures, interrupted };
}

const planOf = (write: Write): string => (write.verb === 'apply' ? write.object.plan : write.plan);

const nameOf = (write: Write): string =>
  `${write.plural}/${write.verb === 'apply' ? write.object.name : write.name}`;

const contentOf = (write: Write): string => (write.verb === 'apply' ? write.object.digest : write.uid);

/** Sends one write, unless the same failed a moment ago. Whether it was taken. */
async function send(write: Write, parts: WriterParts, tally: Tally, signal: AbortSignal): Promise<boolean> {
  signal.throwIfAborted();
  const [name, content] = [nameOf(write), contentOf(write)];
  const held = parts.retries.held(name, content);
  if (held !== undefined) {
    tally.failures.push(held);
    return false;
  }
  const fail = (why: string): false => {
    parts.retries.failed(name, content, why);
    tally.failures.push(why);
    return false;
  };
  try {
    const outcome = await parts.send(write, signal);
    parts.onWrite(write, outcome.result);
    if (outcome.result === 'refused') return fail(`${name} was refused: ${outcome.message}`);
    parts.retries.done(name);
    return note(write, outcome, parts, tally);
  } catch (error) {
    signal.throwIfAborted();
    parts.onWrite(write, 'failed');
    tally.unanswered += 1;
    return fail(`${name} could not be written: ${messageOf(error)}`);
  }
}

function note(write: Write, outcome: Outcome, { known, project }: WriterParts, tally: Tally): boolean {
  const mine = known[write.plural];
  if (write.verb === 'delete' && outcome.result !== 'conflict') mine.deleted(write.name, write.uid);
  else if (write.verb === 'apply' && outcome.result === 'done') {
    mine.wrote(write.object.name, project[write.plural](outcome.object));
  } else {
    tally.conflicts += 1;
    mine.forget(write.verb === 'apply' ? write.object.name : write.name);
    return false;
  }
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
