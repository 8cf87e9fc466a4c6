// A plan ↔ the specs of the MasqPlan objects that carry it. An object of the API holds at most 1.5 MiB, so a large plan
// is dealt to several. Entries are dealt by what they are, so that one CIDR more changes one of them.
import { createHash } from 'node:crypto';
import { isObject, own } from '../api/fields.ts';
import type { PerFamily } from '../api/model.ts';
import type { Address } from '../cidr/address.ts';
import { canonicalJson } from './canonical.ts';
import { decodePlan, encodeAddresses, encodePlan } from './codec.ts';
import { PLAN_SCHEMA_VERSION } from './codec-readers.ts';
import type { NodeValues, Plan } from './plan.ts';

/** The spec of one MasqPlan object; crds/ has the schema. Part 0 alone has what is optional here. */
export interface MasqPlanSpec {
  readonly schemaVersion: number;
  readonly plan: string;
  readonly part: number;
  readonly of: number;
  readonly sets: readonly PartSet[];
  readonly contentHash?: string;
  readonly [field: string]: unknown;
}

interface PartSet {
  readonly id: string;
  readonly ipv4: readonly string[];
  readonly ipv6: readonly string[];
}

type Json = Readonly<Record<string, unknown>>;

/** Bytes of set entries that one part shall hold at most, on average; the API server's limit is three times that. */
const PART_BYTES = 512 * 1024;
const NO_VALUES: NodeValues = new Map();

/**
 * The specs of a plan's objects, the first part first. Equal plans give equal specs. The number of parts is a power of
 * two, so that a growing plan is dealt anew only when it has doubled. `partBytes` is for tests.
 */
export function planObjects(plan: Plan, name: string, partBytes = PART_BYTES): readonly MasqPlanSpec[] {
  const { values: _, sets, ...rest } = encodePlan(plan, NO_VALUES) as Json & { readonly sets: PartSet[] };
  const bytes = sets.reduce((sum, set) => sum + bytesOf(set), 0);
  let of = 1;
  while (bytes / of > partBytes) of *= 2;
  const shares = of === 1 ? [sets] : dealt(sets, of);
  return shares.map((share, part) => ({
    schemaVersion: PLAN_SCHEMA_VERSION,
    plan: name,
    part,
    of,
    sets: share,
    ...(part === 0 ? { ...rest, contentHash: contentHashOf({ ...rest, sets }) } : {}),
  }));
}

const bytesOf = ({ ipv4, ipv6 }: PartSet): number =>
  [...ipv4, ...ipv6].reduce((sum, entry) => sum + entry.length + 3, 0);

/** Every set stands in the first part, if need be without entries: a set that is empty is there, too. */
function dealt(sets: readonly PartSet[], of: number): readonly (readonly PartSet[])[] {
  const shares = Array.from({ length: of }, () => new Map<string, { ipv4: string[]; ipv6: string[] }>());
  for (const { id, ...entries } of sets) {
    shares[0]?.set(id, { ipv4: [], ipv6: [] });
    for (const family of ['ipv4', 'ipv6'] as const) {
      for (const entry of entries[family]) {
        const share = shares[bucketOf(`${id} ${entry}`) % of];
        const mine = share?.get(id) ?? { ipv4: [], ipv6: [] };
        share?.set(id, mine);
        mine[family].push(entry);
      }
    }
  }
  return shares.map(share => [...share].map(([id, entries]) => ({ id, ...entries })));
}

/** FNV-1a with a last mixing, since the remainder of a division looks at the lowest bits only. */
function bucketOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 12)) >>> 0;
}

/**
 * The content hash of a plan: of all fields but plan, part, of and contentHash, known or not, in one order, since API
 * servers sort keys, and parts bring entries into another order.
 */
export function contentHashOf(document: Json): string {
  const sets = own(document, 'sets');
  const ordered = Array.isArray(sets) && sets.every(isObject) ? sets.map(orderedSet).sort(byId) : sets;
  return createHash('sha256')
    .update(canonicalJson({ ...document, sets: ordered }))
    .digest('hex')
    .slice(0, 32);
}

const orderedSet = (set: Json): Json => ({
  ...set,
  ipv4: listOf(set, 'ipv4').toSorted(byText),
  ipv6: listOf(set, 'ipv6').toSorted(byText),
});

const byId = (a: Json, b: Json): number => byText(own(a, 'id'), own(b, 'id'));

const byText = (a: unknown, b: unknown): number => (String(a) < String(b) ? -1 : 1);

