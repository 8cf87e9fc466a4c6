// What the driver says about its work, as data for status, metrics and the command line.
import type { Family } from '../cidr/address.ts';
import type { FamilyTables } from '../render/tables.ts';
import type { Backend } from './backend.ts';
import type { Difference } from './changes.ts';
import { type ErrorKind, KernelError, messageOf } from './errors.ts';

export type FamilyName = 'ipv4' | 'ipv6';

export const familyName = (family: Family): FamilyName => (family === 4 ? 'ipv4' : 'ipv6');

export interface DriverReport {
  /** Undefined when none could be found; every family then has the error. */
  readonly backend?: Backend;
  /** Why this backend was chosen. */
  readonly why?: string;
  readonly changed: boolean;
  /** Of the families that tables were given for. */
  readonly families: { readonly [F in FamilyName]?: FamilyReport };
}

export interface FamilyReport {
  /** The kernel is as wanted, as far as it was looked at. */
  readonly ok: boolean;
  /** This host cannot have it, and need not: nothing of the family is to be translated. */
  readonly unavailable?: true;
  /** Something was written. */
  readonly changed: boolean;
  readonly error?: ReportedError;
  /** Of the wanted tables. */
  readonly sets: number;
  readonly entries: number;
  readonly chains: number;
  readonly rules: number;
  readonly writes: Writes;
  /** What was found changed by others and was mended, one readable line each. */
  readonly repairs: readonly string[];
  /** Of our jump in nat POSTROUTING, from 1; undefined when it cannot be known. As last seen. */
  readonly jumpPosition?: number;
  /** Our jump was taken to the top, from below a foreign rule. */
  readonly jumpMoved?: true;
  /** Foreign rules above our jump, as printed. As last seen. */
  readonly foreignAbove: readonly string[];
  /** Another program insists on a place above ours, and moving has been given up for a while. */
  readonly contended?: { readonly foreign: string };
  /** Sets and chains that are not needed any more and could not be removed yet. */
  readonly pendingDestroys: readonly string[];
  /** What is not an error and should be known: one sentence each. */
  readonly warnings: readonly string[];
}

export interface ReportedError {
  readonly kind: ErrorKind;
  readonly message: string;
  readonly tool: string;
  readonly stderr: string;
}

export interface Writes {
  readonly ipsetRestores: number;
  readonly iptablesRestores: number;
}

export const NO_WRITES: Writes = { ipsetRestores: 0, iptablesRestores: 0 };

export const addWrites = (a: Writes, b: Writes): Writes => ({
  ipsetRestores: a.ipsetRestores + b.ipsetRestores,
  iptablesRestores: a.iptablesRestores + b.iptablesRestores,
});

export function reportedError(error: unknown): ReportedError {
  if (error instanceof KernelError) {
    return { kind: error.kind, message: error.message, tool: error.tool, stderr: error.stderr };
  }
  return { kind: 'other', message: messageOf(error), tool: '', stderr: '' };
}

/** The numbers of the wanted tables. */
export function countsOf(tables: FamilyTables): Pick<FamilyReport, 'sets' | 'entries' | 'chains' | 'rules'> {
  return {
    sets: tables.sets.length,
    entries: tables.sets.reduce((sum, set) => sum + set.entries.length, 0),
    chains: tables.chains.length,
    rules: tables.chains.reduce((sum, chain) => sum + chain.rules.length, 0),
  };
}

/** A difference as one line. */
export const differenceText = ({ object, is, wanted }: Difference): string =>
  `${object} ${is} (wanted: ${wanted})`;

/** What was mended in all families, a line each. */
export const repairsOf = ({ families }: DriverReport): readonly string[] =>
  Object.entries(families).flatMap(([name, { repairs }]) => repairs.map(repair => `${name}: ${repair}`));
