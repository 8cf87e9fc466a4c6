// The values that are one node's own: the addresses which a rule's snat.addressFrom names.
import type { ClusterNode, MasqPolicy, PerFamily } from '../api/model.ts';
import { type Address, formatAddress, parseAddress } from '../cidr/address.ts';
import { annotationValue, addressTypeValue, type NodeValues } from './plan.ts';
import type { Problem } from './problem.ts';

/** What is wrong with an address as the source of traffic that shall get answers; undefined when it will do. */
export function sourceAddressFault(address: Address): string | undefined {
  const v = address.value;
  if (v === 0n) return 'is the unspecified address';
  if (address.family === 4) {
    if (v >> 24n === 127n) return 'is a loopback address';
    if (v >> 28n === 0xen) return 'is a multicast address';
    return v >> 28n === 0xfn ? 'is reserved or the broadcast address' : undefined;
  }
  if (v === 1n) return 'is the loopback address';
  if (v >> 120n === 0xffn) return 'is a multicast address';
  return v >> 118n === 0xfe80n >> 6n ? 'is a link-local address' : undefined;
}

interface Need {
  readonly policy: string;
  readonly field: string;
  readonly key: string;
  readonly read: (node: ClusterNode) => { readonly value: PerFamily<Address>; readonly fault?: string };
}

/** Reads from a node what the policies' SNAT rules ask of it. A value that is missing or bad is left out and told. */
export function nodeValues(
  node: ClusterNode,
  policies: readonly MasqPolicy[],
): { readonly values: NodeValues; readonly problems: readonly Problem[] } {
  const values = new Map<string, PerFamily<Address>>();
  const problems: Problem[] = [];
  for (const need of policies.flatMap(needsOf)) {
    const { value, fault } = need.read(node);
    if (value[4] !== undefined || value[6] !== undefined) values.set(need.key, value);
    if (fault === undefined) continue;
    problems.push({
      severity: 'error',
      kind: 'MasqPolicy',
      name: need.policy,
      field: need.field,
      reason: 'NodeAddressMissing',
      message: `node ${node.name} ${fault}; the rule does not act there`,
    });
  }
  return { values, problems };
}

function needsOf(policy: MasqPolicy): readonly Need[] {
  return policy.spec.rules.flatMap((rule, index): readonly Need[] => {
    const field = `spec.rules[${index}].snat.addressFrom`;
    const snat = rule.snat;
    if (snat === undefined || 'addresses' in snat) return [];
    if ('nodeAnnotation' in snat) {
      const key = snat.nodeAnnotation;
      return [
        {
          policy: policy.name,
          field,
          key: annotationValue(key),
          read: node => annotationAddresses(node, key),
        },
      ];
    }
    const type = snat.nodeAddressType;
    const read = (node: ClusterNode): ReturnType<Need['read']> => {
      const value: { 4?: Address; 6?: Address } = {};
      for (const entry of node.addresses)
        if (entry.type === type) value[entry.address.family] ??= entry.address;
      return Object.keys(value).length > 0 ? { value } : { value, fault: `has no address of type ${type}` };
    };
    return [{ policy: policy.name, field, key: addressTypeValue(type), read }];
  });
}

/** An annotation holds one address, or one of each family with a comma between them. */
function annotationAddresses(node: ClusterNode, key: string): ReturnType<Need['read']> {
  const text = Object.hasOwn(node.annotations, key) ? node.annotations[key] : undefined;
  if (text === undefined || text.trim() === '') return { value: {}, fault: `has no annotation ${key}` };
  const value: { 4?: Address; 6?: Address } = {};
  for (const part of text.split(',')) {
    const parsed = parseAddress(part.trim());
    const wrong = parsed.ok ? sourceAddressFault(parsed.value) : parsed.reason;
    const quoted = JSON.stringify(part.trim().slice(0, 60));
    if (!parsed.ok || wrong !== undefined) {
      return { value: {}, fault: `has annotation ${key} in which ${quoted} ${wrong}` };
    }
    if (value[parsed.value.family] !== undefined) {
      return {
        value: {},
        fault: `has annotation ${key} with a second address of one family, ${formatAddress(parsed.value)}`,
      };
    }
    value[parsed.value.family] = parsed.value;
  }
  return { value };
}
