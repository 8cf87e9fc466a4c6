// Felix's own loops beside ours, with packets all the while: today's, which keeps its jump last; that of its nftables
// mode; and an older one, or one with chainInsertMode Insert, which keeps its jump first.
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FAMILIES } from '../../src/cidr/address.ts';
import { setOf } from '../../src/cidr/address-set.ts';
import type { Probe, Prober } from '../../src/demo/model.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { createDriver } from '../../src/kernel/driver.ts';
import { readRivals } from '../../src/kernel/foreign/rivals.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { waitFor } from '../cluster/wait.ts';
import { cidr } from './foreign-support.ts';
import { block, NAMES, type Names, openSceneWithDriver, policy, pool, type Scene } from './scene.ts';

/** Turns of Felix's loop that a test waits for. */
const TURNS = 25;
const BACKENDS = ['nft', 'legacy'] as const;
const WHOSE = [
  { ours: true, felixs: false },
  { ours: false, felixs: true },
  { ours: true, felixs: true },
] as const;

const objects = (natOutgoing: boolean): readonly object[] =>
  FAMILIES.flatMap(family => {
    const n = NAMES[family];
    return [
      pool(`pods-${family}`, n.pods, { natOutgoing }),
      policy(`keep-${family}`, [{ to: [block(n.datacentre)], action: 'Preserve' }]),
      policy(`bank-${family}`, [{ to: [block(n.virtual)], action: 'SNAT', snat: { addresses: [n.snat] } }]),
      policy(`appliance-${family}`, [{ to: [block(n.nested)], action: 'Masquerade' }]),
    ];
  });

interface Expected {
  readonly probe: Probe;
  readonly address: string;
  /** What Felix's rule makes of it, when that is asked first. */
  readonly byFelix: string;
}

const expected = (n: Names): readonly Expected[] => {
  const from = (destination: string, protocol: Probe['protocol']): Probe => ({
    from: 'pod',
    source: n.pod,
    destination,
    protocol,
    ...(protocol === 'icmp' ? {} : { destinationPort: 443 }),
  });
  return [
    ...(['udp', 'tcp', 'icmp'] as const).flatMap(protocol => [
      { probe: from(n.inDatacentre, protocol), address: n.pod, byFelix: n.node },
      { probe: from(n.internet, protocol), address: n.node, byFelix: n.node },
    ]),
    { probe: from(n.inVirtual, 'udp'), address: n.snat, byFelix: n.node },
    {
      probe: { ...from(n.pod, 'udp'), from: 'outside', source: n.internet },
      address: n.internet,
      byFelix: n.internet,
    },
  ];
};
const EXPECTED = FAMILIES.flatMap(family => expected(NAMES[family]));

interface Loop {
  /** Turns of the family that has had fewer. */
  least(): number;
  errors(): string;
  end(): Promise<void>;
}

