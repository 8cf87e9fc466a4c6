// When an applier looks for rules of others.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createRivalWatch, type RivalsByFamily } from '../../src/applier/rival-watch.ts';
import type { Exec } from '../../src/kernel/exec.ts';
import { planOf } from '../oracle/hand-made.ts';
import { settle, virtualClock } from './cluster-fake.ts';

const PLAN = planOf({ sets: { pods: ['10.244.0.0/16'] }, policies: [{ name: 'p', rules: [] }] });
/** Nothing is installed. */
const NO_TOOLS: Exec = {
  run: () =>
    Promise.resolve({ code: null, stdout: '', stderr: '', timedOut: false, spawnError: 'ENOENT' as const }),
};

describe('the watch of rules of others', () => {
  let stop: AbortController;
  let clock: ReturnType<typeof virtualClock>;
  let told: RivalsByFamily[];
  let watch: ReturnType<typeof createRivalWatch>;
  let running: Promise<void>;
  const start = (exec: Exec): void => {
    watch = createRivalWatch({ exec, clock }, rivals => told.push(rivals));
    running = watch.run(stop.signal);
  };
  beforeEach(() => {
    stop = new AbortController();
    clock = virtualClock();
    told = [];
  });
  afterEach(async () => {
    stop.abort();
    await running;
  });

  it('looks as soon as a plan is in force, then every five minutes, whatever plans come', async () => {
    start(NO_TOOLS);
    await settle();
    expect(told).toEqual([]);
    watch.inForce(PLAN);
    await settle();
    expect(told).toHaveLength(1);
    // A family without pods is not looked at.
    expect(told[0]).toMatchObject({
      ipv4: { rules: [], gaps: [expect.stringContaining('are not known')] },
      ipv6: { rules: [], gaps: [] },
    });
    watch.inForce({ ...PLAN });
    await clock.advance(299_000);
    expect(told).toHaveLength(1);
    await clock.advance(1_000);
    expect(told).toHaveLength(2);
  });

  it('says nothing of a plan that is gone, and looks at once when one comes back', async () => {
    let answer = (): void => {};
    const waits = new Promise<void>(resolve => (answer = resolve));
    start({ run: command => waits.then(() => NO_TOOLS.run(command)) });
    watch.inForce(PLAN);
    await settle();
    watch.nothing();
    answer();
    await settle();
    expect(told).toEqual([]);
    watch.inForce(PLAN);
    await settle();
    expect(told).toHaveLength(1);
  });
});
