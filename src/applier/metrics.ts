// What Prometheus is told of the applier. Process figures are read when they are asked for: no timers on every node.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { type DriverReport, repairsOf } from '../kernel/report.ts';
import type { Occasion } from './keeper.ts';
import type { RivalsByFamily } from './rival-watch.ts';

export interface ApplierMetrics {
  /** `verifiedAt`: when the kernel was seen to be as wanted last. */
  ran(report: DriverReport, occasion: Occasion, seconds: number, verifiedAt: Date | undefined): void;
  sawRivals(rivals: RivalsByFamily): void;
  follows(plan: string, contentHash: string): void;
  /** Nothing of ours is wanted. */
  followsNothing(): void;
  readsApi(failingSince: number | undefined): void;
  text(): Promise<string>;
}

const FAMILY = ['family'];

export function createApplierMetrics(): ApplierMetrics {
  const registers = [new Registry()];
  const gauge = (name: string, help: string, labelNames: string[] = []): Gauge =>
    new Gauge({ name: `natoutgoing_applier_${name}`, help, labelNames, registers });
  const plan = gauge('plan_info', 'The plan in the kernel.', ['plan', 'content_hash']);
  const perFamily = {
    programmed: gauge('programmed', '1 when the kernel is as wanted.', FAMILY),
    sets: gauge('sets', 'Sets that are wanted.', FAMILY),
    entries: gauge('set_entries', 'Entries of the wanted sets.', FAMILY),
    rules: gauge('rules', 'Rules that are wanted.', FAMILY),
    contended: gauge('contended', '1 while another program insists on our place.', FAMILY),
    rivals: gauge('rivals', 'Rules of others that are asked before ours and may decide about pods.', FAMILY),
  };
  const verified = gauge('last_verified_timestamp_seconds', 'When the kernel was seen to be as wanted last.');
  const failing = gauge(
    'api_failing_since_timestamp_seconds',
    'Since when the API cannot be read; 0: it can.',
  );
  const rss = gauge('resident_memory_bytes', 'Resident memory.');
  const cpu = gauge('cpu_seconds_total', 'Processor time that was used.');
  const repairs = new Counter({
    name: 'natoutgoing_applier_drift_repairs_total',
    help: 'What others had changed and was mended.',
    registers,
  });
  const runs = new Counter({
    name: 'natoutgoing_applier_runs_total',
    help: 'Runs of the driver by occasion and result.',
    labelNames: ['occasion', 'result'],
    registers,
  });
  const duration = new Histogram({
    name: 'natoutgoing_applier_run_seconds',
    help: 'Duration of a run of the driver.',
    labelNames: ['occasion'],
    buckets: [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10, 60],
    registers,
  });
  return {
    ran(report, occasion, secondsTaken, verifiedAt) {
      const families = Object.entries(report.families);
      for (const [family, { ok, sets, entries, rules, contended }] of families) {
        perFamily.programmed.set({ family }, ok ? 1 : 0);
        perFamily.sets.set({ family }, sets);
        perFamily.entries.set({ family }, entries);
        perFamily.rules.set({ family }, rules);
        perFamily.contended.set({ family }, contended === undefined ? 0 : 1);
      }
      repairs.inc(occasion === 'verify' ? repairsOf(report).length : 0);
      runs.inc({ occasion, result: families.every(([, { ok }]) => ok) ? 'ok' : 'failed' });
      duration.observe({ occasion }, secondsTaken);
      if (verifiedAt !== undefined) verified.set(verifiedAt.getTime() / 1000);
    },
    sawRivals(rivals) {
      for (const [family, { rules }] of Object.entries(rivals))
        perFamily.rivals.set({ family }, rules.length);
    },
    follows(name, contentHash) {
      plan.reset();
      plan.set({ plan: name, content_hash: contentHash }, 1);
    },
    followsNothing() {
      plan.reset();
      for (const it of Object.values(perFamily)) it.reset();
    },
    readsApi: since => failing.set((since ?? 0) / 1000),
    text() {
      rss.set(process.memoryUsage.rss());
      const { user, system } = process.cpuUsage();
      cpu.set((user + system) / 1e6);
      return (registers[0] as Registry).metrics();
    },
  };
}
