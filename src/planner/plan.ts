// The plan: what a group of nodes shall do with packets, as frozen data. It holds no ipset or iptables syntax, and
// nothing of one node's own but the names of values (NodeValues) that each node fills in.
import type { Address, Family } from '../cidr/address.ts';
import type { AddressSet } from '../cidr/address-set.ts';
import type {
  ConnectionPolicy,
  DefaultAction,
  PerFamily,
  PortAllocation,
  PortMatch,
  PortRange,
  RuleAction,
} from '../api/model.ts';

export interface Plan {
  /** In the order in which they are asked; Disabled ones are left out. */
  readonly policies: readonly PlanPolicy[];
  readonly poolDefault: PoolDefault;
  /** By id. One entry for each way of choosing addresses, however many rules choose that way. */
  readonly sets: ReadonlyMap<string, PlanSet>;
  readonly kubeMark: number;
  /** Interfaces of tunnels whose host traffic needs the tunnel's address. */
  readonly tunnelInterfaces: readonly string[];
}

/**
 * The addresses that one selection stands for. The id names the selection, not its content: content changes are
 * updates in place.
 */
export interface PlanSet {
  readonly id: string;
  readonly addresses: { readonly [F in Family]: AddressSet };
}

export interface PlanPolicy {
  readonly name: string;
  readonly dryRun: boolean;
  /** Set id. */
  readonly source: string;
  readonly rules: readonly PlanRule[];
  readonly defaultAction: DefaultAction;
  readonly connectionPolicy: ConnectionPolicy;
}

export interface PlanRule {
  readonly name: string;
  /** Set id; absent: any destination. */
  readonly to?: string;
  readonly ports?: readonly PortMatch[];
  readonly outInterfaces?: readonly string[];
  readonly action: RuleAction;
  /** Present exactly when action is SNAT. */
  readonly snat?: PlanSnat;
  readonly portRange?: PortRange;
  readonly portAllocation: PortAllocation;
}

/** `nodeValue` is a key of NodeValues. */
export type PlanSnat = { readonly addresses: PerFamily<Address> } | { readonly nodeValue: string };

/** Step 3 of `decide`: the pool default, with Felix's options. */
export interface PoolDefault {
  /** Set ids: pools with natOutgoing (source), pools that are spared (destination). */
  readonly source: string;
  readonly spared: string;
  /** Set id of the node addresses, when these are spared too. */
  readonly sparedNodes?: string;
  /** One interface or prefix with +. */
  readonly outInterface?: string;
  readonly portRange?: PortRange;
  /** Fixed address; a family without one is masqueraded. */
  readonly addresses: PerFamily<Address>;
  readonly portAllocation: PortAllocation;
}

/** The values of one node that a plan refers to: key (annotationValue or addressTypeValue) → addresses. */
export type NodeValues = ReadonlyMap<string, PerFamily<Address>>;

export const annotationValue = (key: string): string => `annotation:${key}`;
export const addressTypeValue = (type: string): string => `address:${type}`;
