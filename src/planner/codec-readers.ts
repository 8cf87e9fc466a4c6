// Readers of the parts of a plan's JSON, of the same making as those of the kinds that users write.
import {
  boolean,
  exactlyOne,
  has,
  integer,
  isObject,
  list,
  mapped,
  object,
  oneOf,
  optional,
  required,
  set as distinct,
  string,
} from '../api/fields.ts';
import type { PerFamily, PortMatch, PortRange } from '../api/model.ts';
import { member, quote, type Reader, type Report, refuse } from '../api/report.ts';
import { isInterface, isLabelKey, objectName, ruleName, sourceAddress } from '../api/values.ts';
import type { Address, Family } from '../cidr/address.ts';
import { type AddressSet, emptySet, labelledSet, type SetEntry } from '../cidr/address-set.ts';
import { compareCidrs, formatCidr, parseCidr, sameCidr } from '../cidr/cidr.ts';
import {
  addressTypeValue,
  annotationValue,
  type NodeValues,
  type PlanPolicy,
  type PlanRule,
  type PlanSet,
  type PlanSnat,
  type PoolDefault,
} from './plan.ts';

export const PLAN_SCHEMA_VERSION = 1;

/** Far above what the API holds, and low enough that a mad file is refused before it fills the memory. */
const MAX_ENTRIES = 1_048_576;
const MAX_SETS = 65_536;
const MAX_POLICIES = 4096;
const MAX_RULES = 64;
const MAX_PORTS = 64;
const MAX_INTERFACES = 16;

/** As `list`, but an empty list is what it says: a plan is written by the planner, nobody forgot anything in it. */
function anyList<T>(item: Reader<T>, max: number): Reader<readonly T[]> {
  const filled = list(item, max);
  return (value, field, report) =>
    Array.isArray(value) && value.length === 0 ? [] : filled(value, field, report);
}

/** Items of which no two have one name: chains, sets and messages are named so. */
function namedList<T>(item: Reader<T>, max: number, nameOf: (item: T) => string): Reader<readonly T[]> {
  const read = anyList(item, max);
  return (value, field, report) => {
    const items = read(value, field, report);
    const seen = new Set<string>();
    for (const [index, name] of items?.map(nameOf).entries() ?? []) {
      if (seen.has(name)) refuse(report, `${field}[${index}]`, `is the second one named ${quote(name)}`);
      seen.add(name);
    }
    return items;
  };
}

/** It becomes part of an ipset's name, which holds 31 characters. */
const setId = string(text => /^[a-z0-9-]{1,20}$/.test(text), 'the id of a set (1 to 20 of a-z, 0-9 and -)');

/** As in policies; and + alone, every interface, which `decide` and the renderer know. */
const outInterface = string(
  text => text === '+' || isInterface(text),
  'an interface name (at most 15 of letters, digits, _ . : and -, the last may be + for any rest)',
);

const isNodeValue = (text: string): boolean => {
  const annotation = annotationValue('');
  if (text.startsWith(annotation)) return isLabelKey(text.slice(annotation.length));
  return text === addressTypeValue('InternalIP') || text === addressTypeValue('ExternalIP');
};

/** The entries of one family. Of two that are one network, one would be lost: they must say the same. */
function entries(family: Family): Reader<AddressSet> {
  const entry: Reader<SetEntry> = (value, field, report) => {
    if (typeof value !== 'string') return refuse(report, field, `${quote(value)} is not a string`);
    const nomatch = value.startsWith('!');
    const parsed = parseCidr(nomatch ? value.slice(1) : value);
    if (!parsed.ok) return refuse(report, field, `${quote(value)} ${parsed.reason}`);
    if (parsed.value.family !== family) return refuse(report, field, `${quote(value)} is not IPv${family}`);
    return { cidr: parsed.value, nomatch };
  };
  const read = anyList(entry, MAX_ENTRIES);
  return (value, field, report) => {
    const sorted = [...(read(value, field, report) ?? [])].sort((a, b) => compareCidrs(a.cidr, b.cidr));
    const torn = sorted.find((it, i) => {
      const last = sorted[i - 1];
      return last !== undefined && last.nomatch !== it.nomatch && sameCidr(last.cidr, it.cidr);
    });
    if (torn === undefined) return labelledSet(family, sorted);
    return refuse(report, field, `holds ${formatCidr(torn.cidr)} both with and without !`);
  };
}

const set: Reader<PlanSet> = mapped(
  object({ id: required(setId), ipv4: optional(entries(4)), ipv6: optional(entries(6)) }, 'refuse'),
  ({ id, ipv4, ipv6 }) => ({ id, addresses: { 4: ipv4 ?? emptySet(4), 6: ipv6 ?? emptySet(6) } }),
);

function addressOf(family: Family): Reader<Address> {
  return (value, field, report) => {
    const address = sourceAddress(value, field, report);
    if (address === undefined || address.family === family) return address;
    return refuse(report, field, `${quote(value)} is not IPv${family}`);
  };
}

const addresses: Reader<PerFamily<Address>> = mapped(
  object({ ipv4: optional(addressOf(4)), ipv6: optional(addressOf(6)) }, 'refuse'),
  ({ ipv4, ipv6 }) => ({
    ...(ipv4 === undefined ? {} : { 4: ipv4 }),
    ...(ipv6 === undefined ? {} : { 6: ipv6 }),
  }),
);

