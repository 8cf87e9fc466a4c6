// What the watches know together: ready, or what is waited for, and what may be old.
import { describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/api.ts';
import type { Health } from '../../src/cluster/list-watch.ts';
import { gather, type GatherOptions, STALE_AFTER_MS, type Watched } from '../../src/operator/gather.ts';
import { type SourceKey, SOURCES } from '../../src/operator/sources.ts';
import { ABSENT, LISTED, NO_ANSWER } from './operator-support.ts';

const V1: Readonly<Record<string, Health>> = {
  policies: LISTED,
  nodes: LISTED,
  masqNodes: LISTED,
  masqPlans: LISTED,
  migrations: ABSENT,
  'pools/v1': LISTED,
  'networkSets/v1': LISTED,
  'felixConfigs/v1': LISTED,
  'pools/v3': ABSENT,
  'networkSets/v3': ABSENT,
  'felixConfigs/v3': ABSENT,
};
const failing = (kind: 'gone' | 'failing', listed = true, since = 0): Health => ({
  listed,
  failing: { since, kind, reason: 'GET /x: HTTP 403: forbidden' },
});

const lists = new Map(
  SOURCES.map(({ key }) => [key, new Map<string, RawObject>([[key, { metadata: { name: key } }]])]),
);
const watched = (health: Readonly<Record<string, Health>>): Watched => ({
  objects: key =>
    health[key]?.listed === true
      ? (lists.get(key) ?? new Map<string, RawObject>())
      : new Map<string, RawObject>(),
  health: key => health[key] ?? NO_ANSWER,
});
const look = (changes: Readonly<Record<string, Health>>, options: Partial<GatherOptions> = {}) =>
  gather(watched({ ...V1, ...changes }), { now: 0, ...options });

describe('what is known', () => {
  it('is all of the group that is served', () => {
    const found = look({});
    expect(found).toMatchObject({ ready: true, group: 'v1', stale: [], failing: false });
    if (!found.ready) return;
    expect([...found.raw.pools.keys()]).toEqual(['pools/v1']);
    expect([...found.raw.networkSets.keys()]).toEqual(['networkSets/v1']);
    expect([...found.raw.felixConfigs.keys()]).toEqual(['felixConfigs/v1']);
    expect([...found.raw.nodes.keys()]).toEqual(['nodes']);
  });

  it('is never one of both groups twice', () => {
    const both = { 'pools/v3': LISTED, 'networkSets/v3': LISTED, 'felixConfigs/v3': LISTED };
    const found = look(both);
    expect(found).toMatchObject({ ready: true, group: 'v1' });
    const demanded = look(both, { demanded: 'v3' });
    if (!found.ready || !demanded.ready) throw new Error('not ready');
    expect([...found.raw.pools.keys(), ...demanded.raw.pools.keys()]).toEqual(['pools/v1', 'pools/v3']);
  });

  it('has no objects of a kind that the cluster never had', () => {
    const found = look({ 'networkSets/v1': ABSENT, 'felixConfigs/v1': ABSENT });
    expect(found).toMatchObject({ ready: true, stale: [] });
    if (!found.ready) return;
    expect(found.raw.networkSets.size + found.raw.felixConfigs.size).toBe(0);
  });

  it('does not change under whoever tells of policies after a write', () => {
    const policies = new Map<string, RawObject>([['a', { metadata: { name: 'a' } }]]);
    const live: Watched = {
      health: key => V1[key] ?? NO_ANSWER,
      objects: key => (key === 'policies' ? policies : new Map<string, RawObject>()),
    };
    const found = gather(live, { now: 0 });
    policies.clear();
    expect(found.ready && [...found.raw.policies.keys()]).toEqual(['a']);
  });
});

describe('nothing is written', () => {
  it.each(['policies', 'nodes', 'masqNodes', 'masqPlans'] as const)('before %s were listed', key => {
    const { what } = SOURCES.find(it => it.key === key) as (typeof SOURCES)[number];
    const early = look({ [key]: NO_ANSWER });
    expect(early).toMatchObject({
      ready: false,
      waitingFor: [expect.stringMatching(`^${what} .*have not been listed yet$`)],
    });
    const refused = look({ [key]: failing('failing', false) });
    expect(refused).toMatchObject({
      ready: false,
      waitingFor: [expect.stringContaining('have not been listed yet: GET /x: HTTP 403')],
    });
  });

  it.each<[string, Readonly<Record<string, Health>>, readonly string[]]>([
    [
      'before any group answered',
      { 'pools/v1': NO_ANSWER, 'networkSets/v1': NO_ANSWER, 'felixConfigs/v1': NO_ANSWER },
      ['IPPools (crd.projectcalico.org/v1): no answer yet'],
    ],
    [
      'where no group is served',
      { 'pools/v1': ABSENT, 'networkSets/v1': ABSENT, 'felixConfigs/v1': ABSENT },
      ['IPPools (crd.projectcalico.org/v1): HTTP 404', 'IPPools (projectcalico.org/v3): HTTP 404'],
    ],
    [
      'when one kind may not be read',
      { 'networkSets/v1': failing('failing', false) },
      ['GlobalNetworkSets (crd.projectcalico.org/v1): GET /x: HTTP 403'],
    ],
    [
      'when both groups are there, and migrations may not be read',
      {
        'pools/v3': LISTED,
        'networkSets/v3': LISTED,
        'felixConfigs/v3': LISTED,
        migrations: failing('failing', false),
      },
      ['DatastoreMigrations (migration.projectcalico.org/v1beta1): GET /x: HTTP 403'],
    ],
  ])('%s', (_, changes, words) => {
    const found = look(changes);
    if (found.ready) throw new Error('it is ready');
    expect(found.waitingFor).toHaveLength(1);
    for (const word of words) expect(found.waitingFor[0]).toContain(word);
    // A source that has answered is not complained of.
    for (const key of Object.keys(changes).length === 1 ? ['IPPools'] : [])
      expect(found.waitingFor[0]).not.toContain(key);
  });

  it('and what is demanded is waited for alone', () => {
    const found = look({ 'pools/v3': NO_ANSWER }, { demanded: 'v3' });
    expect(found).toMatchObject({ ready: false });
    expect(found.ready ? '' : found.waitingFor.join()).toMatch(/projectcalico\.org\/v3\): no answer yet/);
  });

  it('of Windows, migrations or the other group is nothing waited for', () => {
    expect(look({ migrations: NO_ANSWER }).ready).toBe(true);
    expect(look({ migrations: failing('failing', false) }).ready).toBe(true);
    expect(
      look({ 'pools/v3': NO_ANSWER, 'networkSets/v3': NO_ANSWER, 'felixConfigs/v3': NO_ANSWER }).ready,
    ).toBe(true);
  });
});

