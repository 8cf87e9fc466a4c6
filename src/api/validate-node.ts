// Kubernetes' Node: labels to select by, annotations and addresses to leave with.
import { parseAddress } from '../cidr/address.ts';
import { defaulted, isObject, mapped, nullable, object, own, required } from './fields.ts';
import type { ClusterNode, Validated } from './model.ts';
import { identity, metadata } from './object.ts';
import { quote, type Reader, refuse, validated } from './report.ts';

type Addresses = ClusterNode['addresses'];

/** InternalIP and ExternalIP of both families; host names are passed over, what cannot be read is left out and said. */
const addresses: Reader<Addresses> = (value, field, report) => {
  if (!Array.isArray(value)) return refuse(report, field, `${quote(value)} is not a list`);
  return value.flatMap((item: unknown, index): Addresses => {
    const type = isObject(item) ? own(item, 'type') : undefined;
    if (!isObject(item) || (type !== 'InternalIP' && type !== 'ExternalIP')) return [];
    const text = own(item, 'address') ?? null;
    const parsed = parseAddress(text);
    if (parsed.ok) return [{ type, address: parsed.value }];
    report.warnings.push({
      field: `${field}[${index}].address`,
      reason: `${quote(text)} ${parsed.reason}; it is left out`,
    });
    return [];
  });
};

const node: Reader<ClusterNode> = mapped(
  object(
    {
      ...identity('Node', 'v1'),
      metadata: required(metadata),
      status: nullable(object({ addresses: defaulted(addresses, []) }, 'ignore')),
    },
    'ignore',
  ),
  ({ metadata: { name, labels, annotations }, status }) => ({
    name,
    labels,
    annotations,
    addresses: status?.addresses ?? [],
  }),
);

/** Reads a Node from any JSON value; one that has no addresses yet is read as that. Never throws. */
export const readNode = (object: unknown): Validated<ClusterNode> => validated(node, object);
