// What Prometheus is told of the operator.
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { RunReport } from './reconcile.ts';
import type { WriterParts } from './writer.ts';

export interface OperatorMetrics {
  readonly onWrite: WriterParts['onWrite'];
  ran(report: RunReport, seconds: number): void;
  leads(yes: boolean): void;
  text(): Promise<string>;
}

export function createOperatorMetrics(): OperatorMetrics {
  const registry = new Registry();
  const registers = [registry];
  const gauge = (name: string, help: string): Gauge =>
    new Gauge({ name: `natoutgoing_operator_${name}`, help, registers });
  const leader = gauge('leader', '1 while this replica leads.');
  const ready = gauge('ready', '1 when everything that is planned with was listed.');
  const troubles = gauge('troubles', 'Sources that cannot be read and writes that fail.');
  const counts = {
    plans: gauge('plans', 'Plans that are wanted.'),
    nodes: gauge('nodes', 'Nodes that follow a plan.'),
    policies: gauge('policies', 'MasqPolicies in the API.'),
    refused: gauge('refused_objects', 'Objects that cannot be read and are left out.'),
  };
  const runs = new Histogram({
    name: 'natoutgoing_operator_run_seconds',
    help: 'Duration of a run, writes included.',
    buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60],
    registers,
  });
  const writes = new Counter({
    name: 'natoutgoing_operator_writes_total',
    help: 'Writes to the API by resource and result.',
    labelNames: ['resource', 'verb', 'result'],
    registers,
  });
  collectDefaultMetrics({ register: registry, prefix: 'natoutgoing_operator_' });
  return {
    onWrite: ({ plural, verb }, result) => writes.inc({ resource: plural, verb, result }),
    ran(report, seconds) {
      runs.observe(seconds);
      ready.set(report.ready ? 1 : 0);
      troubles.set(report.troubles.length);
      for (const [name, value] of Object.entries(counts)) value.set(report[name as keyof typeof counts]);
    },
    leads: yes => leader.set(yes ? 1 : 0),
    text: () => registry.metrics(),
  };
}
