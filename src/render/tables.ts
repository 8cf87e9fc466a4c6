// The wanted state of one family's part of the kernel, as data: what render/ makes and kernel/ puts into place.
import type { Family } from '../cidr/address.ts';

export interface FamilyTables {
  readonly family: Family;
  /** False: no rule of this family can ever translate, so a host that cannot hold the rules lacks nothing. */
  readonly needed: boolean;
  /** Sorted by name. Every set that a rule refers to is here. */
  readonly sets: readonly KernelSet[];
  /** Sorted by name. masq-POSTROUTING is always here. */
  readonly chains: readonly KernelChain[];
  /** The rule of nat POSTROUTING that leads to masq-POSTROUTING. */
  readonly jump: KernelRule;
}

export interface KernelSet {
  readonly name: string;
  /**
   * A guard holds at least the sources or destinations of the rules behind it. It may hold more at any time and no
   * packet is judged differently; it must never hold less.
   */
  readonly guard: boolean;
  /** Upper limit of entries, a function of their number alone, so that equal content gives equal sets. */
  readonly maxelem: number;
  /**
   * In compareCidrs order, as hash:net stores them (no /0). Entries that did not change between two renders are the
   * same objects, where the planner could keep them.
   */
  readonly entries: readonly KernelEntry[];
}

export interface KernelEntry {
  /** Canonical, always with its prefix. */
  readonly cidr: string;
  readonly nomatch: boolean;
}

export interface KernelChain {
  readonly name: string;
  readonly rules: readonly KernelRule[];
}

export interface KernelRule {
  /**
   * The arguments behind `-A CHAIN`, without the comment. A set's name stands alone in the argument after
   * --match-set; a chain's in the one after -j.
   */
  readonly args: readonly string[];
  /** What the rule is for, printable ASCII without quotes and backslashes; the hash is put before it. */
  readonly label: string;
  /** Of this rule and all before it in its chain: equal sequences of hashes mean equal chains. */
  readonly hash: string;
}
