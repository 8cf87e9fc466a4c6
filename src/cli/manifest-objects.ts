// Objects of manifests → the snapshot that the planner reads, and a verdict on each object.
import { isDeepStrictEqual } from 'node:util';
import { isObject, own } from '../api/fields.ts';
import type { Fault, Snapshot, Validated } from '../api/model.ts';
import { OWN_GROUP } from '../api/own-group.ts';
import { quote } from '../api/report.ts';
import { readIpPool, readNetworkSet } from '../api/validate-calico.ts';
import { readFelixConfiguration } from '../api/validate-felix.ts';
import { readNode } from '../api/validate-node.ts';
import { validateMasqPolicy } from '../api/validate-policy.ts';
import { isObjectName } from '../api/values.ts';
import type { Place, Placed } from './manifest-documents.ts';

export interface ObjectVerdict extends Place {
  /** As written where it is a word, else quoted; empty where there is none. */
  readonly kind: string;
  readonly name: string;
  readonly verdict: 'ok' | 'refused' | 'passed over';
  /** Why it is passed over. */
  readonly note?: string;
  readonly faults: readonly Fault[];
  readonly warnings: readonly Fault[];
}

interface Named {
  readonly name: string;
}

type Lists = { readonly [K in keyof Snapshot]: Snapshot[K][number][] };

/** What a reader said, and how what it read gets into the snapshot. */
interface Reading {
  readonly list: keyof Snapshot;
  readonly validated: Validated<Named>;
  readonly take: (lists: Lists) => void;
}

type Kind = (object: unknown) => Reading;

function kindOf<K extends keyof Snapshot>(
  list: K,
  read: (object: unknown) => Validated<Snapshot[K][number]>,
): Kind {
  return object => {
    const validated = read(object);
    const take = (lists: Lists): void => {
      if (validated.ok) lists[list].push(validated.value);
    };
    return { list, validated, take };
  };
}

/** Written by programs for programs; of no interest to who reads manifests. */
const MACHINE_KINDS = ['MasqPlan', 'MasqNode'];

/** By group and kind; the readers look at the version. */
const KINDS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  [`${OWN_GROUP}/MasqPolicy`, kindOf('policies', validateMasqPolicy)],
  ['/Node', kindOf('nodes', readNode)],
  ...['crd.projectcalico.org', 'projectcalico.org'].flatMap((group): [string, Kind][] => [
    [`${group}/IPPool`, kindOf('pools', readIpPool)],
    [`${group}/GlobalNetworkSet`, kindOf('networkSets', readNetworkSet)],
    [`${group}/FelixConfiguration`, kindOf('felixConfigs', readFelixConfiguration)],
  ]),
]);

export const placeText = ({ file, document, item }: Place): string =>
  `${file}:${document}${item === undefined ? '' : `[${item}]`}`;

interface Identity {
  readonly group: string;
  readonly kind: string;
  readonly name: string;
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

function identityOf(value: Readonly<Record<string, unknown>>): Identity {
  const [group, version] = textOf(own(value, 'apiVersion')).split('/');
  const metadata = own(value, 'metadata');
  const name = isObject(metadata) ? textOf(own(metadata, 'name')) : '';
  const kind = textOf(own(value, 'kind'));
  return {
    // The core group has no name: its apiVersion is v1.
    group: version === undefined ? '' : (group ?? ''),
    kind: kind === '' || /^[A-Za-z0-9]{1,63}$/.test(kind) ? kind : quote(kind),
    name: name === '' || isObjectName(name) ? name : quote(name),
  };
}

const refusal = (place: Place, { kind, name }: Identity, faults: readonly Fault[]): ObjectVerdict => ({
  ...place,
  kind,
  name,
  verdict: 'refused',
  faults,
  warnings: [],
});

/** The verdict on what is not of a kind that is read. */
function strange(place: Place, identity: Identity): ObjectVerdict {
  const { group, kind, name } = identity;
  if (kind === '') return refusal(place, identity, [{ field: 'kind', reason: 'is required' }]);
  if (group === OWN_GROUP && !MACHINE_KINDS.includes(kind)) {
    return refusal(place, identity, [{ field: 'kind', reason: `"${kind}" is not a kind of ${OWN_GROUP}` }]);
  }
  const note = `kind ${kind} passed over`;
  return { ...place, kind, name, verdict: 'passed over', note, faults: [], warnings: [] };
}

interface Taken {
  readonly place: Place;
  readonly group: string;
  readonly value: Named;
}

/**
 * Judges the objects in their order. Of two objects of one kind and name the second is refused, unless they are one
 * object of Calico's that a cluster serves in both groups; that counts once.
 */
export function assemble(objects: readonly Placed[]): {
  readonly snapshot: Snapshot;
  readonly verdicts: readonly ObjectVerdict[];
} {
  const taken = new Map<string, Taken>();
  const lists: Lists = {
    pools: [],
    networkSets: [],
    nodes: [],
    policies: [],
    felixConfigs: [],
  };
  const verdicts = objects.map(({ place, value }): ObjectVerdict => {
    if (!isObject(value)) {
      const faults = [{ field: '', reason: `${quote(value)} is not an object` }];
      return refusal(place, { group: '', kind: '', name: '' }, faults);
    }
    const identity = identityOf(value);
    const { group, kind, name } = identity;
    const read = KINDS.get(`${group}/${kind}`)?.(value);
    if (read === undefined) return strange(place, identity);
    const { list, validated, take } = read;
    const { warnings } = validated;
    if (!validated.ok)
      return { ...place, kind, name, verdict: 'refused', faults: validated.faults, warnings };
    const key = `${list}/${validated.value.name}`;
    const first = taken.get(key);
    if (first !== undefined) return second(place, identity, validated.value, first);
    taken.set(key, { place, group, value: validated.value });
    take(lists);
    return { ...place, kind, name, verdict: 'ok', faults: [], warnings };
  });
  return { snapshot: lists, verdicts };
}

function second(place: Place, identity: Identity, value: Named, first: Taken): ObjectVerdict {
  const { group, kind, name } = identity;
  const where = placeText(first.place);
  if (group !== first.group && isDeepStrictEqual(value, first.value)) {
    const note = `${kind} ${name} passed over: it is the one at ${where}, in the other group`;
    return { ...place, kind, name, verdict: 'passed over', note, faults: [], warnings: [] };
  }
  const difference = group === first.group ? 'already' : 'already, in the other group and not the same';
  return refusal(place, identity, [
    { field: 'metadata.name', reason: `"${name}" stands at ${where} ${difference}` },
  ]);
}
