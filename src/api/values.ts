// Readers of the single values that our kinds are made of. The patterns and limits are those of the CRDs.
import { type Address, type Family, parseAddress } from '../cidr/address.ts';
import { type Cidr, cidrOf, containsAddress, parseCidr } from '../cidr/cidr.ts';
import { string } from './fields.ts';
import { quote, type Reader, refuse } from './report.ts';

const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const QUALIFIED_NAME =
  /^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/;
const INTERFACE = /^[A-Za-z0-9_.:-]+\+?$/;

const matches =
  (pattern: RegExp, max: number) =>
  (text: string): boolean =>
    text.length <= max && pattern.test(text);

/** Kubernetes' rule for names of objects. */
export const isObjectName = matches(SUBDOMAIN, 253);
export const objectName = string(isObjectName, 'the name of an object (a DNS subdomain: a-z, 0-9, - and .)');
export const ruleName = string(matches(LABEL, 63), 'a DNS label (a-z, 0-9 and -, at most 63 characters)');
/** Kubernetes' rule for keys of labels and annotations: at most 253 characters, a slash and 63. */
export const isLabelKey = matches(QUALIFIED_NAME, 317);
export const labelKey = string(isLabelKey, 'a label key such as zone or example.com/zone');
export const annotationKey = string(isLabelKey, 'an annotation key such as example.com/egress-ip');
export const labelValue = string(
  matches(LABEL_VALUE, 63),
  'a label value (letters, digits, -, _ and ., at most 63 characters)',
);
/** 15 characters are IFNAMSIZ less its terminator; a trailing + is iptables' wildcard. */
export const isInterface = matches(INTERFACE, 15);
export const interfaceName = string(
  isInterface,
  'an interface name (at most 15 of letters, digits, _ . : and -, the last may be + for any rest)',
);

/** A CIDR, strictly: four decimal parts or IPv6, aligned. */
export const cidr: Reader<Cidr> = (value, field, report) => {
  if (typeof value !== 'string') return refuse(report, field, `${quote(value)} is not a string`);
  const parsed = parseCidr(value);
  return parsed.ok ? parsed.value : refuse(report, field, `${quote(value)} ${parsed.reason}`);
};

const range = (family: Family, base: bigint, prefix: number): Cidr => cidrOf({ family, value: base }, prefix);

/** What no packet may carry as its source, so that no rule may choose it. */
const NO_SOURCE: readonly (readonly [Cidr, string])[] = [
  [range(4, 0n, 32), 'the unspecified address'],
  [range(6, 0n, 128), 'the unspecified address'],
  [range(4, 0x7f000000n, 8), 'a loopback address'],
  [range(6, 1n, 128), 'a loopback address'],
  [range(4, 0xe0000000n, 4), 'a multicast address'],
  [range(6, 0xffn << 120n, 8), 'a multicast address'],
  [range(4, 0xffffffffn, 32), 'the broadcast address'],
];

/** Why the address cannot be the source of a packet: a phrase that follows "is"; undefined when it can. */
export const unfitSource = (address: Address): string | undefined =>
  NO_SOURCE.find(([unfit]) => containsAddress(unfit, address))?.[1];

/** An address that packets can leave with. */
export const sourceAddress: Reader<Address> = (value, field, report) => {
  if (typeof value !== 'string') return refuse(report, field, `${quote(value)} is not a string`);
  const parsed = parseAddress(value);
  if (!parsed.ok) return refuse(report, field, `${quote(value)} ${parsed.reason}`);
  const unfit = unfitSource(parsed.value);
  return unfit === undefined
    ? parsed.value
    : refuse(report, field, `${quote(value)} is ${unfit}, which no packet can leave with`);
};
