// What ip-masq-agent does, as a MasqPolicy.
import { FAMILIES } from '../cidr/address.ts';
import { type Cidr, formatCidr } from '../cidr/cidr.ts';
import { SCOPE_RANGES } from '../planner/scopes.ts';
import type { Agent } from './agent.ts';

/** What the API takes in one rule, and in one policy beside the rules for link-local, pods and the rest. */
const MOST_CIDRS = 64;
const MOST_CHUNKS = 61;

/** More CIDRs than fit into one policy; a GlobalNetworkSet takes any number. */
export const MOST_SPARED = MOST_CIDRS * MOST_CHUNKS;

const EVERYTHING = { 4: '0.0.0.0/0', 6: '::/0' } as const;

const blocks = (cidrs: readonly string[]): readonly object[] => cidrs.map(cidr => ({ ipBlock: { cidr } }));

/**
 * The object, for at most MOST_SPARED CIDRs. A family that the agent leaves alone is left alone. Destinations of the
 * node itself, which the agent excepts, never come to the rules: what a pod sends there does not leave the node.
 */
export function masqPolicyOf(agent: Agent, name: string): object {
  const families = FAMILIES.filter(family => family === 4 || agent.ipv6);
  const linkLocal = SCOPE_RANGES.LinkLocal.filter(({ family }) => agent.linkLocal[family]);
  return {
    apiVersion: 'natoutgoing.io/v1alpha1',
    kind: 'MasqPolicy',
    metadata: { name },
    spec: {
      source: { ipPools: {} },
      rules: [
        ...(linkLocal.length === 0
          ? []
          : [{ name: 'link-local', to: blocks(linkLocal.map(formatCidr)), action: 'Preserve' }]),
        ...chunks(agent.spared).map((cidrs, i) => ({
          name: `non-masquerade-cidrs${i === 0 ? '' : `-${i + 1}`}`,
          to: blocks(cidrs.map(formatCidr)),
          action: 'Preserve',
        })),
        { name: 'cluster-pods', to: [{ scope: 'ClusterPods' }], action: 'Preserve' },
        {
          name: 'everything-else',
          to: blocks(families.map(family => EVERYTHING[family])),
          action: 'Masquerade',
        },
      ],
    },
  };
}

/** Without what is there twice. */
function chunks(cidrs: readonly Cidr[]): readonly (readonly Cidr[])[] {
  const distinct = [...new Map(cidrs.map(cidr => [formatCidr(cidr), cidr])).values()];
  const count = Math.ceil(distinct.length / MOST_CIDRS);
  return Array.from({ length: count }, (_, i) => distinct.slice(i * MOST_CIDRS, (i + 1) * MOST_CIDRS));
}