const port = integer(1, 65_535);

const portMatch: Reader<PortMatch> = object(
  {
    protocol: required(oneOf('TCP', 'UDP', 'SCTP', 'ICMP')),
    port: optional(port),
    endPort: optional(port),
  },
  'refuse',
  ({ protocol, port, endPort }, raw, field, report) => {
    if (has(raw, 'port') !== has(raw, 'endPort')) refuse(report, field, 'port and endPort go together');
    if (protocol === 'ICMP' && has(raw, 'port')) refuse(report, `${field}.port`, 'ICMP has no ports');
    inOrder(port, endPort, `${field}.endPort`, report);
  },
);

const portRange: Reader<PortRange> = object(
  { start: required(port), end: required(port) },
  'refuse',
  ({ start, end }, _raw, field, report) => inOrder(start, end, `${field}.end`, report),
);

function inOrder(first: number | undefined, last: number | undefined, field: string, report: Report): void {
  if (first !== undefined && last !== undefined && last < first) {
    refuse(report, field, `${last} is below ${first}, where the range starts`);
  }
}

const snat: Reader<PlanSnat> = mapped(
  object(
    {
      addresses: optional(addresses),
      nodeValue: optional(string(isNodeValue, 'annotation:KEY, address:InternalIP or address:ExternalIP')),
    },
    'refuse',
    exactlyOne(['addresses', 'nodeValue']),
  ),
  // Exactly one member is there, which is what the union says.
  read => read as PlanSnat,
);

const portAllocation = oneOf('FullyRandom', 'Random', 'KeepIfPossible');

const rule: Reader<PlanRule> = object(
  {
    name: required(ruleName),
    to: optional(setId),
    ports: optional(list(portMatch, MAX_PORTS)),
    outInterfaces: optional(distinct(outInterface, MAX_INTERFACES)),
    action: required(oneOf('Masquerade', 'SNAT', 'Preserve', 'Continue')),
    snat: optional(snat),
    portRange: optional(portRange),
    portAllocation: required(portAllocation),
  },
  'refuse',
  ({ action }, raw, field, report) => {
    if (action === undefined) return;
    if ((action === 'SNAT') !== has(raw, 'snat')) {
      refuse(report, `${field}.snat`, 'is there exactly when the action is SNAT');
    }
    if ((action === 'Preserve' || action === 'Continue') && has(raw, 'portRange')) {
      refuse(report, `${field}.portRange`, `is only allowed with Masquerade and SNAT, not with ${action}`);
    }
  },
);

const policy: Reader<PlanPolicy> = object(
  {
    name: required(objectName),
    dryRun: required(boolean),
    source: required(setId),
    rules: required(namedList(rule, MAX_RULES, it => it.name)),
    defaultAction: required(oneOf('Continue', 'Masquerade', 'Preserve')),
    connectionPolicy: required(oneOf('Keep', 'FlushChanged')),
  },
  'refuse',
);

const poolDefault: Reader<PoolDefault> = object(
  {
    source: required(setId),
    spared: required(setId),
    sparedNodes: optional(setId),
    outInterface: optional(outInterface),
    portRange: optional(portRange),
    addresses: required(addresses),
    portAllocation: required(portAllocation),
  },
  'refuse',
);

const nodeValues: Reader<NodeValues> = (value, field, report) => {
  if (!isObject(value)) return refuse(report, field, `${quote(value)} is not an object`);
  const read = new Map<string, PerFamily<Address>>();
  for (const [key, raw] of Object.entries(value)) {
    const at = member(field, key);
    if (!isNodeValue(key)) refuse(report, at, 'is not the name of a value of a node');
    const found = addresses(raw, at, report);
    if (found !== undefined) read.set(key, found);
  }
  return read;
};

/** The whole document. Every set that it refers to is there. */
export const planDocument = object(
  {
    schemaVersion: required(integer(PLAN_SCHEMA_VERSION, PLAN_SCHEMA_VERSION)),
    sets: required(namedList(set, MAX_SETS, it => it.id)),
    policies: required(namedList(policy, MAX_POLICIES, it => it.name)),
    poolDefault: required(poolDefault),
    kubeMark: required(integer(1, 0xffff_ffff)),
    tunnelInterfaces: required(anyList(outInterface, MAX_INTERFACES)),
    values: required(nodeValues),
  },
  'refuse',
  ({ sets, policies, poolDefault }, _raw, _field, report) => {
    // A set that could not be read is a fault of its own.
    if (sets === undefined) return;
    const ids = new Set(sets.map(({ id }) => id));
    const refer = (id: string | undefined, field: string): void => {
      if (id !== undefined && !ids.has(id)) refuse(report, field, `there is no set ${quote(id)}`);
    };
    policies?.forEach(({ source, rules }, p) => {
      refer(source, `policies[${p}].source`);
      rules.forEach(({ to }, r) => refer(to, `policies[${p}].rules[${r}].to`));
    });
    for (const name of ['source', 'spared', 'sparedNodes'] as const)
      refer(poolDefault?.[name], `poolDefault.${name}`);
  },
);
