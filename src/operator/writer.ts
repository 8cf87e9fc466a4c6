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
/** After so many writes in a row that failed, no more is tried: the server is away, or takes none of the kind. */
const MOST_IN_VAIN = 8;

interface Tally {
  written: number;
  conflicts: number;
  /** Writes that failed since the last one that did not. */
  inVain: number;
  readonly failures: string[];
}

/** Does the stages in order; `isStale` is asked between writes of nodes, of which there may be thousands. */
export async function carryOut(
  stages: Stages,
  parts: WriterParts,
  isStale: () => boolean,
  signal: AbortSignal,
): Promise<WriteReport> {
  const tally: Tally = { written: 0, conflicts: 0, inVain: 0, failures: [] };
  const all = [...stages.plans.flat(), ...stages.nodes, ...stages.removals];
  parts.retries.keep(new Set(all.map(nameOf)));
  let interrupted = false;
  /** Not sent where too much failed before it in its stage: that has its turn in another run. */
  const one = async (write: Write): Promise<boolean> => {
    if (tally.inVain < MOST_IN_VAIN) return send(write, parts, tally, signal);
    interrupted = true;
    return false;
  };
  const inStage = async <T>(
    items: readonly T[],
    first: (item: T) => Write,
    work: (item: T) => Promise<void>,
  ) => {
    tally.inVain = 0;
    const isFresh = (item: T): boolean => !parts.retries.hasFailed(nameOf(first(item)));
    // What failed before comes last, or it would take the others' turns again and again.
    await inParallel([...items.filter(isFresh), ...items.filter(item => !isFresh(item))], work);
  };
  // Parts of one plan in order; a plan of which one part fails is left, its first part says nothing new yet.
  const failed = new Set<string>();
  await inStage(
    stages.plans.filter(plan => plan.length > 0),
    plan => plan[0] as Write,
    async plan => {
      for (const write of plan) {
        if (await one(write)) continue;
        failed.add(planOf(write));
        return;
      }
    },
  );
  // A node must not be pointed at a plan that is not there; those of other plans need not wait for it.
  let stale = false;
  const itself = (write: Write): Write => write;
  await inStage(stages.nodes, itself, async write => {
    stale ||= isStale();
    if (!stale && !failed.has(planOf(write))) await one(write);
  });
  stale ||= isStale();
  // What is in use was asked before the first write, so whatever failed meanwhile is spared. A conflict says that it
  // may not be so any more.
  if (!stale && tally.conflicts === 0) {
    const removals = stages.removals.filter(write => !failed.has(planOf(write)));
    await inStage(removals, itself, async write => void (await one(write)));
  }
  const { written, conflicts, failures } = tally;
  return { written, conflicts, failures, interrupted: interrupted || stale };
}

const planOf = (write: Write): string => (write.verb === 'apply' ? write.object.plan : write.plan);

const targetOf = (write: Write): string => (write.verb === 'apply' ? write.object.name : write.name);

const nameOf = (write: Write): string => `${write.plural}/${targetOf(write)}`;

const contentOf = (write: Write): string =>
  write.verb === 'apply' ? `${write.object.digest} over ${write.lock ?? 'nothing'}` : write.uid;

/** Sends one write, unless the same failed a moment ago. Whether it was taken. */
async function send(write: Write, parts: WriterParts, tally: Tally, signal: AbortSignal): Promise<boolean> {
  signal.throwIfAborted();
  const [name, content] = [nameOf(write), contentOf(write)];
  const held = parts.retries.held(name, content);
  const count = (why: string | undefined): false => {
    if (why === undefined) tally.conflicts += 1;
    else tally.failures.push(why);
    return false;
  };
  if (held !== undefined) return count(held.why);
  const fail = (why?: string): false => {
    parts.retries.failed(name, content, why);
    if (why !== undefined) tally.inVain += 1;
    return count(why);
  };
  try {
    const outcome = await parts.send(write, signal);
    parts.onWrite(write, outcome.result);
    if (outcome.result === 'done') {
      parts.retries.done(name);
      noteDone(write, outcome.object, parts);
      tally.written += 1;
      tally.inVain = 0;
      return true;
    }
    parts.known[write.plural].forget(targetOf(write));
    if (outcome.result === 'conflict') return fail();
    // An apply makes what is not there, so not found is the kind.
    return fail(`${name} was refused: ${outcome.message}`);
  } catch (error) {
    signal.throwIfAborted();
    parts.onWrite(write, 'failed');
    return fail(`${name} could not be written: ${messageOf(error)}`);
  }
}

function noteDone(write: Write, object: RawObject, { known, project }: WriterParts): void {
  if (write.verb === 'delete') known[write.plural].deleted(write.name, write.uid);
  else known[write.plural].wrote(write.object.name, project[write.plural](object));
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  const lane = async (): Promise<void> => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
}
