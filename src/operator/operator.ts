// The operator on dot-i's Operator shape: init registers what is watched, events are handed to handlers, start and stop
// frame its life. Its own watch never lists and loses what happens between two watches, so events come from our
// list-and-watch here; its status and finalizer calls swallow errors and are not used.
import { setMaxListeners } from 'node:events';
import dotI, { type ResourceEvent, ResourceEventType, type ResourceMeta } from '@dot-i/k8s-operator';
import type { KubernetesObject } from '@kubernetes/client-node';
import type { Api, RawObject } from '../cluster/api.ts';
import { crdDeletes } from '../cluster/crd-deletes.ts';
import { createListWatch, type Health, type ListWatch } from '../cluster/list-watch.ts';
import type { Logger } from 'pino';
import type { Clock } from '../kernel/clock.ts';
import type { Watched } from './gather.ts';
import { type Source, type SourceKey, sourcePath, SOURCES } from './sources.ts';

export interface OperatorParts {
  readonly api: Api;
  /** Of the API server, without a path. */
  readonly url: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
  /** Something changed: objects, or whether they can be read. */
  readonly onChange: () => void;
}

export class MasqOperator extends dotI.default {
  readonly #parts: OperatorParts;
  readonly #stop = new AbortController();
  readonly #watches = new Map<SourceKey, ListWatch>();
  readonly #running: Promise<void>[] = [];

  constructor(parts: OperatorParts) {
    const { log } = parts;
    super({
      debug: message => log.debug({}, message),
      info: message => log.info({}, message),
      warn: message => log.warn({}, message),
      error: message => log.error({}, message),
    });
    this.#parts = parts;
    // Each watch listens to it; more than ten are no leak here.
    setMaxListeners(0, this.#stop.signal);
  }

  /** What the watches know; a source that is not watched yet knows nothing. */
  readonly watched: Watched = {
    objects: key => this.#watches.get(key)?.objects() ?? new Map<string, RawObject>(),
    health: key => this.#watches.get(key)?.health() ?? NOT_YET,
  };

  protected override async init(): Promise<void> {
    for (const { group, version, plural } of SOURCES) {
      // The state is what counts, not the event: whoever is woken looks at everything.
      const onEvent = (): Promise<void> => Promise.resolve(this.#parts.onChange());
      await this.watchResource(group, version, plural, onEvent);
    }
  }

  override stop(): void {
    this.#stop.abort(new Error('the operator stops'));
  }

  /** Resolves when all watches have ended after stop(). */
  async ended(): Promise<void> {
    await Promise.all(this.#running);
  }

  protected override getCustomResourceApiUri(group: string, version: string, plural: string): string {
    return `${this.#parts.url}${sourcePath({ group, version, plural })}`;
  }

  protected override watchResource(
    group: string,
    version: string,
    plural: string,
    onEvent: (event: ResourceEvent) => Promise<void>,
  ): Promise<void> {
    const source = SOURCES.find(it => it.group === group && it.plural === plural && it.version === version);
    if (source === undefined) throw new Error(`nobody reads ${plural} of ${group}/${version}`);
    const { api, clock, random, log, onChange } = this.#parts;
    const listWatch = createListWatch({
      api,
      resource: { path: sourcePath(source) },
      clock,
      wallClock: Date.now,
      random,
      log: log.child({ watch: `${source.plural}.${source.group || 'core'}` }),
      project: source.project,
      backoff: BACKOFF,
      onChange: ({ type, object }) => void onEvent(eventOf(source, type, object)),
      onHealth: onChange,
      ...(source.isCrd ? { confirmDeletes: crdDeletes(api, source) } : {}),
    });
    this.#watches.set(source.key, listWatch);
    this.#running.push(listWatch.run(this.#stop.signal));
    return Promise.resolve();
  }
}

/** One operator asks for a dozen kinds: it may come back sooner than thousands of nodes. */
const BACKOFF = { firstMs: 250, longestMs: 8_000 };

const NOT_YET: Health = { listed: false };

function eventOf(source: Source, type: 'ADDED' | 'MODIFIED' | 'DELETED', object: RawObject): ResourceEvent {
  const { group, version, plural } = source;
  const { name, resourceVersion } = object.metadata;
  const apiVersion = group === '' ? version : `${group}/${version}`;
  const meta: ResourceMeta = {
    id: `${plural}.${apiVersion}`,
    name,
    resourceVersion: typeof resourceVersion === 'string' ? resourceVersion : '',
    apiVersion,
    kind: source.kind,
  };
  return { meta, type: EVENT_TYPES[type], object: object as KubernetesObject };
}

const EVENT_TYPES = {
  ADDED: ResourceEventType.Added,
  MODIFIED: ResourceEventType.Modified,
  DELETED: ResourceEventType.Deleted,
} as const;
