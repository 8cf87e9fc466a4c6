// One policy → its part of a plan. It depends on the policy alone: set ids name selections, and what these stand for
// in the cluster is the resolver's business. So a policy is compiled once, however often the cluster changes.
import type { Destination, MasqPolicy, PolicyRule } from '../api/model.ts';
import { addressTypeValue, annotationValue, type PlanPolicy, type PlanRule, type PlanSnat } from './plan.ts';
import { selectionId, selectionKey, sourceItems } from './resolve.ts';

export interface CompiledPolicy {
  readonly plan: PlanPolicy;
  /** Everything that the plan's set ids stand for. */
  readonly selections: readonly (readonly Destination[])[];
}

export function compilePolicy(policy: MasqPolicy): CompiledPolicy {
  const selections: (readonly Destination[])[] = [];
  const idOf = (items: readonly Destination[]): string => {
    selections.push(items);
    return selectionId(selectionKey(items));
  };
  const plan = {
    name: policy.name,
    dryRun: policy.spec.enforcementMode === 'DryRun',
    source: idOf(sourceItems(policy.spec.source)),
    rules: policy.spec.rules.map(rule => compileRule(rule, idOf)),
    defaultAction: policy.spec.defaultAction,
    connectionPolicy: policy.spec.connectionPolicy,
  };
  return { plan, selections };
}

const compileRule = (rule: PolicyRule, idOf: (items: readonly Destination[]) => string): PlanRule => ({
  name: rule.name,
  ...(rule.to === undefined ? {} : { to: idOf(rule.to) }),
  ...(rule.ports === undefined ? {} : { ports: rule.ports }),
  ...(rule.outInterfaces === undefined ? {} : { outInterfaces: rule.outInterfaces }),
  action: rule.action,
  ...(rule.snat === undefined ? {} : { snat: compileSnat(rule.snat) }),
  ...(rule.portRange === undefined ? {} : { portRange: rule.portRange }),
  portAllocation: rule.portAllocation,
});

function compileSnat(snat: NonNullable<PolicyRule['snat']>): PlanSnat {
  if ('addresses' in snat) return snat;
  return {
    nodeValue:
      'nodeAnnotation' in snat
        ? annotationValue(snat.nodeAnnotation)
        : addressTypeValue(snat.nodeAddressType),
  };
}
