// Made from crds/natoutgoing.io_masqplans.yaml by scripts/generate.mjs; do not edit.

export interface MasqPlanSpec {
  /**
   * Version of the meaning of this object; an applier leaves what it does not know alone.
   */
  schemaVersion: number;
  /**
   * Name of the plan, the same in all of its parts; the first part is named so.
   */
  plan: string;
  /**
   * Number of this part, from 0.
   */
  part: number;
  /**
   * How many parts there are.
   */
  of: number;
  /**
   * Of the whole plan. In the first part only; parts that together do not have it are ignored.
   */
  contentHash?: string;
  /**
   * This part's share of the sets; the entries of one set may be dealt to several parts.
   */
  sets: {
    /**
     * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
     */
    id: string;
    /**
     * Networks, canonical; one with ! in front is taken out of the shorter one around it.
     */
    ipv4?: string[];
    /**
     * As ipv4.
     */
    ipv6?: string[];
  }[];
  /**
   * In the order in which they are asked. In the first part only.
   */
  policies?: {
    name: string;
    /**
     * Count, but do not act.
     */
    dryRun: boolean;
    /**
     * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
     */
    source: string;
    /**
     * In the order in which they are asked.
     */
    rules: {
      name: string;
      /**
       * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
       */
      to?: string;
      ports?: {
        protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP';
        port?: number;
        endPort?: number;
      }[];
      outInterfaces?: string[];
      action: 'Masquerade' | 'SNAT' | 'Preserve' | 'Continue';
      /**
       * Addresses, or the name of a value in the spec.addresses of each MasqNode.
       */
      snat?: {
        /**
         * At most one for each family.
         */
        addresses?: {
          ipv4?: string;
          ipv6?: string;
        };
        nodeValue?: string;
      };
      portRange?: {
        start: number;
        end: number;
      };
      portAllocation: 'FullyRandom' | 'Random' | 'KeepIfPossible';
    }[];
    defaultAction: 'Continue' | 'Masquerade' | 'Preserve';
    connectionPolicy: 'Keep' | 'FlushChanged';
  }[];
  /**
   * What natOutgoing of the IPPools asks for. In the first part only.
   */
  poolDefault?: {
    /**
     * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
     */
    source: string;
    /**
     * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
     */
    spared: string;
    /**
     * Id of a set; it becomes part of an ipset's name, which holds 31 characters.
     */
    sparedNodes?: string;
    outInterface?: string;
    portRange?: {
      start: number;
      end: number;
    };
    /**
     * At most one for each family.
     */
    addresses: {
      ipv4?: string;
      ipv6?: string;
    };
    portAllocation: 'FullyRandom' | 'Random' | 'KeepIfPossible';
  };
  /**
   * The mark bit by which kube-proxy asks for masquerade. In the first part only.
   */
  kubeMark?: number;
  /**
   * Tunnels whose host traffic is given the tunnel's address. In the first part only.
   */
  tunnelInterfaces?: string[];
}
