// When the kernel is looked at, and when what failed is tried again.
import { describe, expect, it } from 'vitest';
import { createKeeper } from '../../src/applier/keeper.ts';
import type { Driver } from '../../src/kernel/driver.ts';
import type { DriverReport, FamilyReport } from '../../src/kernel/report.ts';
import { settle, virtualClock } from './cluster-fake.ts';

const FAMILY: FamilyReport = {
  ok: true,
  changed: false,
  sets: 0,
  entries: 0,
  chains: 0,
  rules: 0,
  writes: { ipsetRestores: 0, iptablesRestores: 0 },
  repairs: [],
  foreignAbove: [],
  pendingDestroys: [],
  warnings: [],
};
const report = (part: Partial<FamilyReport> = {}): DriverReport => ({
  changed: part.changed === true,
  families: { ipv4: { ...FAMILY, ...part } },
});

/** Times of the runs in seconds; the driver says what `answer` says of each. */
function keep(answer: (run: number) => DriverReport) {
  const clock = virtualClock();
  const runs: string[] = [];
  const run = (what: string): Promise<DriverReport> => {
    runs.push(`${what} ${Math.round(clock.now() / 100) / 10}`);
    return Promise.resolve(answer(runs.length));
  };
  const driver: Driver = {
    apply: () => run('apply'),
    verify: () => run('verify'),
    remove: () => Promise.reject(new Error('not asked for')),
    diff: () => Promise.reject(new Error('not asked for')),
  };
  const stop = new AbortController();
  const keeper = createKeeper({ driver, clock, random: () => 0.5, onReport: () => {} });
  const running = keeper.run(stop.signal);
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  return { clock, runs, keeper, end };
}

describe('the keeper', () => {
  it('looks soon after a write, then every 30 s', async () => {
    const { clock, runs, keeper, end } = keep(n => report({ changed: n === 1 }));
    keeper.want({ tables: [] });
    await clock.advance(100_000);
    expect(runs).toEqual(['apply 0', 'verify 5', 'verify 15', 'verify 35', 'verify 65', 'verify 95']);
    await end();
  });

  it('looks every 5 s for ten minutes after others took the first place', async () => {
    const { clock, runs, keeper, end } = keep(n =>
      report(n === 4 ? { changed: true, jumpMoved: true } : { changed: n === 1 }),
    );
    keeper.want({ tables: [] });
    await clock.advance(700_000);
    const times = runs.map(run => Number(run.split(' ')[1]));
    expect(times.slice(0, 7)).toEqual([0, 5, 15, 35, 40, 45, 50]);
    expect(times.filter(time => time > 620)).toEqual([625, 630, 635, 665, 695]);
    await end();
  });

  it('backs off from a fault that lasts, never by more than 30 s, and never gives up', async () => {
    const { clock, runs, keeper, end } = keep(n => report({ ok: n > 8, changed: n === 9 }));
    keeper.want({ tables: [] });
    await clock.advance(160_000);
    expect(runs.map(run => Number(run.split(' ')[1]))).toEqual([
      0, 1, 3, 7, 15, 31, 61, 91, 121, 126, 136, 156,
    ]);
    await end();
  });

  it('does at once what is wanted newly, whatever it waits for', async () => {
    const { clock, runs, keeper, end } = keep(() => report({ ok: false }));
    keeper.want({ tables: [] });
    await clock.advance(40_000);
    const before = runs.length;
    keeper.want({ tables: [] });
    await settle();
    expect(runs.slice(before)).toEqual(['apply 40']);
    await end();
  });
});