export type JoinedPlan =
  | { readonly ok: true; readonly plan: Plan; readonly values: NodeValues; readonly contentHash: string }
  /**
   * Incomplete: parts are missing or do not belong together, as for a moment while they are written. NotUnderstood: of
   * a version of which this program knows nothing. Invalid: a value is not what it must be.
   */
  | {
      readonly ok: false;
      readonly why: 'Incomplete' | 'NotUnderstood' | 'Invalid';
      readonly reason: string;
    };

/**
 * The plan that the specs of its parts carry together, in whatever order they come, and the values of one node
 * (spec.addresses of its MasqNode, undefined when it has none). Never throws: nothing in them is trusted.
 */
export function joinPlan(specs: readonly unknown[], values: unknown): JoinedPlan {
  const parts = specs.filter(isObject);
  const first = parts.find(part => own(part, 'part') === 0);
  const refuse = (why: 'Incomplete' | 'NotUnderstood' | 'Invalid', reason: string): JoinedPlan => ({
    ok: false,
    why,
    reason,
  });
  if (first === undefined) return refuse('Incomplete', 'the first part is not there');
  const stranger = parts.find(part => own(part, 'schemaVersion') !== PLAN_SCHEMA_VERSION);
  if (stranger !== undefined) {
    const version = JSON.stringify(own(stranger, 'schemaVersion'));
    const known = `this program knows version ${PLAN_SCHEMA_VERSION}`;
    return refuse('NotUnderstood', `it has schemaVersion ${version}, and ${known}`);
  }
  const missing = missingParts(first, parts);
  if (missing !== undefined) return refuse('Incomplete', missing);
  const { plan: _plan, part: _part, of: _of, contentHash, ...content } = first;
  const document = { ...content, sets: joinedSets(parts) };
  let hash: string;
  try {
    hash = contentHashOf(document);
  } catch (error) {
    // JSON can be nested more deeply than the stack is.
    if (error instanceof RangeError) return refuse('Invalid', 'it is nested too deeply');
    throw error;
  }
  if (hash !== contentHash) {
    return refuse('Incomplete', 'its parts together do not have the content hash that the first part names');
  }
  const decoded = decodePlan({ ...document, values: values ?? {} });
  if (decoded.ok) {
    return { ok: true, plan: decoded.plan, values: decoded.values, contentHash };
  }
  const told = decoded.faults.slice(0, 3).map(({ field, reason }) => `${field}: ${reason}`);
  return refuse('Invalid', told.join('; '));
}

function missingParts(first: Json, parts: readonly Json[]): string | undefined {
  const of = own(first, 'of');
  const mine = parts.filter(part => own(part, 'of') === of);
  const numbers = new Set(mine.map(part => own(part, 'part')));
  if (typeof of !== 'number' || numbers.size !== of || mine.length !== parts.length) {
    return `${numbers.size} of ${JSON.stringify(of)} parts are there`;
  }
  return undefined;
}

/** By id, the entries of all parts one after the other; what is not as it should be is left for the reader to refuse. */
function joinedSets(parts: readonly Json[]): unknown {
  const sets = new Map<unknown, Json>();
  for (const part of parts) {
    const share = own(part, 'sets');
    if (!Array.isArray(share)) return share;
    for (const set of share as readonly unknown[]) {
      if (!isObject(set)) return share;
      const known = sets.get(own(set, 'id'));
      if (known !== undefined) sets.set(own(set, 'id'), joinedSet(known, set));
      else sets.set(own(set, 'id'), set);
    }
  }
  return [...sets.values()];
}

const joinedSet = (a: Json, b: Json): Json => ({
  ...a,
  ...b,
  ipv4: [...listOf(a, 'ipv4'), ...listOf(b, 'ipv4')],
  ipv6: [...listOf(a, 'ipv6'), ...listOf(b, 'ipv6')],
});

const listOf = (set: Json, family: string): readonly unknown[] => {
  const entries = own(set, family);
  return Array.isArray(entries) ? (entries as unknown[]) : [];
};

/** The spec of a MasqNode: the name of the plan, and the node's own values as joinPlan reads them. */
export function masqNodeSpec(plan: string, values: NodeValues): Json {
  const addresses = Object.fromEntries(
    [...values]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]: readonly [string, PerFamily<Address>]) => [key, encodeAddresses(value)]),
  );
  return { plan, ...(values.size === 0 ? {} : { addresses }) };
}
