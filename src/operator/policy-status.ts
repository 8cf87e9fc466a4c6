// What the operator says of a MasqPolicy: the status subresource, as crds/ has it. Pure.
import type { Fault, MasqPolicy } from '../api/model.ts';
import { shortHash } from '../planner/ids.ts';
import type { Problem } from '../planner/problem.ts';
import { cut } from '../api/text.ts';
import type { NamedTrouble, NodeTally } from './node-states.ts';

export interface PolicyFacts {
  /** metadata.generation of the object that was read. */
  readonly generation: number | undefined;
  /** Undefined when it was refused. */
  readonly policy: MasqPolicy | undefined;
  readonly faults: readonly Fault[];
  readonly problems: readonly Problem[];
  /** Of the nodes that it selects; none when it is refused or Disabled. */
  readonly nodes: NodeTally;
  /** Rule → the rules that leave it nothing, where they do so in every plan. */
  readonly shadowed: ReadonlyMap<string, readonly string[]>;
  readonly resolved: { readonly ipPools: number; readonly ipv4CIDRs: number; readonly ipv6CIDRs: number };
  /** Sentences about what cannot be read at present, so that all of this may be old; empty: nothing. */
  readonly stale: readonly string[];
}

export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly observedGeneration?: number;
  readonly lastTransitionTime: string;
  readonly reason: string;
  readonly message: string;
}

export interface PolicyStatus {
  readonly observedGeneration?: number;
  readonly conditions: readonly Condition[];
  readonly nodes: {
    readonly desired: number;
    readonly programmed: number;
    readonly failed: number;
    readonly summary: string;
  };
  /** Absent when empty, as a server-side apply leaves a list that was not empty before. */
  readonly failedNodes?: readonly NamedTrouble[];
  /** Likewise. */
  readonly rules?: readonly { readonly name: string; readonly id: string; readonly shadowedBy?: string }[];
  readonly resolved: PolicyFacts['resolved'];
}

type Said = Pick<Condition, 'status' | 'reason' | 'message'>;

const MAX_MESSAGE = 4096;
const NAMED = 5;

/** The status. `earlier` conditions keep their times where their status stays; `now` is RFC 3339. */
export function policyStatus(
  facts: PolicyFacts,
  earlier: readonly Pick<Condition, 'type' | 'status' | 'lastTransitionTime'>[],
  now: string,
): PolicyStatus {
  const { generation, policy, nodes, shadowed } = facts;
  const { desired, programmed: done, failed } = nodes;
  const said: Readonly<Record<string, Said>> = {
    Accepted: accepted(facts),
    ResolvedRefs: resolvedRefs(facts),
    Programmed: programmed(facts),
    Conflicted: conflicted(facts),
    Degraded: degraded(facts),
  };
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    conditions: Object.entries(said).map(([type, { status, reason, message }]): Condition => {
      const before = earlier.find(condition => condition.type === type);
      return {
        type,
        status,
        ...(generation === undefined ? {} : { observedGeneration: generation }),
        lastTransitionTime: before?.status === status ? before.lastTransitionTime : now,
        reason,
        message: cut(message, MAX_MESSAGE),
      };
    }),
    nodes: { desired, programmed: done, failed, summary: `${done}/${desired}` },
    ...(nodes.failedNodes.length === 0 ? {} : { failedNodes: nodes.failedNodes.map(shortened) }),
    ...(policy === undefined ? {} : { rules: rulesOf(policy, shadowed) }),
    resolved: facts.resolved,
  };
}

const shortened = (trouble: NamedTrouble): NamedTrouble => ({
  ...trouble,
  message: cut(trouble.message, MAX_MESSAGE),
});

const rulesOf = (
  { name: policy, spec }: MasqPolicy,
  shadowed: PolicyFacts['shadowed'],
): NonNullable<PolicyStatus['rules']> =>
  spec.rules.map(({ name }) => {
    const by = shadowed.get(name)?.[0];
    return { name, id: shortHash(`${policy}/${name}`), ...(by === undefined ? {} : { shadowedBy: by }) };
  });

/** The first few, and how many more of `count`. */
function listed(items: readonly string[], between = '; ', count = items.length): string {
  const more = count > NAMED ? `${between}and ${count - NAMED} more` : '';
  return `${items.slice(0, NAMED).join(between)}${more}`;
}

