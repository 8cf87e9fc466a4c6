// Whatever happens to processes, their requests and the object: never two leaders at one moment.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settle, virtualClock } from './cluster-fake.ts';
import { contender, leaseServer } from './cluster-lease-fake.ts';

describe('a lease', () => {
  const step = fc.record({
    who: fc.integer({ min: 0, max: 2 }),
    what: fc.constantFrom(
      'none',
      'unreachable',
      'answer lost',
      'refused',
      'freeze',
      'thaw',
      'label',
      'remove',
    ),
    ms: fc.constantFrom(0, 300, 2_000, 9_000, 16_000),
  });

  it('is held by at most one at any moment, and by one in the end', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async steps => {
        const [server, clock] = [leaseServer(), virtualClock()];
        const all = ['a', 'b', 'c'].map(name => contender(name, server, clock));
        const pass = async (ms: number): Promise<void> => {
          for (let left = ms; left >= 0; left -= 100) {
            await clock.advance(Math.min(left, 100));
            expect(all.filter(it => it.leads()).length).toBeLessThan(2);
          }
        };
        // Who never saw the lease takes one that was just deleted; a cluster's first leader should not have to wait.
        await settle();
        for (const { who, what, ms } of steps) {
          const one = all[who];
          if (one === undefined) throw new Error('nobody');
          if (what === 'freeze' || what === 'thaw') one[what]();
          else if (what === 'label' || what === 'remove') {
            if (server.answer({ method: 'GET', path: '' }).status === 200) server[what]();
          } else one.fault = what;
          await pass(ms);
        }
        for (const it of all) {
          it.thaw();
          it.fault = 'none';
        }
        await pass(40_000);
        expect(all.filter(it => it.leads()).length).toBe(1);
        for (const it of all) it.stop.abort(new Error('bye'));
        await Promise.all(all.map(it => it.done));
        expect(clock.sleepers).toBe(0);
      }),
      { numRuns: 100 },
    );
  }, 60_000);
});
