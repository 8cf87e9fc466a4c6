// `apply --watch` killed at random moments while its manifests change: the next run ends in the same rules and sets,
// and no packet that the changes do not concern leaves with another address meanwhile.
import { once } from 'node:events';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Probe } from '../../src/demo/model.ts';
import { type BuiltCommand, buildForTest } from './command.ts';
import { dump } from './dump.ts';
import {
  block,
  NAMES,
  type Names,
  networkSet,
  NODE,
  openSceneWithDriver,
  policy,
  pool,
  type Scene,
} from './scene.ts';

const KILLS = 50;

/** Long enough that filling it takes a while, and different at every step. */
const nets = (n: Names, step: number): readonly string[] =>
  Array.from({ length: 3000 }, (_, i) =>
    n.family === 4
      ? `11.${(i >> 6) & 63}.${(i & 63) * 4 + (step % 4)}.0/24`
      : `2001:db9:${(i * 4 + (step % 4)).toString(16)}::/48`,
  );

/** In every state the packets of `probes` have the same fate; all else changes: one set, two at once, sets and rules. */
const STATES: readonly ((n: Names) => readonly object[])[] = [
  n => base(n),
  n => [...base(n), pool(`others-${n.family}`, n.otherPods)],
  n => [...base(n), pool(`others-${n.family}`, n.otherPods), ...partners(n, 1)],
  n => [...base(n), ...partners(n, 2)],
  n => [...base(n), pool(`others-${n.family}`, n.otherPods), ...partners(n, 3), bank(n)],
  n => [...base(n), bank(n)],
];

const base = (n: Names): readonly object[] => [
  pool(`pods-${n.family}`, n.pods),
  policy(`keep-${n.family}`, [{ to: [block(n.datacentre, n.hole)], action: 'Preserve' }], { priority: 100 }),
];
const partners = (n: Names, step: number): readonly object[] => [
  networkSet(`partners-${n.family}`, nets(n, step)),
  policy(`partners-${n.family}`, [
    {
      to: [{ networkSets: { names: [`partners-${n.family}`] } }],
      action: step === 2 ? 'Masquerade' : 'Preserve',
    },
  ]),
];
const bank = (n: Names): object =>
  policy(`bank-${n.family}`, [{ to: [block(n.virtual)], action: 'SNAT', snat: { addresses: [n.snat] } }]);

const probes = (n: Names): readonly (readonly [Probe, string])[] => {
  const udp = { protocol: 'udp', destinationPort: 443 } as const;
  return [
    [{ from: 'pod', source: n.pod, destination: n.internet, ...udp }, n.node],
    [{ from: 'pod', source: n.pod, destination: n.inDatacentre, ...udp }, n.pod],
    [{ from: 'pod', source: n.pod, destination: n.inHole, ...udp }, n.node],
    [{ from: 'pod', source: n.pod, destination: n.peer, ...udp }, n.pod],
    [{ from: 'outside', source: n.internet, destination: n.pod, ...udp }, n.internet],
  ];
};

let command: BuiltCommand;
beforeAll(async () => {
  command = await buildForTest();
});
afterAll(() => command.close());

describe.each(['nft', 'legacy'] as const)('apply --watch, on backend %s', backend => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterEach(() => scene.close());

  it(`killed ${KILLS} times: the next run converges, no probe goes wrong`, { timeout: 300_000 }, async () => {
    const objects = STATES.map(state => FAMILIES.flatMap(family => state(NAMES[family])));
    const wanted: string[] = [];
    for (const state of objects) {
      await scene.apply(state);
      wanted.push(await dump(scene.world.exec, backend));
    }
    expect(new Set(wanted).size).toBe(STATES.length);

    const file = join(command.folder, `watched-${backend}.json`);
    const write = async (state: number): Promise<void> => {
      await writeFile(
        `${file}.new`,
        JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects[state] }),
      );
      await rename(`${file}.new`, file);
    };
    const expected = FAMILIES.flatMap(family => probes(NAMES[family]));
    const prober = await scene.world.startProbing(
      expected.map(([probe]) => probe),
      { perSecond: 400 },
    );
    let unfinished = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      const state = Math.floor(Math.random() * STATES.length);
      await write(state);
      const child = scene.world.spawnInNode([
        ...([process.execPath, command.path, 'apply', '-f', file, '--node', NODE] as const),
        '--watch',
        '--backend',
        backend,
      ]);
      const ended = once(child, 'close');
      await pause(Math.random() * 600);
      child.kill('SIGKILL');
      await ended;
      if ((await dump(scene.world.exec, backend)) !== wanted[state]) unfinished++;
      // A driver without a past, as the next process has it.
      const next = createDriver({ exec: scene.world.exec, clock: systemClock, backend, log: silentLog });
      await scene.apply(objects[state] ?? [], {}, next);
      expect(await dump(scene.world.exec, backend)).toBe(wanted[state]);
    }
    const counts = await prober.stop();
    for (const [i, { probe, sent, seen }] of counts.entries()) {
      expect({ probe, seen: [...seen.keys()] }).toEqual({ probe, seen: [expected[i]?.[1]] });
      expect(sent).toBeGreaterThan(50);
    }
    console.log(`${backend}: ${unfinished} of ${KILLS} kills left unfinished work`);
    // Else the moments were not random enough to show anything.
    expect(unfinished).toBeGreaterThan(KILLS / 10);
  });
});
