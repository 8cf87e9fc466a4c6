// Nodes that the same policies select, under the same options, form a group and share one plan.
import type { ClusterNode, FelixConfig, MasqPolicy } from '../api/model.ts';
import { shortHash } from './ids.ts';
import { hasOwnFelix } from './pool-default.ts';
import { matchesSelector, selectorKey } from './select.ts';

export interface NodeGroup {
  /**
   * Names which of the policies' node selectors select the nodes, not which policies there are: a policy more, of all
   * nodes or of a selector that is known, is an update of the plan in place and no change of any node.
   */
  readonly id: string;
  /** In the order in which they are asked. */
  readonly policies: readonly MasqPolicy[];
  /** Sorted. */
  readonly nodes: readonly string[];
}

/** Which of the distinct node selectors select a node; kept over calls, since thousands of nodes rarely change. */
export interface SelectionCache {
  readonly selectors: string;
  readonly byNode: WeakMap<ClusterNode, string>;
}

/**
 * Sorts nodes into groups. Policies must be active and in order. Give the cache of the last call back and only nodes
 * that are new objects are asked again, as long as the policies' node selectors stay the same.
 */
export function groupNodes(
  nodes: readonly ClusterNode[],
  policies: readonly MasqPolicy[],
  felixConfigs: readonly FelixConfig[],
  earlier?: SelectionCache,
): { readonly groups: readonly NodeGroup[]; readonly cache: SelectionCache } {
  const distinct = new Map(
    policies.map(policy => [selectorKey(policy.spec.nodeSelector), policy.spec.nodeSelector]),
  );
  const selectors = JSON.stringify([...distinct.keys()]);
  const cache: SelectionCache =
    earlier?.selectors === selectors ? earlier : { selectors, byNode: new WeakMap() };
  const byKey = new Map<string, string[]>();
  for (const node of nodes) {
    const own = hasOwnFelix(felixConfigs, node.name) ? node.name : '';
    const key = `${selectedBy(node, distinct, cache)} ${own}`;
    const members = byKey.get(key);
    if (members === undefined) byKey.set(key, [node.name]);
    else members.push(node.name);
  }
  const order = [...distinct.keys()];
  const groups = [...byKey].map(([key, members]) => {
    const selected = order.filter((_, i) => key[i] === '1');
    const own = key.slice(order.length + 1);
    const chosen = policies.filter(policy => selected.includes(selectorKey(policy.spec.nodeSelector)));
    // An absent selector selects every node, and so says nothing about a group.
    const id = shortHash(JSON.stringify([selected.filter(selector => selector !== '').sort(), own]));
    return { id, policies: chosen, nodes: members.sort() };
  });
  return { groups: groups.sort((a, b) => (a.id < b.id ? -1 : 1)), cache };
}

/** One character for each distinct selector: whether it selects the node. */
function selectedBy(
  node: ClusterNode,
  distinct: ReadonlyMap<string, MasqPolicy['spec']['nodeSelector']>,
  cache: SelectionCache,
): string {
  let key = cache.byNode.get(node);
  if (key === undefined) {
    key = [...distinct.values()]
      .map(selector => (matchesSelector(selector, node.labels) ? '1' : '0'))
      .join('');
    cache.byNode.set(node, key);
  }
  return key;
}