function accepted({ policy, faults }: PolicyFacts): Said {
  if (policy !== undefined) {
    const disabled = policy.spec.enforcementMode === 'Disabled';
    return disabled
      ? {
          status: 'True',
          reason: 'Disabled',
          message: 'enforcementMode is Disabled: the policy is as if it were not there',
        }
      : { status: 'True', reason: 'Accepted', message: 'the policy is valid' };
  }
  const told = listed(faults.map(({ field, reason }) => `${field}: ${reason}`));
  return {
    status: 'False',
    reason: 'Invalid',
    message: `${told}. The policy has no effect, also not as it was before`,
  };
}

function resolvedRefs({ policy, problems }: PolicyFacts): Said {
  if (policy === undefined) return refusedElsewhere('Unknown');
  const bad = problems.filter(({ severity }) => severity === 'error');
  if (bad.length === 0)
    return { status: 'True', reason: 'ResolvedRefs', message: 'everything it refers to is there' };
  return { status: 'False', reason: bad[0]?.reason ?? 'NotFound', message: listed(bad.map(problemText)) };
}

const problemText = ({ field, message }: Problem): string =>
  field === '' ? message : `${field}: ${message}`;

const refusedElsewhere = (status: Said['status']): Said => ({
  status,
  reason: 'NotAccepted',
  message: 'the policy is not valid; see condition Accepted',
});

function programmed({ policy, nodes }: PolicyFacts): Said {
  const { desired, programmed: done, failed } = nodes;
  if (policy === undefined) return refusedElsewhere('False');
  if (policy.spec.enforcementMode === 'Disabled') {
    return { status: 'False', reason: 'Disabled', message: 'enforcementMode is Disabled' };
  }
  if (desired === 0) return { status: 'True', reason: 'NoNodes', message: 'no node is selected' };
  const counting = policy.spec.enforcementMode === 'DryRun' ? ' (DryRun: it counts and does not act)' : '';
  const on = `on ${done} of ${desired} nodes${counting}`;
  if (done === desired) return { status: 'True', reason: 'Programmed', message: `in force ${on}` };
  if (failed === 0)
    return { status: 'False', reason: 'Pending', message: `in force ${on}; the others have not said so yet` };
  const told = nodes.failedNodes.map(({ name, message }) => `${name}: ${message}`);
  const message = `in force ${on}; ${listed(told, '; ', failed)}`;
  return { status: 'False', reason: 'NodesFailed', message };
}

function conflicted({ policy, shadowed }: PolicyFacts): Said {
  if (policy === undefined) return refusedElsewhere('Unknown');
  if (shadowed.size === 0)
    return { status: 'False', reason: 'NoConflict', message: 'every rule can decide about packets' };
  const told = [...shadowed].map(
    ([rule, by]) => `rule ${rule} decides about no packet: ${by.slice(0, 3).join(', ')} come first`,
  );
  return { status: 'True', reason: 'Shadowed', message: listed(told) };
}

function degraded({ policy, nodes, problems, stale }: PolicyFacts): Said {
  if (stale.length > 0) {
    const message = `${listed(stale)}. What was last known stays in force`;
    return { status: 'True', reason: 'SourceUnavailable', message };
  }
  if (policy === undefined) return refusedElsewhere('False');
  if (nodes.failed > 0) {
    const told = nodes.failedNodes.map(({ name, reason }) => `${name} (${reason})`);
    return { status: 'True', reason: 'NodesFailed', message: `failed: ${listed(told, ', ', nodes.failed)}` };
  }
  if (nodes.warned > 0) {
    const told = nodes.warnings.map(({ name, message }) => `${name}: ${message}`);
    const isPlace = nodes.warnings.some(({ reason }) => reason === 'PlaceContended');
    const reason = isPlace ? 'Contended' : 'Overruled';
    return { status: 'True', reason, message: listed(told, '; ', nodes.warned) };
  }
  const warnings = problems.filter(({ severity }) => severity === 'warning');
  if (warnings.length > 0) {
    return { status: 'False', reason: 'Warnings', message: listed(warnings.map(problemText)) };
  }
  return { status: 'False', reason: 'AsExpected', message: 'nothing is known to be wrong' };
}
