// The configuration of ip-masq-agent and of what descends from it, as that program reads it. Where each rule comes from:
// syncConfig and validate of kubernetes-sigs/ip-masq-agent 2.12 and of Azure/ip-masq-agent-v2, the agent in Cilium, and
// the EgressNATPolicy of GKE.
import { isObject, type JsonObject, own } from '../api/fields.ts';
import { member, quote } from '../api/report.ts';
import { type Cidr, formatCidr, parseCidr } from '../cidr/cidr.ts';
import { SCOPE_RANGES } from '../planner/scopes.ts';

/** Whose rules about absent lists and several files hold. */
export const AGENT_FORMS = ['kubernetes', 'azure', 'cilium', 'gke'] as const;
export type AgentForm = (typeof AGENT_FORMS)[number];

/** What the agent is told on its command line. */
export interface AgentFlags {
  readonly form: AgentForm;
  readonly allReserved: boolean;
  readonly ipv6: boolean;
}

/** One configuration and where it stands. */
export interface AgentSource {
  /** As in messages: file, and object with key. */
  readonly where: string;
  /** Undefined: a file without a value, of comments say. */
  readonly value: unknown;
}

/** What the agent does with all its sources. */
export interface Agent {
  readonly spared: readonly Cidr[];
  /** Whether link-local destinations are spared, of each family. */
  readonly linkLocal: { readonly 4: boolean; readonly 6: boolean };
  readonly ipv6: boolean;
}

export type Read =
  | { readonly ok: true; readonly agent: Agent; readonly questions: readonly string[] }
  | { readonly ok: false; readonly faults: readonly string[] };

/** The agent knows them for IPv4 only. */
const PRIVATE = SCOPE_RANGES.PrivateUse.filter(({ family }) => family === 4);
/** What --nomasq-all-reserved-ranges means. */
const RESERVED = SCOPE_RANGES.Reserved.filter(({ family }) => family === 4);
const DEFAULT_LIMIT = 64;

/** The keys in their right spelling; programs in Go take any case. */
const KEYS = ['nonMasqueradeCIDRs', 'cidrLimit', 'masqLinkLocal', 'masqLinkLocalIPv6', 'resyncInterval'];

interface Config {
  readonly where: string;
  /** Nothing stands there, or comments only. */
  readonly empty: boolean;
  /** Undefined: the key is not there. */
  readonly cidrs: readonly unknown[] | undefined;
  /** Where one of them stands. */
  readonly fieldOf: (index: number) => string;
  readonly limit: number;
  readonly masqLinkLocal: boolean;
  readonly masqLinkLocalIPv6: boolean;
}

/**
 * Reads the sources together. A value that the agent itself would refuse is a fault, all of them are told: with it the
 * agent keeps rules that nobody can see here. What has two readings becomes a question.
 */
export function readAgent(sources: readonly AgentSource[], flags: AgentFlags): Read {
  const faults: string[] = [];
  const questions: string[] = [];
  const configs = sources.map(source => configOf(source, faults, questions));
  if (flags.form !== 'azure' && configs.length > 1) {
    const names = sources.map(({ where }) => where).join(', ');
    faults.push(`${names}: only Azure's agent puts several configurations together; give one`);
  }
  const spared = configs.flatMap(config => cidrsOf(config, flags, faults));
  const defaults = defaultsOf(configs, flags);
  if (defaults !== undefined && faults.length === 0) {
    questions.push(
      `no nonMasqueradeCIDRs are given: taken are the agent's own, ${defaults.map(formatCidr).join(', ')}`,
    );
    spared.push(...defaults);
  }
  for (const { where, cidrs, limit } of configs) {
    const count = cidrs?.length ?? 0;
    if (flags.form !== 'cilium' && flags.form !== 'gke' && count > limit)
      questions.push(
        `${where}: has ${count} CIDRs, and an agent whose limit is ${limit} refuses that list: which rules are in ` +
          'force now? Here all are taken',
      );
  }
  if (faults.length > 0) return { ok: false, faults };
  const masq = (key: 'masqLinkLocal' | 'masqLinkLocalIPv6'): boolean => configs.some(config => config[key]);
  return {
    ok: true,
    questions,
    agent: {
      spared: spared.filter(({ family }) => family === 4 || flags.ipv6),
      linkLocal: { 4: !masq('masqLinkLocal'), 6: flags.ipv6 && !masq('masqLinkLocalIPv6') },
      ipv6: flags.ipv6,
    },
  };
}

/** The agent's own ranges, where they stand in for the list. */
function defaultsOf(configs: readonly Config[], flags: AgentFlags): readonly Cidr[] | undefined {
  const absent = configs.every(({ cidrs }) => cidrs === undefined);
  switch (flags.form) {
    case 'kubernetes':
      return absent ? (flags.allReserved ? RESERVED : PRIVATE) : undefined;
    case 'azure':
      return configs.length === 0 ? (flags.allReserved ? RESERVED : PRIVATE) : undefined;
    case 'cilium':
      return configs.every(({ empty }) => empty) ? RESERVED : undefined;
    case 'gke':
      return undefined;
  }
}

