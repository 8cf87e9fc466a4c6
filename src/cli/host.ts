// What a command asks of the host it runs on.
import { networkInterfaces } from 'node:os';
import { type Address, FAMILIES, formatAddress, parseAddress, sameAddress } from '../cidr/address.ts';
import { snatAddress } from '../planner/decide.ts';
import type { NodeValues, Plan } from '../planner/plan.ts';

export interface LocalAddress {
  readonly interface: string;
  readonly address: Address;
}

/** The addresses of this host's interfaces that are up. */
export const localAddresses = (): readonly LocalAddress[] =>
  Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? []).flatMap(({ address }) => {
      const parsed = parseAddress(address);
      return parsed.ok ? [{ interface: name, address: parsed.value }] : [];
    }),
  );

/**
 * One warning for each SNAT rule whose address no interface has. It may be right (an address that is routed here), so
 * the rule is applied; but if it is not, the answers go elsewhere, and nothing else would tell.
 */
export function missingAddresses(
  plan: Plan,
  values: NodeValues,
  local: readonly LocalAddress[],
): readonly string[] {
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
