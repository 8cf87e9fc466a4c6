// MasqNode.status: what this node's kernel holds, as crds/ has it. Pure.
import { REMOVED } from '../api/own-group.ts';
import { cut } from '../api/text.ts';
import type { CleanupReport } from '../kernel/cleanup.ts';
import { programOfRule } from '../kernel/foreign/programs.ts';
import { remediesOf, type Rivals, rivalText } from '../kernel/foreign/rivals.ts';
import type { DriverReport, FamilyName, FamilyReport } from '../kernel/report.ts';
import type { RivalsByFamily } from './rival-watch.ts';
import type { PlanOrigin } from './state-file.ts';

export interface NodeFacts {
  /** metadata.generation of the MasqNode whose plan and values are in force; 0: of none yet. */
  readonly generation: number;
  /** What the kernel holds; undefined: nothing that came from the API. */
  readonly applied?: { readonly origin: PlanOrigin; readonly at: Date };
  /** The last look at the kernel. */
  readonly report?: DriverReport;
  readonly verifiedAt?: Date;
  /** Why the plan that the API has is not the one that is in force. */
  readonly trouble?: { readonly reason: string; readonly message: string };
  readonly driftRepairs: number;
  /** Everything was removed, or what of it could not be; undefined: that is not asked. */
  readonly removal?: CleanupReport;
  /** Rules of others that are asked before ours; undefined: nobody has looked yet. */
  readonly rivals?: RivalsByFamily;
  /** Why the chosen backend is not the one that others use; undefined: it is, as far as known. */
  readonly otherBackend?: string;
}

export interface NodeCondition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
  readonly reason: string;
  readonly message: string;
}

export interface NodeStatus {
  readonly observedGeneration: number;
  readonly plan?: string;
  readonly planGeneration?: number;
  readonly contentHash?: string;
  readonly backend?: string;
  readonly families: { readonly [F in FamilyName]?: FamilyStatus };
  readonly lastAppliedTime?: string;
  readonly lastVerifiedTime?: string;
  readonly driftRepairs: number;
  readonly conditions: readonly NodeCondition[];
}

interface FamilyStatus {
  readonly state: 'Programmed' | 'Failed' | 'Unavailable';
  readonly error?: string;
  readonly sets: number;
  readonly entries: number;
  readonly rules: number;
  readonly jumpPosition?: number;
  readonly foreignRules?: readonly string[];
}

const FAMILY_NAMES: readonly FamilyName[] = ['ipv4', 'ipv6'];
const MAX_ERROR = 4096;
const MAX_RULE = 1024;
const MAX_RULES = 16;

type Said = Pick<NodeCondition, 'status' | 'reason' | 'message'>;

/** The status; conditions of the last one keep their times where their status stays. */
export function nodeStatus(facts: NodeFacts, last: NodeStatus | undefined, now: Date): NodeStatus {
  const { generation, applied, report, verifiedAt, driftRepairs } = facts;
  const said = {
    Ready: ready(facts),
    Contended: contended(report),
    Overruled: overruled(facts),
    BackendMismatch: mismatch(facts),
  };
  return {
    observedGeneration: generation,
    ...(applied === undefined
      ? {}
      : {
          plan: applied.origin.name,
          planGeneration: applied.origin.generation,
          contentHash: applied.origin.contentHash,
          lastAppliedTime: seconds(applied.at),
        }),
    ...(report?.backend === undefined ? {} : { backend: report.backend }),
    families: Object.fromEntries(
      FAMILY_NAMES.flatMap(name => {
        const family = report?.families[name];
        return family === undefined ? [] : [[name, familyStatus(family, facts.rivals?.[name])]];
      }),
    ),
    ...(verifiedAt === undefined ? {} : { lastVerifiedTime: seconds(verifiedAt) }),
    driftRepairs,
    conditions: Object.entries(said).map(([type, { status, reason, message }]): NodeCondition => {
      const before = last?.conditions.find(condition => condition.type === type);
      const lastTransitionTime = before?.status === status ? before.lastTransitionTime : seconds(now);
      return {
        type,
        status,
        observedGeneration: generation,
        lastTransitionTime,
        reason,
        message: cut(message, MAX_ERROR),
      };
    }),
  };
}

/** The API's times have whole seconds. */
const seconds = (date: Date): string => date.toISOString().replace(/\.\d+Z$/, 'Z');

