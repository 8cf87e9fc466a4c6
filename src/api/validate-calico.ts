// Calico's IPPool and GlobalNetworkSet, of crd.projectcalico.org/v1 and projectcalico.org/v3: the fields that we look
// at have one shape in both. They are read as Calico reads them, which is not always how their documentation asks for
// them to be written.
import { type Cidr, cidrOf, formatCidr, parseCidr } from '../cidr/cidr.ts';
import { bitsOf, parseAddress } from '../cidr/address.ts';
import { boolean, defaulted, mapped, nullable, object, required } from './fields.ts';
import type { IpPool, NetworkSet, Validated } from './model.ts';
import { identity, metadata } from './object.ts';
import { quote, type Reader, refuse, validated } from './report.ts';

export const CALICO_API_VERSIONS = ['crd.projectcalico.org/v1', 'projectcalico.org/v3'] as const;

/** Felix masks a pool's CIDR (net.ParseCIDR), so host bits are cleared; the author is told. */
const poolCidr: Reader<Cidr> = (value, field, report) => {
  if (typeof value !== 'string') return refuse(report, field, `${quote(value)} is not a string`);
  const exact = parseCidr(value);
  if (exact.ok) return exact.value;
  const masked = parseCidr(value, { hostBits: 'clear' });
  if (!masked.ok) return refuse(report, field, `${quote(value)} ${masked.reason}`);
  const reason = `${quote(value)} has bits below its prefix and is read as ${formatCidr(masked.value)}`;
  report.warnings.push({ field, reason });
  return masked.value;
};

/**
 * Whether allowedUses is LoadBalancer and nothing else. Absent and empty mean Workload and Tunnel, Calico's default;
 * uses that we do not know are uses.
 */
const loadBalancerOnly: Reader<boolean> = (value, field, report) => {
  if (!Array.isArray(value)) return refuse(report, field, `${quote(value)} is not a list`);
  value.forEach((use: unknown, index) => {
    if (typeof use !== 'string') refuse(report, `${field}[${index}]`, `${quote(use)} is not a string`);
  });
  return value.length > 0 && value.every(use => use === 'LoadBalancer');
};

const pool: Reader<IpPool> = mapped(
  object(
    {
      ...identity('IPPool', ...CALICO_API_VERSIONS),
      metadata: required(metadata),
      spec: required(
        object(
          {
            cidr: required(poolCidr),
            natOutgoing: defaulted(boolean, false),
            allowedUses: defaulted(loadBalancerOnly, false),
          },
          'ignore',
        ),
      ),
    },
    'ignore',
  ),
  ({ metadata: { name, labels }, spec: { cidr, natOutgoing, allowedUses } }) => ({
    name,
    labels,
    cidr,
    natOutgoing,
    loadBalancerOnly: allowedUses,
  }),
);

/** A network or a plain address, masked, as Calico's ParseCIDROrIP reads it; strictly in all else. */
function parseNet(text: unknown): ReturnType<typeof parseCidr> {
  if (typeof text === 'string' && !text.includes('/')) {
    const address = parseAddress(text);
    return address.ok ? { ok: true, value: cidrOf(address.value, bitsOf(address.value.family)) } : address;
  }
  return parseCidr(text, { hostBits: 'clear' });
}

/**
 * Nets of any number. One that cannot be read is left out with a warning, as Calico leaves it out; a list of which
 * nothing is left is a fault, since it was meant to be something.
 */
const nets: Reader<readonly Cidr[]> = (value, field, report) => {
  if (!Array.isArray(value)) return refuse(report, field, `${quote(value)} is not a list`);
  const read: Cidr[] = [];
  value.forEach((text: unknown, index) => {
    const parsed = parseNet(text);
    if (parsed.ok) read.push(parsed.value);
    else {
      const reason = `${quote(text)} ${parsed.reason}; it is left out`;
      report.warnings.push({ field: `${field}[${index}]`, reason });
    }
  });
  if (read.length > 0 || value.length === 0) return read;
  return refuse(report, field, `none of the ${value.length} nets can be read`);
};

const networkSet: Reader<NetworkSet> = mapped(
  object(
    {
      ...identity('GlobalNetworkSet', ...CALICO_API_VERSIONS),
      metadata: required(metadata),
      spec: nullable(object({ nets: defaulted(nets, []) }, 'ignore')),
    },
    'ignore',
  ),
  ({ metadata: { name, labels }, spec }) => ({ name, labels, nets: spec?.nets ?? [] }),
);

/** Reads an IPPool from any JSON value, with Calico's defaults. Never throws. */
export const readIpPool = (object: unknown): Validated<IpPool> => validated(pool, object);

/** Reads a GlobalNetworkSet from any JSON value. Never throws. */
export const readNetworkSet = (object: unknown): Validated<NetworkSet> => validated(networkSet, object);