describe.each(BACKENDS)('beside Felix’s loop, on backend %s', backend => {
  let scene: Scene;
  let prober: Prober | undefined;
  const loops: Loop[] = [];
  beforeEach(async () => {
    scene = await openSceneWithDriver(backend);
  });
  afterEach(async () => {
    for (const loop of loops.splice(0)) await loop.end();
    await prober?.stop();
    prober = undefined;
    await scene.close();
  });

  /** A script for each family, each of whose lines on stdout is one turn. */
  const startLoop = (script: (n: Names) => string): Loop => {
    const children = FAMILIES.map(family =>
      scene.world.spawnInNode(['bash', '-eu', '-c', script(NAMES[family])]),
    );
    const turns = children.map(() => 0);
    const errors: string[] = [];
    for (const [i, child] of children.entries()) {
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        turns[i] = (turns[i] ?? 0) + text.split('\n').length - 1;
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => void errors.push(text));
    }
    const loop: Loop = {
      least: () => Math.min(...turns),
      errors: () => errors.join(''),
      async end() {
        for (const child of children) {
          if (child.exitCode !== null || child.signalCode !== null) continue;
          const ended = once(child, 'close');
          child.kill('SIGKILL');
          await ended;
        }
      },
    };
    loops.push(loop);
    return loop;
  };

  const felixChains = async (): Promise<void> => {
    for (const family of FAMILIES) {
      const n = NAMES[family];
      const nat = (line: string): Promise<void> => scene.iptables(family, `-t nat ${line}`);
      await nat('-N cali-POSTROUTING');
      await nat('-N cali-nat-outgoing');
      await nat('-A cali-POSTROUTING -j cali-nat-outgoing');
      await nat(`-A cali-nat-outgoing -s ${n.pods} ! -d ${n.pods} -j MASQUERADE --random-fully`);
    }
  };
  /** Puts its jump to where it wants it, whenever it is not there, in one transaction. */
  const keepsPlace = (place: 'first' | 'last', seconds: number) => (n: Names) =>
    `
    tool=${n.iptables}-${backend}
    while :; do
      rules=$($tool -w 5 -t nat -S POSTROUTING | grep '^-A' || true)
      if [ "$(${place === 'first' ? 'head' : 'tail'} -n 1 <<< "$rules")" != '-A POSTROUTING -j cali-POSTROUTING' ]; then
        delete=$(grep -c cali-POSTROUTING <<< "$rules" || true)
        {
          echo '*nat'
          for i in $(seq $delete); do echo '-D POSTROUTING -j cali-POSTROUTING'; done
          echo '${place === 'first' ? '-I POSTROUTING 1' : '-A POSTROUTING'} -j cali-POSTROUTING'
          echo COMMIT
        } | $tool-restore -w 5 --noflush
        echo turn
      fi
      sleep ${seconds}
    done`;
  /** Another program that appends and takes away, so that whoever wants to be last has to move. */
  const appends = (n: Names): string => `
    rule='-o docker0 -j RETURN'
    while :; do
      ${n.iptables}-${backend} -w 5 -t nat -A POSTROUTING $rule
      sleep 0.1
      ${n.iptables}-${backend} -w 5 -t nat -D POSTROUTING $rule
      echo turn
      sleep 0.05
    done`;

  const startProbing = async (): Promise<void> => {
    prober = await scene.world.startProbing(
      EXPECTED.map(({ probe }) => probe),
      { perSecond: 160 },
    );
  };
  const probed = (): Promise<true> =>
    waitFor(() => ((prober?.counts().at(-1)?.sent ?? 0) > 15 ? true : undefined), {
      what: 'probes',
      limitMs: 20_000,
    });
  const nothingWentWrong = async (): Promise<void> => {
    const counts = (await prober?.stop()) ?? [];
    prober = undefined;
    expect(counts).toHaveLength(EXPECTED.length);
    for (const [i, { probe, sent, seen }] of counts.entries()) {
      expect({ probe, seen: [...seen.keys()] }).toEqual({ probe, seen: [EXPECTED[i]?.address] });
      expect(sent).toBeGreaterThan(10);
    }
  };
  const began = (loop: Loop): Promise<true> =>
    waitFor(() => (loop.least() > 0 ? true : undefined), {
      what: 'Felix to make its rules',
      limitMs: 10_000,
      detail: () => loop.errors(),
    });
  const turned = (loop: Loop): Promise<true> =>
    waitFor(() => (loop.least() >= TURNS ? true : undefined), {
      what: `${TURNS} turns of a loop`,
      limitMs: 45_000,
      detail: () => `${loop.least()} so far; ${loop.errors()}`,
    });

  describe.each(WHOSE)('natOutgoing ours: $ours, Felix’s: $felixs', ({ ours, felixs }) => {
    it('that keeps its jump last: no packet goes wrong, and nobody moves us', async () => {
      if (felixs) await felixChains();
      const felix = felixs ? startLoop(keepsPlace('last', 0.02)) : undefined;
      if (felix !== undefined) await began(felix);
      await scene.apply(objects(ours));
      await startProbing();
      await turned(startLoop(appends));
      if (felix !== undefined) await turned(felix);
      for (let i = 0; i < 10; i++) {
        const report = await scene.driver.verify();
        expect(report).toMatchObject({ changed: false });
        for (const family of Object.values(report.families))
          expect(family).toMatchObject({ ok: true, jumpPosition: 1 });
      }
      await nothingWentWrong();
    });

    it('of its nftables mode, which writes its table again and again', async () => {
      await scene.apply(objects(ours));
      if (felixs) {
        const felix = startLoop(felixTable);
        await began(felix);
        await startProbing();
        await turned(felix);
        await probed();
      } else {
        await startProbing();
        await probed();
      }
      expect(await scene.driver.verify()).toMatchObject({ changed: false });
      await nothingWentWrong();
    });
  });

  /** One transaction each time, at srcnat + 10. */
  const felixTable = (n: Names): string => {
    const ip = n.family === 4 ? 'ip' : 'ip6';
    return `
    while :; do
      nft -f - <<END
table ${ip} calico { }
delete table ${ip} calico
table ${ip} calico {
  chain nat-POSTROUTING {
    type nat hook postrouting priority srcnat + 10; policy accept;
    jump nat-cali-nat-outgoing
  }
  chain nat-cali-nat-outgoing {
    ${ip} saddr ${n.pods} ${ip} daddr != ${n.pods} masquerade fully-random
  }
}
END
      echo turn
      sleep 0.05
    done`;
  };

  it('that keeps its jump first: we give way after a few moves and say to whom; each packet is ours or Felix’s', async () => {
    let ahead = 0;
    const clock: Clock = { ...systemClock, now: () => systemClock.now() + ahead };
    const driver = createDriver({ exec: scene.world.exec, clock, backend, log: silentLog });
    await felixChains();
    const felix = startLoop(keepsPlace('first', 0.2));
    await began(felix);
    await scene.apply(objects(true), {}, driver);
    await startProbing();
    let moves = 0;
    const last = await waitFor(
      async () => {
        const report = await driver.verify();
        if (report.changed) moves += 1;
        const all = Object.values(report.families);
        return all.every(({ contended }) => contended !== undefined) ? report : undefined;
      },
      { what: 'both families to give way', limitMs: 60_000, intervalMs: 100 },
    );
    expect(moves).toBeLessThanOrEqual(10);
    for (const family of Object.values(last.families))
      expect(family).toMatchObject({
        ok: true,
        contended: { foreign: '-A POSTROUTING -j cali-POSTROUTING' },
      });
    // It is quiet from now on, on both sides.
    const turns = felix.least();
    for (let i = 0; i < 5; i++) expect(await driver.verify()).toMatchObject({ changed: false });
    expect(felix.least()).toBe(turns);
    for (const family of FAMILIES) {
      const { rules } = await readRivals(scene.world.exec, setOf(family, [cidr(NAMES[family].pods)]));
      expect(rules).toMatchObject([{ program: "Calico's Felix", effect: 'masquerades' }]);
    }
    const counts = (await prober?.stop()) ?? [];
    prober = undefined;
    for (const [i, { probe, seen }] of counts.entries()) {
      const { address, byFelix } = EXPECTED[i] as Expected;
      expect([address, byFelix], JSON.stringify(probe)).toEqual(expect.arrayContaining([...seen.keys()]));
      expect([...seen.keys()]).toContain(byFelix);
    }
    // The remedy is followed: chainInsertMode Append.
    await felix.end();
    const appending = startLoop(keepsPlace('last', 0.05));
    await began(appending);
    ahead = 600_000;
    const mended = await driver.verify();
    for (const family of Object.values(mended.families)) {
      expect(family).toMatchObject({ ok: true, jumpPosition: 1 });
      expect(family.contended).toBeUndefined();
    }
    await startProbing();
    await probed();
    await nothingWentWrong();
  });
});
