// The heart of the driver, on a kernel in memory that is looked at between every two lines.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deltaOfKnown, splitDelta } from '../../src/kernel/entries.ts';
import { deltaLines } from '../../src/kernel/ipset.ts';
import { createDriver, type Driver } from '../../src/kernel/driver.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { fakeKernel, type FakeKernel } from './kernel-fake.ts';
import { addressSets, anyTables, changedTables, entriesOf, UNIVERSE } from './kernel-tables.ts';

/** Time stands still, and waiting is over at once. */
const clock: Clock = { now: () => 0, sleep: () => Promise.resolve() };

const driverOf = (kernel: FakeKernel): Driver =>
  createDriver({ exec: kernel.exec, clock, backend: 'nft', log: silentLog });

const verdicts = (kernel: FakeKernel): string[] =>
  UNIVERSE.flatMap(source => UNIVERSE.map(destination => kernel.verdict(source, destination)));

/** For one address at a time: the set as a rule that looks for the source sees it. */
const sourceVerdicts = (kernel: FakeKernel): string[] => UNIVERSE.map(source => kernel.verdict(source, 0));

const RUNS = { numRuns: 200 };
const LIMIT_MS = 60_000;

describe('the order of changes to one set', () => {
  it('takes each address from its old to its new answer in one step', async () => {
    await fc.assert(
      fc.asyncProperty(addressSets, addressSets, async (old, wanted) => {
        const kernel = fakeKernel();
        const set = { type: 'hash:net', family: 'inet', maxelem: 64, entries: new Map<string, boolean>() };
        for (const { cidr, nomatch } of entriesOf(old)) set.entries.set(cidr, nomatch);
        kernel.sets.set('masq4-a', set);
        kernel.chains.set('POSTROUTING', ['-m set --match-set masq4-a src -j MASQUERADE']);
        const changes = UNIVERSE.map(() => 0);
        const first = sourceVerdicts(kernel);
        let before = first;
        kernel.afterEach = () => {
          const now = sourceVerdicts(kernel);
          now.forEach((verdict, i) => (changes[i]! += Number(verdict !== before[i])));
          before = now;
        };
        const lines = deltaLines('masq4-a', deltaOfKnown(entriesOf(old), entriesOf(wanted)));
        for (const line of lines) {
          await kernel.exec.run({ tool: 'ipset', args: ['restore'], stdin: `${line}\n`, timeoutMs: 1 });
        }
        expect(Object.fromEntries(set.entries)).toEqual(
          Object.fromEntries(entriesOf(wanted).map(({ cidr, nomatch }) => [cidr, nomatch])),
        );
        expect(changes).toEqual(before.map((verdict, i) => Number(verdict !== first[i])));
      }),
      RUNS,
    );
  });

  it('lets a guard grow to old and new together before it shrinks', async () => {
    await fc.assert(
      fc.asyncProperty(addressSets, addressSets, async (old, wanted) => {
        const kernel = fakeKernel();
        const entries = new Map(entriesOf(old).map(({ cidr, nomatch }) => [cidr, nomatch]));
        kernel.sets.set('masq4-g', { type: 'hash:net', family: 'inet', maxelem: 64, entries });
        kernel.chains.set('POSTROUTING', ['-m set --match-set masq4-g src -j MASQUERADE']);
        const { widen, narrow } = splitDelta(deltaOfKnown(entriesOf(old), entriesOf(wanted)));
        const first = sourceVerdicts(kernel);
        const run = async (lines: readonly string[]): Promise<void> => {
          const stdin = lines.map(line => `${line}\n`).join('');
          await kernel.exec.run({ tool: 'ipset', args: ['restore'], stdin, timeoutMs: 1 });
        };
        const atLeast = (inside: readonly string[]): void => {
          const now = sourceVerdicts(kernel);
          expect(inside.filter((verdict, i) => verdict === 'MASQUERADE' && now[i] !== verdict)).toEqual([]);
        };
        kernel.afterEach = () => atLeast(first);
        if (widen.adds.length + widen.deletes.length > 0) await run(deltaLines('masq4-g', widen));
        const widest = sourceVerdicts(kernel);
        kernel.afterEach = () => {};
        if (narrow.adds.length + narrow.deletes.length > 0) await run(deltaLines('masq4-g', narrow));
        sourceVerdicts(kernel).forEach((verdict, i) => {
          if (verdict === 'MASQUERADE' || first[i] === 'MASQUERADE') expect(widest[i]).toBe('MASQUERADE');
        });
      }),
      RUNS,
    );
  });
});

describe.each([
  ['with a belief', true],
  ['after reading', false],
])('a change of everything, %s', (_, believes) => {
  it(
    'gives each packet its old or its new verdict at every moment, and one of them throughout if they are equal',
    async () => {
      await fc.assert(
        fc.asyncProperty(changedTables, async ([old, wanted]) => {
          const kernel = fakeKernel();
          const first = driverOf(kernel);
          expect((await first.apply([old])).families.ipv4).toMatchObject({ ok: true });
          const oldVerdicts = verdicts(kernel);
          const moments: string[][] = [];
          kernel.afterEach = () => void moments.push(verdicts(kernel));
          const report = await (believes ? first : driverOf(kernel)).apply([wanted]);
          expect(report.families.ipv4).toMatchObject({ ok: true, pendingDestroys: [], warnings: [] });
          const newVerdicts = verdicts(kernel);
          for (const moment of moments) {
            const third = moment.filter((v, i) => v !== oldVerdicts[i] && v !== newVerdicts[i]);
            expect(third).toEqual([]);
          }
          const fresh = fakeKernel();
          await driverOf(fresh).apply([wanted]);
          expect(kernel.dump()).toBe(fresh.dump());
          kernel.inputs.length = 0;
          expect(await driverOf(kernel).apply([wanted])).toMatchObject({ changed: false });
          expect(kernel.inputs).toEqual([]);
        }),
        RUNS,
      );
    },
    LIMIT_MS,
  );

  it(
    'converges after a stop at any line, by the same and by a new process',
    async () => {
      await fc.assert(
        fc.asyncProperty(changedTables, anyTables, fc.nat(40), async ([old, wanted], later, stop) => {
          for (const last of [wanted, later]) {
            const kernel = fakeKernel();
            const first = driverOf(kernel);
            await first.apply([old]);
            let left = stop;
            kernel.afterEach = () => {
              if (left-- <= 0) throw new Error('stopped here');
            };
            const crashing = believes ? first : driverOf(kernel);
            await crashing.apply([wanted]);
            kernel.afterEach = () => {};
            const after = await (believes ? crashing : driverOf(kernel)).apply([last]);
            expect(after.families.ipv4?.error).toBeUndefined();
            const fresh = fakeKernel();
            await driverOf(fresh).apply([last]);
            // What could not be destroyed while everything failed waits for its time in the same process.
            if (after.families.ipv4?.pendingDestroys.length === 0) expect(kernel.dump()).toBe(fresh.dump());
            else expect(believes).toBe(true);
          }
        }),
        RUNS,
      );
    },
    LIMIT_MS,
  );
});
