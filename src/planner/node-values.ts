// The values that are one node's own: the addresses which a rule's snat.addressFrom names.
import type { ClusterNode, MasqPolicy, PerFamily, SnatSource } from '../api/model.ts';
import { unfitSource } from '../api/values.ts';
import { type Address, formatAddress, parseAddress } from '../cidr/address.ts';
import { annotationValue, addressTypeValue, type NodeValues } from './plan.ts';
import type { Problem } from './problem.ts';

/**
 * What is wrong with an annotated address as the source of traffic that shall get answers; undefined when it will do.
 * Beyond what a policy may name, nothing reserved or link-local: here no author has looked at the single address.
 */
function sourceAddressFault(address: Address): string | undefined {
  const unfit = unfitSource(address);
  if (unfit !== undefined) return `is ${unfit}`;
  if (address.family === 4) return address.value >> 28n === 0xfn ? 'is a reserved address' : undefined;
  return address.value >> 118n === 0xfe80n >> 6n ? 'is a link-local address' : undefined;
}

/** What a rule asks of a node, and who asks. */
export interface Need {
  readonly key: string;
  readonly read: (node: ClusterNode) => Read;
  readonly users: readonly { readonly policy: string; readonly field: string }[];
}

interface Read {
  readonly value: PerFamily<Address>;
  /** Why there is none, as a phrase that follows the node's name. */
  readonly fault?: string;
}

export interface NodeReading {
  readonly values: NodeValues;
  /** Key of a need → why the node has no value for it. */
  readonly faults: ReadonlyMap<string, string>;
}

/** Everything that the policies' SNAT rules ask of nodes, each thing once. */
export function needsOf(policies: readonly MasqPolicy[]): readonly Need[] {
  const needs = new Map<string, Need & { users: { policy: string; field: string }[] }>();
  for (const policy of policies) {
    policy.spec.rules.forEach((rule, index) => {
      if (rule.snat === undefined || 'addresses' in rule.snat) return;
      const asked = askedOf(rule.snat);
      const need = needs.get(asked.key) ?? { ...asked, users: [] };
      need.users.push({ policy: policy.name, field: `spec.rules[${index}].snat.addressFrom` });
      needs.set(asked.key, need);
    });
  }
  return [...needs.values()];
}

/** Reads what is asked of a node. A value that is missing or bad is left out, and why is told. */
export function readNode(node: ClusterNode, needs: readonly Need[]): NodeReading {
  const values = new Map<string, PerFamily<Address>>();
  const faults = new Map<string, string>();
  for (const { key, read } of needs) {
    const { value, fault } = read(node);
    if (value[4] !== undefined || value[6] !== undefined) values.set(key, value);
    if (fault !== undefined) faults.set(key, fault);
  }
  return { values, faults };
}

/** How many nodes a problem names. */
const NAMED = 3;

/** One problem for each rule that some nodes have no value for, whatever their number. */
export function missingValueProblems(
  needs: readonly Need[],
  readings: readonly { readonly node: string; readonly faults: NodeReading['faults'] }[],
): readonly Problem[] {
  return needs.flatMap(({ key, users }) => {
    const lacking = readings.flatMap(({ node, faults }) => {
      const fault = faults.get(key);
      return fault === undefined ? [] : [`node ${node} ${fault}`];
    });
    if (lacking.length === 0) return [];
    const more = lacking.length > NAMED ? ` and ${lacking.length - NAMED} nodes more` : '';
    const message = `${lacking.slice(0, NAMED).join(', ')}${more}; the rule does not act there`;
    return users.map(({ policy, field }): Problem => {
      return {
        severity: 'error',
        kind: 'MasqPolicy',
        name: policy,
        field,
        reason: 'NodeAddressMissing',
        message,
      };
    });
  });
}

function askedOf(snat: Exclude<SnatSource, { addresses: unknown }>): Pick<Need, 'key' | 'read'> {
  if ('nodeAnnotation' in snat) {
    const key = snat.nodeAnnotation;
    return { key: annotationValue(key), read: node => annotationAddresses(node, key) };
  }
  const type = snat.nodeAddressType;
  const read = (node: ClusterNode): Read => {
    const value: { 4?: Address; 6?: Address } = {};
    for (const entry of node.addresses)
      if (entry.type === type) value[entry.address.family] ??= entry.address;
    return Object.keys(value).length > 0 ? { value } : { value, fault: `has no address of type ${type}` };
  };
  return { key: addressTypeValue(type), read };
}

/** An annotation holds one address, or one of each family with a comma between them. */
function annotationAddresses(node: ClusterNode, key: string): Read {
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