function configOf({ where, value }: AgentSource, faults: string[], questions: string[]): Config {
  const nothing = {
    where,
    empty: value === undefined || value === null,
    cidrs: undefined,
    fieldOf: (i: number) => `nonMasqueradeCIDRs[${i}]`,
    limit: DEFAULT_LIMIT,
    masqLinkLocal: false,
    masqLinkLocalIPv6: false,
  };
  if (value === undefined || value === null) return nothing;
  if (!isObject(value)) {
    faults.push(`${where}: ${quote(value)} is not a configuration of ip-masq-agent`);
    return nothing;
  }
  if (own(value, 'kind') === 'EgressNATPolicy') return egressPolicy(where, value, nothing, faults);
  const spelt = spellingsOf(where, value, faults, questions);
  const flag = (key: string): boolean => {
    const found = spelt.get(key);
    if (found === undefined || found === null || typeof found === 'boolean') return found === true;
    faults.push(`${where}: ${key}: ${quote(found)} is not true or false`);
    return false;
  };
  return {
    ...nothing,
    cidrs: spelt.has('nonMasqueradeCIDRs')
      ? listOf(where, 'nonMasqueradeCIDRs', spelt.get('nonMasqueradeCIDRs'), faults)
      : undefined,
    limit: limitOf(where, spelt.get('cidrLimit'), faults),
    masqLinkLocal: flag('masqLinkLocal'),
    masqLinkLocalIPv6: flag('masqLinkLocalIPv6'),
  };
}

/** The known members by their right names. */
function spellingsOf(
  where: string,
  value: JsonObject,
  faults: string[],
  questions: string[],
): ReadonlyMap<string, unknown> {
  const spelt = new Map<string, unknown>();
  for (const [key, found] of Object.entries(value)) {
    const known = KEYS.find(name => name.toLowerCase() === key.toLowerCase());
    if (known === undefined)
      questions.push(`${where}: ${member('', key)}: the agent does not know this key, so it has no effect`);
    else if (spelt.has(known)) faults.push(`${where}: ${known}: is there twice, in two spellings`);
    else spelt.set(known, found);
  }
  return spelt;
}

/** A list that is there but null is an empty one for the agent: everything is masqueraded. */
function listOf(where: string, key: string, found: unknown, faults: string[]): readonly unknown[] {
  if (found === undefined || found === null) return [];
  if (Array.isArray(found)) return found as readonly unknown[];
  faults.push(`${where}: ${key}: ${quote(found)} is not a list`);
  return [];
}

function limitOf(where: string, found: unknown, faults: string[]): number {
  if (found === undefined || found === null) return DEFAULT_LIMIT;
  if (typeof found === 'number' && Number.isSafeInteger(found) && found >= 0) return found;
  faults.push(`${where}: cidrLimit: ${quote(found)} is not a whole number`);
  return DEFAULT_LIMIT;
}

/** action NoSNAT is the only one that GKE documents for its list of destinations. */
function egressPolicy(where: string, value: JsonObject, nothing: Config, faults: string[]): Config {
  const spec = own(value, 'spec');
  if (!isObject(spec)) {
    faults.push(`${where}: spec: ${quote(spec)} is not an object`);
    return nothing;
  }
  if (own(spec, 'action') !== 'NoSNAT')
    faults.push(
      `${where}: spec.action: ${quote(own(spec, 'action'))} is not NoSNAT, the one that is understood`,
    );
  for (const key of Object.keys(spec).filter(name => name !== 'action' && name !== 'destinations'))
    faults.push(`${where}: ${member('spec', key)}: is not understood`);
  const destinations = listOf(where, 'spec.destinations', own(spec, 'destinations'), faults);
  return {
    ...nothing,
    cidrs: destinations.map(item => (isObject(item) ? own(item, 'cidr') : item)),
    fieldOf: i => `spec.destinations[${i}].cidr`,
  };
}

function cidrsOf({ where, cidrs, fieldOf }: Config, flags: AgentFlags, faults: string[]): Cidr[] {
  return (cidrs ?? []).flatMap((text, i) => {
    const field = `${where}: ${fieldOf(i)}`;
    const parsed = parseCidr(text);
    if (!parsed.ok) faults.push(`${field}: ${quote(text)} ${parsed.reason}`);
    else if (parsed.value.family === 6 && !flags.ipv6 && flags.form !== 'cilium')
      faults.push(
        `${field}: ${quote(text)} is IPv6, which the agent refuses unless it runs with --enable-ipv6`,
      );
    else return [parsed.value];
    return [];
  });
}
