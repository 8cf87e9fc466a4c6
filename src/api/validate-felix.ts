// The options of Calico's FelixConfiguration that bear on translation. A field that cannot be read is left out with a
// warning and the others hold: Felix does the same (it logs, and takes its default).
import type { Address } from '../cidr/address.ts';
import { boolean, type Member, mapped, nullable, object, required } from './fields.ts';
import type { FelixConfig, PortRange, Validated } from './model.ts';
import { identity, metadata } from './object.ts';
import { quote, type Reader, type Report, refuse, validated } from './report.ts';
import { CALICO_API_VERSIONS } from './validate-calico.ts';
import { interfaceName, sourceAddress } from './values.ts';

/** Faults of the field become warnings, and "" is as good as absent: both as in Felix. */
function lenient<T>(read: Reader<T>): Member<T, false> {
  return nullable((value, field, report) => {
    if (value === '') return undefined;
    const ours: Report = { faults: [], warnings: report.warnings };
    const found = read(value, field, ours);
    for (const { reason } of ours.faults) {
      report.warnings.push({ field, reason: `${reason}; it is left out` });
    }
    return found;
  });
}

/** One of the given words, in capitals or not, as Felix reads them. */
function oneOfAnyCase<T extends string>(...words: readonly T[]): Reader<T> {
  return (value, field, report) => {
    const text = typeof value === 'string' ? value.toLowerCase() : undefined;
    return (
      words.find(word => word.toLowerCase() === text) ??
      refuse(report, field, `${quote(value)} is not one of ${words.join(', ')}`)
    );
  };
}

/** Felix takes an IPv4 address here and nothing else, though its rules of both families use it. */
const ipv4Address: Reader<Address> = (value, field, report) => {
  const address = sourceAddress(value, field, report);
  if (address === undefined || address.family === 4) return address;
  return refuse(report, field, `${quote(value)} is not an IPv4 address, which Felix asks for`);
};

/** Calico's numorstring: 1024, "1024" or "1024:65535". A port name, which it allows elsewhere, has no meaning here. */
const portRange: Reader<PortRange> = (value, field, report) => {
  const text = typeof value === 'number' ? String(value) : value;
  const parts = typeof text === 'string' ? /^(\d{1,5})(?::(\d{1,5}))?$/.exec(text) : null;
  const start = Number(parts?.[1]);
  const end = Number(parts?.[2] ?? parts?.[1]);
  return start >= 1 && start <= end && end <= 65535
    ? { start, end }
    : refuse(report, field, `${quote(value)} is not a port or a range such as 1024:65535`);
};

const members = {
  natOutgoingAddress: lenient(ipv4Address),
  natPortRange: lenient(portRange),
  natOutgoingExclusions: lenient(oneOfAnyCase('IPPoolsOnly', 'IPPoolsAndHostIPs')),
  iptablesNATOutgoingInterfaceFilter: lenient(interfaceName),
  chainInsertMode: lenient(oneOfAnyCase('Insert', 'Append')),
  iptablesBackend: lenient(oneOfAnyCase('Legacy', 'NFT', 'Auto')),
  nftablesMode: lenient(oneOfAnyCase('Enabled', 'Disabled', 'Auto')),
  bpfEnabled: lenient(boolean),
};

const felixConfig: Reader<FelixConfig> = mapped(
  object(
    {
      ...identity('FelixConfiguration', ...CALICO_API_VERSIONS),
      metadata: required(metadata),
      spec: nullable(object(members, 'ignore')),
    },
    'ignore',
  ),
  ({ metadata: { name }, spec = {} }) => {
    const { iptablesNATOutgoingInterfaceFilter: natOutgoingInterface, ...rest } = spec;
    return { name, ...rest, ...(natOutgoingInterface === undefined ? {} : { natOutgoingInterface }) };
  },
);

/** Reads a FelixConfiguration from any JSON value. Absent fields were not set, or could not be read. Never throws. */
export const readFelixConfiguration = (object: unknown): Validated<FelixConfig> =>
  validated(felixConfig, object);
