// How a MasqPolicy chooses addresses: ranges, pools, network sets and scopes to match, and one to leave with.
import type { Address } from '../cidr/address.ts';
import { type Cidr, containsCidr, formatCidr, parseCidr, sameCidr } from '../cidr/cidr.ts';
import {
  defaulted,
  exactlyOne,
  isObject,
  list,
  mapped,
  object,
  oneOf,
  optional,
  own,
  required,
} from './fields.ts';
import type {
  Destination,
  IpBlock,
  NetworkSetSelection,
  PerFamily,
  PolicySource,
  PoolSelection,
  SnatSource,
} from './model.ts';
import { quote, type Reader, type Report, refuse } from './report.ts';
import { labelSelector, names } from './selector.ts';
import { annotationKey, cidr, sourceAddress } from './values.ts';

/** The limits of the CRD: with them the API server's estimate of the cost of its CEL rules stays in its budget. */
const MAX_EXCEPTIONS = 16;
const MAX_BLOCKS = 64;

/** Every exception must lie inside. One that is all of the block is allowed, and said: the block is then empty. */
function exceptionsInside(block: Cidr, except: unknown, field: string, report: Report): void {
  if (!Array.isArray(except)) return;
  except.forEach((text: unknown, index) => {
    const parsed = parseCidr(text);
    if (!parsed.ok) return;
    const at = `${field}[${index}]`;
    if (!containsCidr(block, parsed.value)) {
      refuse(report, at, `${quote(text)} is not inside ${formatCidr(block)}`);
    } else if (sameCidr(block, parsed.value)) {
      report.warnings.push({
        field: at,
        reason: `${quote(text)} is all of cidr, so that the block is empty`,
      });
    }
  });
}

const ipBlock: Reader<IpBlock> = mapped(
  object(
    { cidr: required(cidr), except: optional(list(cidr, MAX_EXCEPTIONS)) },
    'refuse',
    (read, raw, field, report) => {
      if (read.cidr !== undefined) exceptionsInside(read.cidr, own(raw, 'except'), `${field}.except`, report);
    },
  ),
  ({ cidr, except }) => ({ cidr, except: except ?? [] }),
);

const poolSelection: Reader<PoolSelection> = object(
  {
    names: optional(names),
    selector: optional(labelSelector),
    natOutgoing: defaulted(oneOf('Any', 'Enabled', 'Disabled'), 'Any'),
  },
  'refuse',
);

const networkSetSelection: Reader<NetworkSetSelection> = object(
  { names: optional(names), selector: optional(labelSelector) },
  'refuse',
);

export const policySource: Reader<PolicySource> = object(
  { ipPools: optional(poolSelection), ipBlocks: optional(list(ipBlock, MAX_BLOCKS)) },
  'refuse',
  (_read, raw, field, report) => {
    if (own(raw, 'ipPools') !== undefined || own(raw, 'ipBlocks') !== undefined) return;
    refuse(report, field, 'at least one of ipPools and ipBlocks is required');
  },
);

export const destination: Reader<Destination> = mapped(
  object(
    {
      ipBlock: optional(ipBlock),
      ipPools: optional(poolSelection),
      networkSets: optional(networkSetSelection),
      scope: optional(oneOf('ClusterPods', 'Nodes', 'LinkLocal', 'Multicast', 'PrivateUse', 'Reserved')),
    },
    'refuse',
    exactlyOne(['ipBlock', 'ipPools', 'networkSets', 'scope']),
  ),
  // Exactly one member is there, which is what the union says.
  read => read as Destination,
);

const addressList = list(sourceAddress, 2);

/** At most one address for each family: a second would make the choice a matter of order. */
const snatAddresses: Reader<PerFamily<Address>> = (value, field, report) => {
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
    { addresses: optional(snatAddresses), addressFrom: optional(addressFrom) },
    'refuse',
    exactlyOne(['addresses', 'addressFrom']),
  ),
  // Exactly one member is there, and exactly one in addressFrom, which is what the union says.
  ({ addresses, addressFrom }) => (isObject(addressFrom) ? addressFrom : { addresses }) as SnatSource,
);
