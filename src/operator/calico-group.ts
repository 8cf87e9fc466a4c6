// Which of Calico's two API groups says what is true. Pure.
//
// Calico's own rule (libcalico-go): crd.projectcalico.org/v1 where it is served, since projectcalico.org/v3 beside it is
// mostly a view of it; else v3. Its migration to plain v3 CRDs copies all objects, says Converged in a
// DatastoreMigration, after which v3 is what Calico reads and v1 goes stale, and removes the v1 CRDs at its end.
import { isObject, own } from '../api/fields.ts';
import type { RawObject } from '../cluster/api.ts';
import type { CalicoGroup } from './sources.ts';

/**
 * unknown: no answer yet. absent: not served, and never was. listed: whole, if perhaps not of this minute. gone: was
 * listed, and is not served any more or is being removed; what was seen last is still there.
 */
export type GroupState = 'unknown' | 'absent' | 'listed' | 'gone';

export interface GroupFacts {
  readonly states: { readonly [G in CalicoGroup]: GroupState };
  /** Absent while it is not known. */
  readonly migrated?: boolean;
  /** What a person demands; the states have no say then. */
  readonly demanded?: CalicoGroup;
  /** The last answer. */
  readonly previous?: CalicoGroup;
}

/** The group to read; undefined while none can be told apart from "not there yet". */
export function chooseGroup({ states, migrated, demanded, previous }: GroupFacts): CalicoGroup | undefined {
  if (demanded !== undefined) return has(states[demanded]) ? demanded : undefined;
  if (states.v1 === 'unknown' || (states.v3 === 'unknown' && migrated === true)) return previous;
  if (states.v1 === 'listed' && has(states.v3) && migrated === undefined) return previous;
  if (states.v1 === 'listed') return migrated === true && states.v3 === 'listed' ? 'v3' : 'v1';
  if (states.v3 === 'listed') return 'v3';
  // Nothing is served that could say more than what was seen last.
  return previous ?? (states.v1 === 'gone' ? 'v1' : undefined);
}

const has = (state: GroupState): boolean => state === 'listed' || state === 'gone';

const MIGRATED_PHASES: readonly unknown[] = ['Converged', 'Complete'];

/** Whether a migration has come so far that Calico itself reads projectcalico.org/v3. */
export const isMigrated = (migrations: Iterable<RawObject>): boolean =>
  [...migrations].some(({ status }) => isObject(status) && MIGRATED_PHASES.includes(own(status, 'phase')));
