// What validation makes of Kubernetes objects: defaults applied, every CIDR and address parsed to numbers, nothing
// left to check. The planner reads only these; raw objects end in this folder.
import type { Address, Family } from '../cidr/address.ts';
import type { Cidr } from '../cidr/cidr.ts';

/** One thing wrong with one object. `field` is a path such as spec.rules[2].to[0].ipBlock.cidr. */
export interface Fault {
  readonly field: string;
  /** A sentence part that names the value and says what is expected. */
  readonly reason: string;
}

/** Every fault of the object at once; `warnings` are about values that are read in a way the author may not expect. */
export type Validated<T> =
  | { readonly ok: true; readonly value: T; readonly warnings: readonly Fault[] }
  | { readonly ok: false; readonly faults: readonly Fault[]; readonly warnings: readonly Fault[] };

export interface LabelSelector {
  readonly matchLabels?: Readonly<Record<string, string>>;
  readonly matchExpressions?: readonly LabelRequirement[];
}

export interface LabelRequirement {
  readonly key: string;
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
  readonly values?: readonly string[];
}

/** Calico's IPPool, as far as it decides about addresses (disabled, its selectors and status have no say, as in Felix). */
export interface IpPool {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly cidr: Cidr;
  readonly natOutgoing: boolean;
  /** allowedUses is exactly [LoadBalancer]: not a destination to be spared from masquerade. */
  readonly loadBalancerOnly: boolean;
}

/** Calico's GlobalNetworkSet. */
export interface NetworkSet {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly nets: readonly Cidr[];
}

export type NodeAddressType = 'InternalIP' | 'ExternalIP';

export interface ClusterNode {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** In the order of status.addresses; types other than these two (host names) are left out. */
  readonly addresses: readonly { readonly type: NodeAddressType; readonly address: Address }[];
}

/** The options of the pool default that Calico's users set in FelixConfiguration; absent fields were not set. */
export interface FelixConfig {
  /** `default` or `node.NAME`. */
  readonly name: string;
  readonly natOutgoingAddress?: Address;
  readonly natPortRange?: PortRange;
  readonly natOutgoingExclusions?: 'IPPoolsOnly' | 'IPPoolsAndHostIPs';
  readonly natOutgoingInterface?: string;
  readonly chainInsertMode?: 'Insert' | 'Append';
  readonly iptablesBackend?: 'Legacy' | 'NFT' | 'Auto';
  readonly nftablesMode?: 'Enabled' | 'Disabled' | 'Auto';
  readonly bpfEnabled?: boolean;
}

export interface PortRange {
  readonly start: number;
  readonly end: number;
}

export type EnforcementMode = 'Enforce' | 'DryRun' | 'Disabled';
export type RuleAction = 'Masquerade' | 'SNAT' | 'Preserve' | 'Continue';
export type DefaultAction = 'Continue' | 'Masquerade' | 'Preserve';
export type PortAllocation = 'FullyRandom' | 'Random' | 'KeepIfPossible';
export type ConnectionPolicy = 'Keep' | 'FlushChanged';
export type Protocol = 'TCP' | 'UDP' | 'SCTP' | 'ICMP';
export type Scope = 'ClusterPods' | 'Nodes' | 'LinkLocal' | 'Multicast' | 'PrivateUse' | 'Reserved';

export interface MasqPolicy {
  readonly name: string;
  readonly generation?: number;
  /** RFC 3339; orders policies of one priority. */
  readonly creationTimestamp?: string;
  readonly spec: PolicySpec;
}

export interface PolicySpec {
  readonly priority: number;
  readonly enforcementMode: EnforcementMode;
  readonly nodeSelector?: LabelSelector;
  readonly source: PolicySource;
  readonly rules: readonly PolicyRule[];
  readonly defaultAction: DefaultAction;
  readonly connectionPolicy: ConnectionPolicy;
}

/** The union of the two lists; validation sees to it that one is there. */
export interface PolicySource {
  readonly ipPools?: PoolSelection;
  readonly ipBlocks?: readonly IpBlock[];
}

/** Pools that have one of the names and match the selector and the natOutgoing filter; an absent part allows all. */
export interface PoolSelection {
  readonly names?: readonly string[];
  readonly selector?: LabelSelector;
  readonly natOutgoing: 'Any' | 'Enabled' | 'Disabled';
}

export interface NetworkSetSelection {
  readonly names?: readonly string[];
  readonly selector?: LabelSelector;
}

export interface IpBlock {
  readonly cidr: Cidr;
  readonly except: readonly Cidr[];
}

export type Destination =
  | { readonly ipBlock: IpBlock }
  | { readonly ipPools: PoolSelection }
  | { readonly networkSets: NetworkSetSelection }
  | { readonly scope: Scope };

export interface PortMatch {
  readonly protocol: Protocol;
  /** Absent: every port. */
  readonly port?: number;
  /** At least port; equal to port when one port is meant. Present exactly when port is. */
  readonly endPort?: number;
}

export interface PolicyRule {
  readonly name: string;
  /** Absent: any destination. */
  readonly to?: readonly Destination[];
  readonly ports?: readonly PortMatch[];
  /** Names, or prefixes with a trailing +. */
  readonly outInterfaces?: readonly string[];
  readonly action: RuleAction;
  /** Present exactly when action is SNAT. */
  readonly snat?: SnatSource;
  readonly portRange?: PortRange;
  readonly portAllocation: PortAllocation;
}

export type PerFamily<T> = { readonly [F in Family]?: T };

export type SnatSource =
  | { readonly addresses: PerFamily<Address> }
  | { readonly nodeAnnotation: string }
  | { readonly nodeAddressType: NodeAddressType };

/** Everything that the planner looks at. */
export interface Snapshot {
  readonly pools: readonly IpPool[];
  readonly networkSets: readonly NetworkSet[];
  readonly nodes: readonly ClusterNode[];
  readonly policies: readonly MasqPolicy[];
  readonly felixConfigs: readonly FelixConfig[];
}
