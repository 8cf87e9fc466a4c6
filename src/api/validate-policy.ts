// MasqPolicy: everything that its CRD and the CEL rules in it check, checked again. Objects can be older than a rule
// of the CRD, and manifests are read without an API server. What is accepted there is accepted here and the other way
// round; keys of matchLabels, which CEL cannot afford to look at, are the one exception.
import { destination, policySource, snatSource } from './addresses.ts';
import {
  defaulted,
  has,
  integer,
  isObject,
  type JsonObject,
  list,
  mapped,
  nullable,
  object,
  oneOf,
  optional,
  own,
  required,
  set,
} from './fields.ts';
import type {
  MasqPolicy,
  PolicyRule,
  PolicySpec,
  PortMatch,
  PortRange,
  RuleAction,
  Validated,
} from './model.ts';
import { withAppliedNulls } from './last-applied.ts';
import { identity, metadata } from './object.ts';
import { API_VERSION } from './own-group.ts';
import { quote, type Reader, type Report, refuse, validated } from './report.ts';
import { labelSelector } from './selector.ts';
import { interfaceName, ruleName } from './values.ts';

/** The limits of the CRD. */
const MAX_RULES = 64;
const MAX_DESTINATIONS = 64;
const MAX_PORTS = 64;
const MAX_INTERFACES = 16;

const portNumber = integer(1, 65535);

const portMatch: Reader<PortMatch> = mapped(
  object(
    {
      protocol: required(oneOf('TCP', 'UDP', 'SCTP', 'ICMP')),
      port: optional(portNumber),
      endPort: optional(portNumber),
    },
    'refuse',
    ({ protocol, port, endPort }, raw, field, report) => {
      if (protocol === 'ICMP' && has(raw, 'port')) {
        refuse(report, `${field}.port`, 'is only allowed with TCP, UDP and SCTP');
      }
      if (has(raw, 'endPort') && !has(raw, 'port')) refuse(report, `${field}.endPort`, 'needs port');
      if (port !== undefined && endPort !== undefined && endPort < port) {
        refuse(report, `${field}.endPort`, `${endPort} is below port, which is ${port}`);
      }
    },
  ),
  ({ protocol, port, endPort }) =>
    port === undefined ? { protocol } : { protocol, port, endPort: endPort ?? port },
);

const portRange: Reader<PortRange> = object(
  { start: required(portNumber), end: required(portNumber) },
  'refuse',
  ({ start, end }, _raw, field, report) => {
    if (start === undefined || end === undefined || start <= end) return;
    refuse(report, `${field}.end`, `${end} is below start, which is ${start}`);
  },
);

/** What goes with which action. */
function fitsAction(
  { action }: { readonly action?: RuleAction },
  raw: JsonObject,
  field: string,
  report: Report,
): void {
  if (action === undefined) return;
  if (action === 'SNAT' && !has(raw, 'snat')) refuse(report, `${field}.snat`, 'is required with action SNAT');
  if (action !== 'SNAT' && has(raw, 'snat')) {
    refuse(report, `${field}.snat`, `is only allowed with action SNAT, not with ${action}`);
  }
  if ((action === 'Preserve' || action === 'Continue') && has(raw, 'portRange')) {
    refuse(report, `${field}.portRange`, `is only allowed with Masquerade and SNAT, not with ${action}`);
  }
}

const rule: Reader<PolicyRule> = object(
  {
    name: required(ruleName),
    to: optional(list(destination, MAX_DESTINATIONS)),
    ports: optional(list(portMatch, MAX_PORTS)),
    outInterfaces: optional(set(interfaceName, MAX_INTERFACES)),
    action: required(oneOf('Masquerade', 'SNAT', 'Preserve', 'Continue')),
    snat: optional(snatSource),
    portRange: optional(portRange),
    portAllocation: defaulted(oneOf('FullyRandom', 'Random', 'KeepIfPossible'), 'FullyRandom'),
  },
  'refuse',
  fitsAction,
);

const ruleList = list(rule, MAX_RULES);

/** Rules, each with a name of its own: names are what messages, counters and status speak of. */
const rules: Reader<readonly PolicyRule[]> = (value, field, report) => {
  const before = report.faults.length;
  const read = ruleList(value, field, report);
  const first = new Map<unknown, number>();
  (Array.isArray(value) ? value : []).forEach((raw: unknown, index) => {
    const name = isObject(raw) ? own(raw, 'name') : undefined;
    if (typeof name !== 'string') return;
    const other = first.get(name);
    if (other === undefined) first.set(name, index);
    else refuse(report, `${field}[${index}].name`, `${quote(name)} is the name of rules[${other}] already`);
  });
  return report.faults.length === before ? read : undefined;
};

const spec: Reader<PolicySpec> = object(
  {
    priority: defaulted(integer(0, 1000), 500),
    enforcementMode: defaulted(oneOf('Enforce', 'DryRun', 'Disabled'), 'Enforce'),
    nodeSelector: optional(labelSelector),
    source: required(policySource),
    rules: required(rules),
    defaultAction: defaulted(oneOf('Continue', 'Masquerade', 'Preserve'), 'Continue'),
    connectionPolicy: defaulted(oneOf('Keep', 'FlushChanged'), 'Keep'),
  },
  'refuse',
);

const policy: Reader<MasqPolicy> = mapped(
  object(
    {
      ...identity('MasqPolicy', API_VERSION),
      metadata: required(metadata),
      spec: required(spec),
      // Ours to write, so not read; named here since every other field is a fault.
      status: nullable((): undefined => undefined),
    },
    'refuse',
  ),
  ({ metadata: { name, generation, creationTimestamp }, spec }) => ({
    name,
    ...(generation === undefined ? {} : { generation }),
    ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    spec,
  }),
);

/**
 * Reads a MasqPolicy from any JSON value, with the CRD's defaults applied. A null that a client-side apply lost is
 * a null. Gives all of its faults, each with its field; never throws.
 */
export const validateMasqPolicy = (object: unknown): Validated<MasqPolicy> =>
  validated(policy, withAppliedNulls(object));
