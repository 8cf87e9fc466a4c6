// The driver's reports as people read them.
import type { RivalsByFamily } from '../applier/rival-watch.ts';
import { remedyFor } from '../kernel/foreign/programs.ts';
import { rivalText } from '../kernel/foreign/rivals.ts';
import type { DriverReport, FamilyReport } from '../kernel/report.ts';
import { type Io, table } from './io.ts';

const HEAD = ['FAMILY', 'RESULT', 'SETS', 'ENTRIES', 'CHAINS', 'RULES', 'JUMP'];

/** A table of the families; errors, warnings and repairs are in reportNotes. */
export function reportText(report: DriverReport, io: Pick<Io, 'isTerminal'>): string {
  const rows = Object.entries(report.families).map(([name, family]) => [
    name,
    resultOf(family),
    ...[family.sets, family.entries, family.chains, family.rules].map(String),
    family.jumpPosition === undefined ? '-' : String(family.jumpPosition),
  ]);
  const backend = report.backend === undefined ? '' : `backend: ${report.backend} (${report.why ?? ''})\n`;
  return `${backend}${table([HEAD, ...rows], io)}`;
}

const resultOf = (family: FamilyReport): string => {
  if (!family.ok) return 'failed';
  return family.changed ? 'changed' : 'unchanged';
};

/** One line for each thing that a person should know. */
export function reportNotes(report: DriverReport): readonly string[] {
  return Object.entries(report.families).flatMap(([name, family]) => [
    ...(family.error === undefined ? [] : [`error: ${name}: ${family.error.message}`]),
    ...family.warnings.map(warning => `warning: ${name}: ${warning}`),
    ...family.repairs.map(repair => `repaired: ${name}: ${repair}`),
    ...(family.contended === undefined
      ? []
      : [`warning: ${name}: another program insists on a place above ours: ${family.contended.foreign}`]),
    ...family.pendingDestroys.map(set => `note: ${name}: ${set} is still in use and is removed later`),
  ]);
}

/** One line for each rule of others that is asked before ours, and what to do. */
export function rivalNotes(rivals: RivalsByFamily): readonly string[] {
  const families = Object.entries(rivals);
  const gaps = new Set(families.flatMap(([, family]) => family.gaps));
  return [
    ...families.flatMap(([name, { rules }]) =>
      rules.map(
        rule => `warning: ${name}: asked before ours: ${rivalText(rule)}: ${remedyFor(rule.program)}`,
      ),
    ),
    ...[...gaps].map(gap => `note: rules of others are not all known: ${gap}`),
  ];
}

export const anyFailed = (report: DriverReport): boolean =>
  Object.values(report.families).some(family => !family.ok);
