// Every name that we give to something in the kernel. Ownership is a contract: what carries one of these prefixes is
// ours and may be changed or removed by us; nothing else ever is. Felix claims cali-, cali4 and cali6, and deletes
// what it finds there, so none of our names may start so.
import type { Family } from '../cidr/address.ts';
import { shortHash } from '../planner/ids.ts';

export const CHAIN_PREFIX = 'masq-';
export const TOP_CHAIN = 'masq-POSTROUTING';
export const NAT_OUTGOING_CHAIN = 'masq-nat-outgoing';

export const setPrefix = (family: Family): string => `masq${family}-`;

/** Starts the comment of every rule of ours. */
export const COMMENT_PREFIX = 'natoutgoing:';

/** The kernel's name of a plan's set. Ids are made by the planner and at most 20 characters long. */
export const setName = (family: Family, id: string): string => `${setPrefix(family)}${id}`;

/** The set in which new content is built before it takes the place of `name`; ipset takes 31 characters. */
export const temporarySetName = (name: string): string => `${name.slice(0, 6)}tmp-${name.slice(6)}`;

export const isOwnSet = (name: string, family: Family): boolean => name.startsWith(setPrefix(family));

export const isOwnChain = (name: string): boolean => name.startsWith(CHAIN_PREFIX);

/** Room for a name behind a prefix of seven characters: iptables takes 28 for a chain. */
const PLAIN_POLICY = /^[a-z0-9-]{1,21}$/;

/** The chain of a policy: by its name where that fits, else by a hash of it (never cut: cut names collide). */
export const policyChainName = (policy: string): string =>
  PLAIN_POLICY.test(policy) ? `${CHAIN_PREFIX}p-${policy}` : `${CHAIN_PREFIX}h-${shortHash(policy, 16)}`;

export const guardChainName = (hash: string): string => `${CHAIN_PREFIX}g-${hash}`;
