// Raw objects → the snapshot that the planner reads, and what was refused. Pure but for its memory: an object that is
// the same object as last time is not validated again, what reads as it did last time is the same value (a policy whose
// status was written, a node with another heartbeat), and a list of which nothing changed is the same list, so that the
// planner can go by identity.
import { isDeepStrictEqual } from 'node:util';
import type { Fault, Snapshot, Validated } from '../api/model.ts';
import { readIpPool, readNetworkSet } from '../api/validate-calico.ts';
import { readFelixConfiguration } from '../api/validate-felix.ts';
import { readNode } from '../api/validate-node.ts';
import { validateMasqPolicy } from '../api/validate-policy.ts';
import type { RawObject } from '../cluster/api.ts';

export type RawObjects = ReadonlyMap<string, RawObject>;
export type RawSnapshot = { readonly [K in keyof Snapshot]: RawObjects };

export interface Refused {
  readonly list: keyof Snapshot;
  readonly object: RawObject;
  readonly faults: readonly Fault[];
}

export interface ReadSnapshot {
  readonly snapshot: Snapshot;
  readonly refused: readonly Refused[];
}

type Readers = { readonly [K in keyof Snapshot]: (object: unknown) => Validated<Snapshot[K][number]> };

const READERS: Readers = {
  pools: readIpPool,
  networkSets: readNetworkSet,
  nodes: readNode,
  policies: validateMasqPolicy,
  felixConfigs: readFelixConfiguration,
};

interface ReadList<T> {
  readonly values: readonly T[];
  readonly refused: readonly Refused[];
}

/** A reader with a memory of its last call; any JSON in, never throws. Lists are in the order of names. */
export function createSnapshotReader(): (raw: RawSnapshot) => ReadSnapshot {
  const lists = {
    pools: listReader('pools'),
    networkSets: listReader('networkSets'),
    nodes: listReader('nodes'),
    policies: listReader('policies'),
    felixConfigs: listReader('felixConfigs'),
  };
  let last: ReadSnapshot | undefined;
  return raw => {
    const pools = lists.pools(raw.pools);
    const networkSets = lists.networkSets(raw.networkSets);
    const nodes = lists.nodes(raw.nodes);
    const policies = lists.policies(raw.policies);
    const felixConfigs = lists.felixConfigs(raw.felixConfigs);
    const snapshot: Snapshot = {
      pools: pools.values,
      networkSets: networkSets.values,
      nodes: nodes.values,
      policies: policies.values,
      felixConfigs: felixConfigs.values,
    };
    const refused = [pools, networkSets, nodes, policies, felixConfigs].flatMap(list => list.refused);
    if (last !== undefined && sameSnapshot(last.snapshot, snapshot)) {
      last = { snapshot: last.snapshot, refused };
    } else last = { snapshot, refused };
    return last;
  };
}

const sameSnapshot = (a: Snapshot, b: Snapshot): boolean =>
  (Object.keys(READERS) as (keyof Snapshot)[]).every(key => a[key] === b[key]);

function listReader<K extends keyof Snapshot>(list: K): (raw: RawObjects) => ReadList<Snapshot[K][number]> {
  type Item = Snapshot[K][number];
  const known = new WeakMap<RawObject, Validated<Item>>();
  const read: (object: unknown) => Validated<Item> = READERS[list];
  let last: ReadList<Item> = { values: [], refused: [] };
  let lastValues: ReadonlyMap<string, Item> = new Map();
  const valueOf = (name: string, value: Item): Item => {
    const before = lastValues.get(name);
    return before !== undefined && isDeepStrictEqual(before, value) ? before : value;
  };
  return raw => {
    const values: Item[] = [];
    const refused: Refused[] = [];
    for (const name of [...raw.keys()].sort()) {
      const object = raw.get(name) as RawObject;
      let validated = known.get(object);
      if (validated === undefined) {
        validated = read(object);
        if (validated.ok) validated = { ...validated, value: valueOf(name, validated.value) };
        known.set(object, validated);
      }
      if (validated.ok) values.push(validated.value);
      else refused.push({ list, object, faults: validated.faults });
    }
    const same = values.length === last.values.length && values.every((value, i) => value === last.values[i]);
    last = { values: same ? last.values : values, refused };
    lastValues = new Map(values.map(value => [value.name, value]));
    return last;
  };
}
