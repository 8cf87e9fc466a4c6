// What a command asks of the host it runs on.
import { hostname } from 'node:os';
import type { ClusterNode } from '../api/model.ts';
import { FAMILIES, formatAddress, sameAddress } from '../cidr/address.ts';
import { systemClock } from '../kernel/clock.ts';
import { systemExec } from '../kernel/exec.ts';
import { type LocalAddress, localAddresses } from '../kernel/routes.ts';
import { runContext } from '../kernel/run.ts';
import { snatAddress } from '../planner/decide.ts';
import type { NodeValues, Plan } from '../planner/plan.ts';

/** The addresses of this host's interfaces; undefined where `ip` cannot tell them. */
export async function hostAddresses(signal: AbortSignal): Promise<readonly LocalAddress[] | undefined> {
  try {
    return await localAddresses(runContext({ exec: systemExec, clock: systemClock, signal }));
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

/** Whether this host is the node: it has the node's name, or one of its addresses. */
export async function isThisHost(
  name: string,
  nodes: readonly ClusterNode[],
  signal: AbortSignal,
): Promise<boolean> {
  if (hostname() === name) return true;
  const addresses = nodes.find(node => node.name === name)?.addresses ?? [];
  const local = (await hostAddresses(signal)) ?? [];
  return addresses.some(({ address }) => local.some(own => sameAddress(own.address, address)));
}

/**
 * One warning for each SNAT rule whose address no interface has. It may be right (an address that is routed here), so
 * the rule is applied; but if it is not, the answers go elsewhere, and nothing else would tell. None when the
 * addresses are not known.
 */
export function missingAddresses(
  plan: Plan,
  values: NodeValues,
  local: readonly LocalAddress[] | undefined,
): readonly string[] {
  if (local === undefined) return [];
  return plan.policies.flatMap(policy =>
    policy.rules.flatMap(rule => {
      return FAMILIES.flatMap(family => {
        const address = snatAddress(rule, family, values);
        if (address === undefined || local.some(own => sameAddress(own.address, address))) return [];
        return [
          `warning: MasqPolicy/${policy.name}: rule ${rule.name}: ${formatAddress(address)} is on no interface of this host; answers come back only if it is routed here`,
        ];
      });
    }),
  );
}