describe('what may be old', () => {
  const USED: readonly SourceKey[] = [
    'policies',
    'nodes',
    'masqNodes',
    'masqPlans',
    'pools/v1',
    'networkSets/v1',
    'felixConfigs/v1',
  ];

  it.each(USED)('is said of %s after a while, with since when and why', key => {
    for (const kind of ['failing', 'gone'] as const) {
      const since = Date.parse('2026-01-01T00:00:00Z');
      const early = look(
        { [key]: failing(kind, true, since) },
        { now: since + STALE_AFTER_MS - 1, previous: 'v1' },
      );
      expect(early).toMatchObject({ ready: true, stale: [], failing: true });
      const late = look(
        { [key]: failing(kind, true, since) },
        { now: since + STALE_AFTER_MS, previous: 'v1' },
      );
      expect(late).toMatchObject({ ready: true, failing: true });
      expect(late.ready && late.stale).toEqual([
        expect.stringMatching(/cannot be read since 2026-01-01T00:00:00\.000Z: GET \/x: HTTP 403/),
      ]);
      // What was seen last is still there.
      expect(late.ready && late.raw.pools.size).toBe(1);
    }
  });

  it('is nothing that nobody reads', () => {
    for (const key of ['migrations', 'pools/v3', 'networkSets/v3'] as const) {
      const found = look({ [key]: failing('failing', key === 'migrations') }, { now: 1e9, previous: 'v1' });
      expect(found).toMatchObject({ ready: true, stale: [], failing: false });
    }
  });
});
