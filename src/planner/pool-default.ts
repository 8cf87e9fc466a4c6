// Step 3 of `decide`: the pool default and the options that Calico's users set for it in FelixConfiguration.
import type { FelixConfig } from '../api/model.ts';
import type { PoolDefault } from './plan.ts';
import { CLUSTER_PODS, NAT_OUTGOING_POOLS, NODE_ADDRESSES, type Resolver } from './resolve.ts';

/** The options in force on a node: `node.NAME` overrides `default`, field by field, as Felix merges them. */
export function effectiveFelix(configs: readonly FelixConfig[], nodeName: string): FelixConfig {
  const named = (name: string): FelixConfig | undefined => configs.find(config => config.name === name);
  return { ...named('default'), ...named(`node.${nodeName}`), name: `node.${nodeName}` };
}

/** Whether a node has options of its own, so that it cannot share a plan with nodes that have not. */
export const hasOwnFelix = (configs: readonly FelixConfig[], nodeName: string): boolean =>
  configs.some(config => config.name === `node.${nodeName}`);

/** The pool default under the given options; pass no options where Felix's shall not be inherited. */
export function poolDefault(resolver: Resolver, felix: FelixConfig | undefined): PoolDefault {
  const address = felix?.natOutgoingAddress;
  return {
    source: resolver.resolve(NAT_OUTGOING_POOLS).id,
    spared: resolver.resolve(CLUSTER_PODS).id,
    ...(felix?.natOutgoingExclusions === 'IPPoolsAndHostIPs'
      ? { sparedNodes: resolver.resolve(NODE_ADDRESSES).id }
      : {}),
    ...(felix?.natOutgoingInterface === undefined ? {} : { outInterface: felix.natOutgoingInterface }),
    ...(felix?.natPortRange === undefined ? {} : { portRange: felix.natPortRange }),
    addresses: address === undefined ? {} : { [address.family]: address },
    portAllocation: 'FullyRandom',
  };
}
