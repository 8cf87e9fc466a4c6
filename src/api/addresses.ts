// How a MasqPolicy chooses addresses: ranges, pools, network sets and scopes.
import { type Cidr, containsCidr, formatCidr, parseCidr, sameCidr } from '../cidr/cidr.ts';
import { defaulted, exactlyOne, list, mapped, object, oneOf, optional, own, required } from './fields.ts';
import type { Destination, IpBlock, NetworkSetSelection, PolicySource, PoolSelection } from './model.ts';
import { quote, type Reader, type Report, refuse } from './report.ts';
import { labelSelector, names } from './selector.ts';
import { cidr } from './values.ts';

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
