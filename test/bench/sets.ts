// Large sets: one CIDR more in a running process, and all of them at once, against bare ipset.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Snapshot } from '../../src/api/model.ts';
import { FAMILIES } from '../../src/cidr/address.ts';
import type { Cidr } from '../../src/cidr/cidr.ts';
import type { Backend } from '../../src/kernel/backend.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createDriver, type Driver } from '../../src/kernel/driver.ts';
import { systemExec } from '../../src/kernel/exec.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { DriverReport } from '../../src/kernel/report.ts';
import { planNode } from '../../src/planner/plan-snapshot.ts';
import { renderFamily } from '../../src/render/render.ts';
import type { FamilyTables } from '../../src/render/tables.ts';
import { manifestsOf } from '../oracle/manifests.ts';
import { interleave, timed } from './measure.ts';
import { exempting, manyCidrs, networkSet, NODE, tablesOf, textsOf } from './objects.ts';
import type { Part } from './options.ts';
import { rowOf } from './result.ts';
import { mustHere } from './run.ts';

const MANY = 100_000;
/** /run is a tmpfs of the benchmark's own, so nothing of it stays. */
const MANIFESTS = '/run/manifests.json';

/** The driver as the applier has it. */
export const driverOf = (backend: Backend): Driver =>
  createDriver({ exec: systemExec, clock: systemClock, backend, log: silentLog });

/** Throws when the driver did not do what was asked, so that a failure is never measured. */
export function checkReport(report: DriverReport, changed: boolean): void {
  for (const [family, { ok, error }] of Object.entries(report.families)) {
    if (!ok) throw new Error(`the driver failed for ${family}: ${error?.message}`);
  }
  if (report.changed !== changed) {
    throw new Error(`the driver ${report.changed ? 'changed something' : 'changed nothing'}`);
  }
}

/** Kernel tables after kernel tables, each with one CIDR more, planned as a running process plans them. */
function growing(snapshot: Snapshot, more: readonly Cidr[]): () => readonly FamilyTables[] {
  let nets = snapshot.networkSets[0]?.nets ?? [];
  let planned = planNode(snapshot, NODE);
  let added = 0;
  return () => {
    const next = more[added++];
    if (next === undefined) throw new Error('no CIDR is left to add');
    nets = [...nets, next];
    planned = planNode(
      { ...snapshot, networkSets: [networkSet('exempt', nets)] },
      NODE,
      undefined,
      planned.resolver,
    );
    return FAMILIES.map(family => renderFamily(planned.plan, planned.values, family));
  };
}

/** An `ipset restore` that makes a set as ipset makes it when it is told nothing but that it has to hold so many. */
const bareRestore = (name: string, texts: readonly string[]): string =>
  [`create ${name} hash:net maxelem ${2 * MANY}`, ...texts.map(text => `add ${name} ${text}`), ''].join('\n');

export const oneMore: Part = async ({ backend, rounds, signal }) => {
  // One for the start, the warm-up and each round.
  const all = manyCidrs(MANY + rounds + 2);
  const start = all.slice(0, MANY);
  const more = all.slice(MANY);
  const snapshot = exempting(start);
  const next = growing(snapshot, more);
  const bare = [...textsOf(more)];
  const driver = driverOf(backend);
  checkReport(await driver.apply(tablesOf(snapshot, FAMILIES), signal), true);
  await mustHere(['ipset', 'restore'], bareRestore('bare', textsOf(start)), signal);
  // The first tables of the growing planner share nothing with those above.
  checkReport(await driver.apply(next(), signal), true);
  const planning: number[] = [];
  const values = await interleave(
    {
      ours: async () => {
        let tables: readonly FamilyTables[] = [];
        planning.push(await timed(async () => void (tables = next())));
        return timed(async () => checkReport(await driver.apply(tables, signal), true));
      },
      bare: () => timed(() => mustHere(['ipset', 'add', 'bare', bare.pop() ?? ''], '', signal)),
    },
    rounds,
    signal,
  );
  const head = { part: 'one-more', backend, unit: 'ms' } as const;
  return [
    rowOf({
      ...head,
      ours: 'one CIDR more in 100,000, applied',
      values: values.ours,
      other: { name: 'ipset add', values: values.bare },
      goal: { of: 'ratio', atMost: 2 },
    }),
    rowOf({ ...head, ours: 'planned and rendered before', values: planning.slice(1) }),
  ];
};

/** Takes all rules and sets away; only in namespaces of our own. */
const clear = async (backend: Backend, signal: AbortSignal): Promise<void> => {
  for (const tool of ['iptables', 'ip6tables']) {
    await mustHere([`${tool}-${backend}-restore`], '*nat\nCOMMIT\n', signal);
  }
  await mustHere(['ipset', 'destroy'], '', signal);
};

export const firstApply: Part = async ({ backend, longRounds, signal }) => {
  const cidrs = manyCidrs(MANY);
  const snapshot = exempting(cidrs);
  const tables = tablesOf(snapshot, FAMILIES);
  const text = bareRestore('bare', textsOf(cidrs));
  await writeFile(MANIFESTS, JSON.stringify(manifestsOf(snapshot)));
  const command = [process.execPath, join(import.meta.dirname, 'natoutgoing.js')];
  const args = ['apply', '-f', MANIFESTS, '--node', NODE, '--backend', backend, '-o', 'json'];
  const afterClearing = async (work: () => Promise<unknown>): Promise<number> => {
    await clear(backend, signal);
    return timed(work);
  };
  const values = await interleave(
    {
      ours: () => afterClearing(async () => checkReport(await driverOf(backend).apply(tables, signal), true)),
      bare: () => afterClearing(() => mustHere(['ipset', 'restore'], text, signal)),
      command: () => afterClearing(() => mustHere([...command, ...args], '', signal)),
    },
    longRounds,
    signal,
  );
  const head = { part: 'first-apply', backend, unit: 'ms' } as const;
  const other = { name: 'ipset restore', values: values.bare };
  return [
    rowOf({
      ...head,
      ours: '100,000 CIDRs, applied at once',
      values: values.ours,
      other,
      goal: { of: 'ratio', atMost: 1.3 },
    }),
    rowOf({ ...head, ours: 'the whole command, from JSON', values: values.command, other }),
  ];
};
