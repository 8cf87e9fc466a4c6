// What all watches know together → the raw snapshot to plan with, or what is still waited for. Pure.
import type { RawObject } from '../cluster/api.ts';
import type { Health } from '../cluster/list-watch.ts';
import { chooseGroup, type GroupState, isMigrated } from './calico-group.ts';
import type { RawObjects, RawSnapshot } from './snapshot.ts';
import {
  CALICO_GROUPS,
  CALICO_KINDS,
  type CalicoGroup,
  type CalicoKind,
  type SourceKey,
  sourceOf,
} from './sources.ts';

/** The watches, by source. */
export interface Watched {
  objects(key: SourceKey): RawObjects;
  health(key: SourceKey): Health;
}

export type Gathered =
  /** Nothing may be written: not every source has been listed whole. One sentence for each. */
  | { readonly ready: false; readonly waitingFor: readonly string[] }
  | {
      readonly ready: true;
      readonly group: CalicoGroup;
      readonly raw: RawSnapshot;
      readonly masqNodes: RawObjects;
      readonly masqPlans: RawObjects;
      /** Sentences about sources that fail at present; what they showed last is in `raw`. */
      readonly stale: readonly string[];
      /** Whether a source fails, if perhaps not yet for so long that it is spoken of. */
      readonly failing: boolean;
    };

export interface GatherOptions {
  readonly demanded?: CalicoGroup;
  /** The group that was read last. */
  readonly previous?: CalicoGroup;
  /** Milliseconds of the wall clock. */
  readonly now: number;
}

/** A source that fails for less than this is not spoken of: API servers restart. */
export const STALE_AFTER_MS = 10_000;

const NEEDED = ['policies', 'nodes', 'masqNodes', 'masqPlans'] as const satisfies readonly SourceKey[];
const NONE: ReadonlyMap<string, RawObject> = new Map();

export function gather(watched: Watched, { demanded, previous, now }: GatherOptions): Gathered {
  const group = chooseGroup({
    states: { v1: groupState(watched, 'v1'), v3: groupState(watched, 'v3') },
    ...migrationOf(watched),
    ...(demanded === undefined ? {} : { demanded }),
    ...(previous === undefined ? {} : { previous }),
  });
  const missing = NEEDED.filter(key => !watched.health(key).listed);
  if (group === undefined || missing.length > 0) {
    const pools = group === undefined ? [waitingForPools(watched, demanded)] : [];
    return { ready: false, waitingFor: [...missing.map(key => waitingText(watched, key)), ...pools] };
  }
  const calico = (kind: CalicoKind): RawObjects =>
    isServed(watched, kind, group) ? watched.objects(`${kind}/${group}`) : NONE;
  const used: readonly SourceKey[] = [
    ...NEEDED,
    ...CALICO_KINDS.filter(kind => isServed(watched, kind, group)).map(
      (kind): SourceKey => `${kind}/${group}`,
    ),
  ];
  return {
    ready: true,
    group,
    raw: {
      // What is told of policies is told after writes, when the watch may have gone on: it must be of what was planned.
      policies: new Map(watched.objects('policies')),
      nodes: watched.objects('nodes'),
      pools: calico('pools'),
      networkSets: calico('networkSets'),
      felixConfigs: calico('felixConfigs'),
    },
    masqNodes: watched.objects('masqNodes'),
    masqPlans: watched.objects('masqPlans'),
    stale: used.flatMap(key => staleText(watched, key, now)),
    failing: used.some(key => watched.health(key).failing !== undefined),
  };
}

/** A kind that was never there is none: a cluster may have IPPools and no CRD of GlobalNetworkSets. */
const isServed = (watched: Watched, kind: CalicoKind, group: CalicoGroup): boolean =>
  watched.health(`${kind}/${group}`).listed;

/** A cluster where nobody migrates has no such kind; while that is not known neither is the answer. */
function migrationOf(watched: Watched): { readonly migrated?: boolean } {
  if (stateOf(watched.health('migrations')) === 'unknown') return {};
  return { migrated: isMigrated(watched.objects('migrations').values()) };
}

function groupState(watched: Watched, group: CalicoGroup): GroupState {
  const states = CALICO_KINDS.map(kind => stateOf(watched.health(`${kind}/${group}`)));
  if (states.includes('unknown')) return 'unknown';
  return states[0] ?? 'unknown';
}

function stateOf({ listed, failing }: Health): GroupState {
  if (!listed) return failing?.kind === 'gone' ? 'absent' : 'unknown';
  return failing?.kind === 'gone' ? 'gone' : 'listed';
}

const whatOf = (key: SourceKey): string => {
  const { what, group, version } = sourceOf(key);
  return `${what} (${group || 'core'}/${version})`;
};

function waitingText(watched: Watched, key: SourceKey): string {
  const { failing } = watched.health(key);
  return `${whatOf(key)} have not been listed yet${failing === undefined ? '' : `: ${failing.reason}`}`;
}

function waitingForPools(watched: Watched, demanded: CalicoGroup | undefined): string {
  const groups = demanded === undefined ? CALICO_GROUPS : [demanded];
  const calico = groups.flatMap(group => CALICO_KINDS.map((kind): SourceKey => `${kind}/${group}`));
  const keys: readonly SourceKey[] = demanded === undefined ? [...calico, 'migrations'] : calico;
  const unknown = keys.filter(key => stateOf(watched.health(key)) === 'unknown');
  const asked = unknown.length > 0 ? unknown : calico.filter(key => !watched.health(key).listed);
  const told = asked.map(key => `${whatOf(key)}: ${watched.health(key).failing?.reason ?? 'no answer yet'}`);
  return `it is not known yet which group of Calico's to read (${told.join('; ')})`;
}

function staleText(watched: Watched, key: SourceKey, now: number): readonly string[] {
  const { failing } = watched.health(key);
  if (failing === undefined || now - failing.since < STALE_AFTER_MS) return [];
  return [`${whatOf(key)} cannot be read since ${new Date(failing.since).toISOString()}: ${failing.reason}`];
}
