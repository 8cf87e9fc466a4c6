// Raw objects → snapshot: whatever JSON comes, and what stays the same object.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import { createSnapshotReader, type RawSnapshot } from '../../src/operator/snapshot.ts';
import { projectOf, SOURCES } from '../../src/operator/sources.ts';
import { snapshots } from '../oracle/arbitraries.ts';
import { rawOf } from './operator-support.ts';

type Lists = { -readonly [K in keyof RawSnapshot]: Map<string, RawObject> };
const KEYS = ['pools', 'networkSets', 'nodes', 'policies', 'felixConfigs'] as const;

const pool = (name: string, cidr: unknown): RawObject => ({
  metadata: { name, labels: null, annotations: {} },
  spec: { cidr, natOutgoing: true },
});
const listsOf = (pools: readonly RawObject[]): Lists => ({
  pools: new Map(pools.map(it => [it.metadata.name, it])),
  networkSets: new Map(),
  nodes: new Map(),
  policies: new Map(),
  felixConfigs: new Map(),
});

describe('the reader', () => {
  it('gives back the snapshot that the objects were made of, in the order of names', () => {
    fc.assert(
      fc.property(snapshots(), snapshot => {
        const { snapshot: read, refused } = createSnapshotReader()(rawOf(snapshot));
        expect(refused).toEqual([]);
        for (const key of KEYS) {
          const names = snapshot[key].map(({ name }) => name).sort();
          expect(read[key].map(({ name }) => name)).toEqual(names);
        }
        expect(new Set(read.pools)).toEqual(new Set(snapshot.pools));
        expect(new Set(read.networkSets)).toEqual(new Set(snapshot.networkSets));
        expect(new Set(read.nodes)).toEqual(new Set(snapshot.nodes));
        expect(read.policies.map(({ spec }) => spec.rules.length)).toEqual(
          read.policies.map(({ name }) => snapshot.policies.find(it => it.name === name)?.spec.rules.length),
        );
      }),
    );
  });

  it('takes any JSON, and says of each object that it is read or why not', () => {
    const json = fc.jsonValue() as fc.Arbitrary<never>;
    const anything = fc.tuple(json, json, json, fc.constantFrom('a', 'b', '__proto__', 'constructor')).map(
      ([spec, status, labels, name]): RawObject => ({
        metadata: { name, labels, annotations: labels },
        spec,
        status,
      }),
    );
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.constantFrom(...KEYS), fc.constantFrom(...SOURCES), anything)),
        items => {
          const lists = listsOf([]);
          for (const [key, source, object] of items)
            lists[key].set(object.metadata.name, source.project(object));
          const { snapshot, refused } = createSnapshotReader()(lists);
          for (const key of KEYS) {
            const bad = refused.filter(({ list }) => list === key);
            expect(snapshot[key].length + bad.length).toBe(lists[key].size);
            for (const { faults } of bad) expect(faults.length).toBeGreaterThan(0);
          }
        },
      ),
    );
  });

  it('tells all faults of an object', () => {
    const project = projectOf('policies');
    const bad = project({
      metadata: { name: 'bad' },
      spec: {
        source: {},
        rules: [
          { name: 'a', action: 'Drop' },
          { name: 'b', action: 'SNAT' },
        ],
      },
    });
    const { refused } = createSnapshotReader()({ ...listsOf([]), policies: new Map([['bad', bad]]) });
    const fields = refused[0]?.faults.map(({ field }) => field) ?? [];
    expect(refused).toMatchObject([{ list: 'policies', object: bad }]);
    expect(fields.some(field => field.startsWith('spec.source'))).toBe(true);
    expect(fields.some(field => field.startsWith('spec.rules[0]'))).toBe(true);
    expect(fields.some(field => field.startsWith('spec.rules[1]'))).toBe(true);
  });
});

describe('what stays the same', () => {
  it('is everything when nothing changed', () => {
    fc.assert(
      fc.property(snapshots(), snapshot => {
        const raw = rawOf(snapshot);
        const read = createSnapshotReader();
        const first = read(raw);
        expect(read(raw).snapshot).toBe(first.snapshot);
        // Other objects that say the same, as after a status was written or a list was read anew.
        expect(read(rawOf(snapshot)).snapshot).toBe(first.snapshot);
      }),
    );
  });

  it('is all but the one list and the one value that changed', () => {
    fc.assert(
      fc.property(snapshots(), fc.constantFrom(...KEYS), (snapshot, key) => {
        const raw = rawOf(snapshot);
        const read = createSnapshotReader();
        const before = read(raw).snapshot;
        const name = before[key][0]?.name;
        fc.pre(name !== undefined);
        raw[key].delete(name);
        const after = read(raw).snapshot;
        expect(after).not.toBe(before);
        for (const other of KEYS) if (other !== key) expect(after[other]).toBe(before[other]);
        expect(after[key].length).toBe(before[key].length - 1);
        after[key].forEach((value, i) => expect(value).toBe(before[key][i + 1]));
      }),
    );
  });

  it('is the snapshot when an object is refused that was refused before for another reason', () => {
    const read = createSnapshotReader();
    const first = read(listsOf([pool('a', '10.0.0.0/8'), pool('b', 'ten')]));
    const second = read(listsOf([pool('a', '10.0.0.0/8'), pool('b', 'eleven')]));
    expect(second.snapshot).toBe(first.snapshot);
    expect(second.refused[0]?.faults[0]?.reason).toContain('eleven');
  });

  it('is not a value that broke and was mended', () => {
    const read = createSnapshotReader();
    read(listsOf([pool('a', '10.0.0.0/8')]));
    expect(read(listsOf([pool('a', 'ten')])).snapshot.pools).toEqual([]);
    expect(read(listsOf([pool('a', '10.0.0.0/8')])).snapshot.pools).toMatchObject([{ name: 'a' }]);
    expect(read(listsOf([pool('a', '10.0.0.0/9')])).snapshot.pools).toMatchObject([{ cidr: { prefix: 9 } }]);
  });
});
