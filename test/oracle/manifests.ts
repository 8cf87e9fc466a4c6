// A snapshot as the manifests that a user would have written: what a failing random case is printed as, so that
// `explain` can be run on it.
import type {
  ClusterNode,
  Destination,
  FelixConfig,
  IpBlock,
  MasqPolicy,
  PolicyRule,
  Snapshot,
  SnatSource,
} from '../../src/api/model.ts';
import { type Address, formatAddress } from '../../src/cidr/address.ts';
import { formatCidr } from '../../src/cidr/cidr.ts';

const CALICO = 'projectcalico.org/v3';

/** All objects of the snapshot as one list. */
export const manifestsOf = (snapshot: Snapshot): object => ({
  apiVersion: 'v1',
  kind: 'List',
  items: [
    ...snapshot.pools.map(pool => ({
      apiVersion: CALICO,
      kind: 'IPPool',
      metadata: { name: pool.name, labels: pool.labels },
      spec: {
        cidr: formatCidr(pool.cidr),
        natOutgoing: pool.natOutgoing,
        ...(pool.loadBalancerOnly ? { allowedUses: ['LoadBalancer'] } : {}),
      },
    })),
    ...snapshot.networkSets.map(set => ({
      apiVersion: CALICO,
      kind: 'GlobalNetworkSet',
      metadata: { name: set.name, labels: set.labels },
      spec: { nets: set.nets.map(formatCidr) },
    })),
    ...snapshot.nodes.map(nodeManifest),
    ...snapshot.felixConfigs.map(felixManifest),
    ...snapshot.policies.map(policyManifest),
  ],
});

const nodeManifest = (node: ClusterNode): object => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name: node.name, labels: node.labels, annotations: node.annotations },
  status: {
    addresses: node.addresses.map(({ type, address }) => ({ type, address: formatAddress(address) })),
  },
});

const felixManifest = (felix: FelixConfig): object => ({
  apiVersion: CALICO,
  kind: 'FelixConfiguration',
  metadata: { name: felix.name },
  spec: {
    natOutgoingAddress: felix.natOutgoingAddress && formatAddress(felix.natOutgoingAddress),
    natPortRange: felix.natPortRange && `${felix.natPortRange.start}:${felix.natPortRange.end}`,
    natOutgoingExclusions: felix.natOutgoingExclusions,
    iptablesNATOutgoingInterfaceFilter: felix.natOutgoingInterface,
  },
});

const policyManifest = ({ name, creationTimestamp, spec }: MasqPolicy): object => ({
  apiVersion: 'natoutgoing.io/v1alpha1',
  kind: 'MasqPolicy',
  metadata: { name, creationTimestamp },
  spec: {
    ...spec,
    source: { ...spec.source, ipBlocks: spec.source.ipBlocks?.map(blockManifest) },
    rules: spec.rules.map(ruleManifest),
  },
});

const ruleManifest = ({ to, snat, portAllocation, ...rule }: PolicyRule): object => ({
  ...rule,
  to: to?.map(destinationManifest),
  snat: snat && snatManifest(snat),
  ...(rule.action === 'Masquerade' || rule.action === 'SNAT' ? { portAllocation } : {}),
});

const destinationManifest = (to: Destination): object =>
  'ipBlock' in to ? { ipBlock: blockManifest(to.ipBlock) } : to;

const blockManifest = ({ cidr, except }: IpBlock): object => ({
  cidr: formatCidr(cidr),
  ...(except.length === 0 ? {} : { except: except.map(formatCidr) }),
});

function snatManifest(snat: SnatSource): object {
  if (!('addresses' in snat)) return { addressFrom: snat };
  const addresses = Object.values(snat.addresses as Readonly<Record<number, Address>>);
  return { addresses: addresses.map(formatAddress) };
}