function familyStatus(family: FamilyReport, rivals: Rivals | undefined): FamilyStatus {
  const { sets, entries, rules, jumpPosition, error } = family;
  const foreignRules = (rivals?.rules ?? []).slice(0, MAX_RULES);
  return {
    state: stateOf(family),
    ...(error === undefined ? {} : { error: cut(error.message, MAX_ERROR) }),
    sets,
    entries,
    rules,
    ...(jumpPosition === undefined ? {} : { jumpPosition }),
    ...(foreignRules.length === 0
      ? {}
      : { foreignRules: foreignRules.map(rule => cut(rivalText(rule), MAX_RULE)) }),
  };
}

function stateOf({ ok, unavailable }: FamilyReport): FamilyStatus['state'] {
  if (unavailable === true) return 'Unavailable';
  return ok ? 'Programmed' : 'Failed';
}

function ready({ applied, report, trouble, removal }: NodeFacts): Said {
  if (removal !== undefined) return removalSaid(removal);
  if (trouble !== undefined) {
    const kept =
      applied === undefined ? 'nothing is in force' : `plan ${applied.origin.name} stays in force as it was`;
    return { status: 'False', reason: trouble.reason, message: `${trouble.message}; ${kept}` };
  }
  const families = Object.entries(report?.families ?? {});
  const failed = families.filter(([, family]) => stateOf(family) === 'Failed');
  if (failed.length > 0) {
    const told = failed.map(
      ([name, { error }]) => `${name}: ${error?.message ?? 'the kernel is not as it shall be'}`,
    );
    return { status: 'False', reason: 'ProgrammingFailed', message: told.join('; ') };
  }
  if (applied === undefined || families.length === 0) {
    return { status: 'Unknown', reason: 'Pending', message: 'no plan has been put into the kernel yet' };
  }
  return { status: 'True', reason: 'Programmed', message: `the kernel holds plan ${applied.origin.name}` };
}

function removalSaid({ ok, failed }: CleanupReport): Said {
  if (ok) return { status: 'False', reason: REMOVED, message: 'nothing of ours is left in this kernel' };
  const left = failed.map(({ family, object, message }) => `${family} ${object}: ${message}`);
  return { status: 'False', reason: 'RemovalFailed', message: left.join('; ') };
}

function contended(report: DriverReport | undefined): Said {
  const rivals = Object.entries(report?.families ?? {}).flatMap(([name, { contended: by }]) =>
    by === undefined ? [] : [{ told: `${name}: ${by.foreign}`, program: programOfRule(by.foreign) }],
  );
  if (rivals.length === 0)
    return { status: 'False', reason: 'NoContention', message: 'nobody insists on our place' };
  const told = rivals.map(rival => rival.told).join('; ');
  return {
    status: 'True',
    reason: 'PlaceContended',
    message: `another program insists on the first place in nat POSTROUTING (${told}), so its rules are asked before ours: ${remediesOf(rivals).join('; ')}`,
  };
}

/** Told while the rules are there, whether it comes to a fight for the place or not. */
function overruled({ rivals }: NodeFacts): Said {
  if (rivals === undefined) {
    return {
      status: 'Unknown',
      reason: 'NotLooked',
      message: 'rules of others have not been looked for yet',
    };
  }
  const rules = FAMILY_NAMES.flatMap(name => rivals[name].rules);
  const gaps = [...new Set(FAMILY_NAMES.flatMap(name => rivals[name].gaps))];
  if (rules.length > 0) {
    const told = FAMILY_NAMES.flatMap(name => rivals[name].rules.map(rule => `${name}: ${rivalText(rule)}`));
    return {
      status: 'True',
      reason: rules.some(({ certainty }) => certainty === 'wins') ? 'ForeignRuleWins' : 'ForeignRuleMayWin',
      message: `rules of others are asked before ours for what pods send; ${remediesOf(rules).join('; ')}. They are: ${told.join('; ')}`,
    };
  }
  if (gaps.length > 0) return { status: 'Unknown', reason: 'NotReadable', message: gaps.join(' ') };
  return {
    status: 'False',
    reason: 'NoForeignRule',
    message: 'no rule of others is asked before ours for what pods send',
  };
}

function mismatch({ report, otherBackend }: NodeFacts): Said {
  if (otherBackend !== undefined)
    return { status: 'True', reason: 'OtherBackendInUse', message: otherBackend };
  const why = report?.why === undefined ? 'not known yet' : `${report.backend}: ${report.why}`;
  return { status: 'False', reason: 'AsOthers', message: why };
}
