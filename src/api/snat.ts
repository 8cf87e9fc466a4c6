// Where the address of an SNAT rule comes from.
import type { Address } from '../cidr/address.ts';
import { exactlyOne, isObject, list, mapped, object, oneOf, optional } from './fields.ts';
import type { PerFamily, SnatSource } from './model.ts';
import { quote, type Reader, refuse } from './report.ts';
import { annotationKey, sourceAddress } from './values.ts';

const addressList = list(sourceAddress, 2);

/** At most one address for each family: a second would make the choice a matter of order. */
const addresses: Reader<PerFamily<Address>> = (value, field, report) => {
  const found = addressList(value, field, report);
  if (found === undefined) return undefined;
  const [first, second] = found as readonly [Address, Address?];
  if (second === undefined) return { [first.family]: first };
  if (second.family !== first.family) return { [first.family]: first, [second.family]: second };
  const text = quote((value as readonly unknown[])[1]);
  const reason = `${text} is a second IPv${first.family} address; at most one for each family is allowed`;
  return refuse(report, `${field}[1]`, reason);
};

const addressFrom = object(
  {
    nodeAnnotation: optional(annotationKey),
    nodeAddressType: optional(oneOf('InternalIP', 'ExternalIP')),
  },
  'refuse',
  exactlyOne(['nodeAnnotation', 'nodeAddressType']),
);

export const snatSource: Reader<SnatSource> = mapped(
  object(
    { addresses: optional(addresses), addressFrom: optional(addressFrom) },
    'refuse',
    exactlyOne(['addresses', 'addressFrom']),
  ),
  // Exactly one member is there, and exactly one in addressFrom, which is what the union says.
  ({ addresses, addressFrom }) => (isObject(addressFrom) ? addressFrom : { addresses }) as SnatSource,
);
