// Everything of ours off the nodes of a cluster, and our derived objects out of its API: for whoever removes the
// product. Whoever does it leads meanwhile, so no operator writes against it.
import { API_VERSION, MASQ_NODES, MASQ_PLANS, REMOVE_ANNOTATION, REMOVED } from '../api/own-group.ts';
import { isObject, own } from '../api/fields.ts';
import { type Api, ApiError, type RawObject } from '../cluster/api.ts';
import { deleteObject } from '../cluster/apply.ts';
import { refusedAnswer } from '../cluster/https.ts';
import { listAll } from '../cluster/list.ts';
import type { Clock } from '../kernel/clock.ts';

export interface RemovalParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly wallClock: () => Date;
  /** Milliseconds for which nodes are waited for. */
  readonly limitMs: number;
  /** Called whenever more nodes are done. */
  readonly onProgress: (done: number, nodes: number) => void;
}

export interface RemovalReport {
  /** Names of the nodes that hold nothing of ours any more. */
  readonly removed: readonly string[];
  readonly left: readonly LeftNode[];
}

export interface LeftNode {
  readonly name: string;
  /** One sentence part: "its Node is not Ready". */
  readonly reason: string;
}

const PAGE_SIZE = 500;
/** Between two looks: for each node, since each look lists them all, and at least the other. */
const LOOK_MS = { perNode: 2, least: 1_000 };
/** A node that is there answers within a second or two; nodes that are down are not waited for longer than this. */
const DOWN_MS = 15_000;
/** Requests that are under way at once. */
const WIDTH = 20;

/**
 * Asks every node to remove what is ours, waits until all have or the limit is over, then deletes MasqNodes and
 * MasqPlans. Rejects with ApiError when the API cannot be used, and with the signal's reason.
 */
export async function removeEverywhere(parts: RemovalParts, signal: AbortSignal): Promise<RemovalReport> {
  const { api, wallClock } = parts;
  const nodes = await listed(api, MASQ_NODES, signal);
  const annotations = { [REMOVE_ANNOTATION]: wallClock().toISOString() };
  await each(nodes, ({ metadata }) => annotate(api, metadata.name, annotations, signal));
  const report = await answers(parts, signal);
  for (const collection of [MASQ_NODES, MASQ_PLANS]) {
    await each(await listed(api, collection, signal), async ({ metadata: { name, uid } }) => {
      const deleted = await deleteObject(api, { collection, name, uid: String(uid) }, signal);
      if (deleted.result === 'refused') throw new ApiError(deleted.message);
    });
  }
  return report;
}

async function listed(api: Api, path: string, signal: AbortSignal): Promise<readonly RawObject[]> {
  const objects: RawObject[] = [];
  await listAll(api, { path }, PAGE_SIZE, object => void objects.push(object), signal);
  return objects;
}

async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let i = 0; i < items.length; i += WIDTH) await Promise.all(items.slice(i, i + WIDTH).map(work));
}

async function annotate(
  api: Api,
  name: string,
  annotations: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<void> {
  const request = {
    method: 'PATCH',
    path: `${MASQ_NODES}/${encodeURIComponent(name)}`,
    body: { apiVersion: API_VERSION, kind: 'MasqNode', metadata: { annotations } },
    contentType: 'application/merge-patch+json',
  } as const;
  const answer = await api.request(request, signal);
  // A node that went meanwhile needs no answer.
  if (answer.status !== 200 && answer.status !== 404) throw refusedAnswer(request, answer);
}

/** What the nodes make of it, until all have done it or are not waited for any longer. */
async function answers(parts: RemovalParts, signal: AbortSignal): Promise<RemovalReport> {
  const { api, clock, limitMs, onProgress } = parts;
  const start = clock.now();
  let told = -1;
  for (;;) {
    const nodes = await listed(api, MASQ_NODES, signal);
    const removed = nodes.filter(node => readyOf(node)?.reason === REMOVED).map(nameOf);
    const others = nodes.filter(node => readyOf(node)?.reason !== REMOVED);
    if (removed.length > told) onProgress(removed.length, nodes.length);
    told = removed.length;
    const waited = clock.now() - start;
    if (others.length === 0) return { removed, left: [] };
    // Whether a Node is up is asked only where somebody is late.
    const down = waited >= Math.min(DOWN_MS, limitMs) ? await downNodes(api, signal) : new Set<string>();
    if (waited >= limitMs || others.every(node => down.has(nameOf(node)))) {
      return { removed, left: others.map(node => ({ name: nameOf(node), reason: whyLeft(node, down) })) };
    }
    await clock.sleep(Math.max(LOOK_MS.least, LOOK_MS.perNode * nodes.length), signal);
  }
}

const nameOf = ({ metadata }: RawObject): string => metadata.name;

/** The condition Ready. */
function readyOf({
  status,
}: RawObject): { readonly reason: unknown; readonly status: unknown; readonly message: unknown } | undefined {
  const conditions = isObject(status) ? own(status, 'conditions') : undefined;
  const ready: unknown = Array.isArray(conditions)
    ? conditions.find(it => isObject(it) && own(it, 'type') === 'Ready')
    : undefined;
  if (!isObject(ready)) return undefined;
  return { reason: own(ready, 'reason'), status: own(ready, 'status'), message: own(ready, 'message') };
}

async function downNodes(api: Api, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const nodes = await listed(api, '/api/v1/nodes', signal);
  return new Set(nodes.filter(node => readyOf(node)?.status !== 'True').map(nameOf));
}

function whyLeft(node: RawObject, down: ReadonlySet<string>): string {
  const ready = readyOf(node);
  if (ready?.reason === 'RemovalFailed') return String(ready.message);
  if (down.has(nameOf(node))) return 'its Node is not Ready';
  return 'its applier did not answer in time';
}
