// Made from crds/natoutgoing.io_masqnodes.yaml by scripts/generate.mjs; do not edit.

export interface MasqNodeSpec {
  /**
   * Name of the MasqPlan.
   */
  plan: string;
  /**
   * The node's own values that the plan refers to: annotation:KEY or address:TYPE, with at most one address for each family.
   */
  addresses?: {
    [k: string]: {
      ipv4?: string;
      ipv6?: string;
    };
  };
}

/**
 * Written on change, and otherwise seldom.
 */
export interface MasqNodeStatus {
  observedGeneration?: number;
  /**
   * Name of the plan that is in the kernel.
   */
  plan?: string;
  /**
   * metadata.generation of its first part.
   */
  planGeneration?: number;
  /**
   * As the plan's.
   */
  contentHash?: string;
  /**
   * Which iptables is used.
   */
  backend?: 'legacy' | 'nft';
  families?: {
    ipv4?: {
      state: 'Programmed' | 'Failed' | 'Pending' | 'Unavailable';
      /**
       * The last error, while it lasts.
       */
      error?: string;
      sets?: number;
      entries?: number;
      rules?: number;
      /**
       * Place of our jump in nat POSTROUTING, from 1.
       */
      jumpPosition?: number;
      /**
       * Rules of others that are asked before ours and may decide about pod traffic, wherever they stand; a few, not all.
       */
      foreignRules?: string[];
    };
    ipv6?: {
      state: 'Programmed' | 'Failed' | 'Pending' | 'Unavailable';
      /**
       * The last error, while it lasts.
       */
      error?: string;
      sets?: number;
      entries?: number;
      rules?: number;
      /**
       * Place of our jump in nat POSTROUTING, from 1.
       */
      jumpPosition?: number;
      /**
       * Rules of others that are asked before ours and may decide about pod traffic, wherever they stand; a few, not all.
       */
      foreignRules?: string[];
    };
  };
  lastAppliedTime?: string;
  lastVerifiedTime?: string;
  /**
   * How often something was mended that others had changed, since the applier started.
   */
  driftRepairs?: number;
  /**
   * Ready, Contended, Overruled and BackendMismatch.
   */
  conditions?: {
    type: string;
    status: 'True' | 'False' | 'Unknown';
    observedGeneration?: number;
    lastTransitionTime: string;
    reason: string;
    message: string;
  }[];
}
