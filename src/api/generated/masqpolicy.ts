// Made from crds/natoutgoing.io_masqpolicies.yaml by scripts/generate.mjs; do not edit.

/**
 * What shall hold.
 */
export interface MasqPolicySpec {
  /**
   * Policies are asked from low to high; of equal ones the older, then the name, comes first.
   */
  priority?: number;
  /**
   * Enforce acts, DryRun only counts what would have matched, Disabled does neither.
   */
  enforcementMode?: 'Enforce' | 'DryRun' | 'Disabled';
  /**
   * Labels that an object must have. Empty selects every object.
   */
  nodeSelector?: {
    /**
     * Each label must be there with exactly this value.
     */
    matchLabels?: {
      [k: string]: string;
    };
    /**
     * Each requirement must hold.
     */
    matchExpressions?: {
      /**
       * The label's key.
       */
      key: string;
      /**
       * How the label is judged.
       */
      operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
      /**
       * With In and NotIn only, and then required.
       */
      values?: string[];
    }[];
  };
  /**
   * Which pod addresses the policy is about, as the union of both lists; one must be there.
   */
  source: {
    /**
     * IPPools that have one of the names and match the selector and natOutgoing; a part that is absent allows all. An address belongs to the pool with the longest prefix.
     */
    ipPools?: {
      /**
       * Names of objects.
       */
      names?: string[];
      /**
       * Labels that an object must have. Empty selects every object.
       */
      selector?: {
        /**
         * Each label must be there with exactly this value.
         */
        matchLabels?: {
          [k: string]: string;
        };
        /**
         * Each requirement must hold.
         */
        matchExpressions?: {
          /**
           * The label's key.
           */
          key: string;
          /**
           * How the label is judged.
           */
          operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
          /**
           * With In and NotIn only, and then required.
           */
          values?: string[];
        }[];
      };
      /**
       * Any pool, those with spec.natOutgoing true, or those without.
       */
      natOutgoing?: 'Any' | 'Enabled' | 'Disabled';
    };
    /**
     * Address ranges.
     *
     * Items: A range of addresses, without its exceptions.
     */
    ipBlocks?: {
      /**
       * An aligned network such as 10.0.0.0/8 or fd00::/8.
       */
      cidr: string;
      /**
       * Networks inside cidr that are left out.
       *
       * Items: An aligned network such as 10.0.0.0/8 or fd00::/8.
       */
      except?: string[];
    }[];
  };
  /**
   * Asked in order; the first that matches a connection decides.
   */
  rules: {
    /**
     * Unique in the policy; a DNS label.
     */
    name: string;
    /**
     * Destinations, after a Service's translation, as a union. Absent means any.
     *
     * Items: Exactly one of the fields.
     */
    to?: {
      /**
       * A range of addresses, without its exceptions.
       */
      ipBlock?: {
        /**
         * An aligned network such as 10.0.0.0/8 or fd00::/8.
         */
        cidr: string;
        /**
         * Networks inside cidr that are left out.
         *
         * Items: An aligned network such as 10.0.0.0/8 or fd00::/8.
         */
        except?: string[];
      };
      /**
       * IPPools that have one of the names and match the selector and natOutgoing; a part that is absent allows all. An address belongs to the pool with the longest prefix.
       */
      ipPools?: {
        /**
         * Names of objects.
         */
        names?: string[];
        /**
         * Labels that an object must have. Empty selects every object.
         */
        selector?: {
          /**
           * Each label must be there with exactly this value.
           */
          matchLabels?: {
            [k: string]: string;
          };
          /**
           * Each requirement must hold.
           */
          matchExpressions?: {
            /**
             * The label's key.
             */
            key: string;
            /**
             * How the label is judged.
             */
            operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
            /**
             * With In and NotIn only, and then required.
             */
            values?: string[];
          }[];
        };
        /**
         * Any pool, those with spec.natOutgoing true, or those without.
         */
        natOutgoing?: 'Any' | 'Enabled' | 'Disabled';
      };
      /**
       * Calico's GlobalNetworkSets that have one of the names and match the selector; a part that is absent allows all.
       */
      networkSets?: {
        /**
         * Names of objects.
         */
        names?: string[];
        /**
         * Labels that an object must have. Empty selects every object.
         */
        selector?: {
          /**
           * Each label must be there with exactly this value.
           */
          matchLabels?: {
            [k: string]: string;
          };
          /**
           * Each requirement must hold.
           */
          matchExpressions?: {
            /**
             * The label's key.
             */
            key: string;
            /**
             * How the label is judged.
             */
            operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
            /**
             * With In and NotIn only, and then required.
             */
            values?: string[];
          }[];
        };
      };
      /**
       * A set that is kept by us: addresses of IPPools, of Nodes, link-local, multicast, private (RFC 1918, RFC 4193) or all reserved ranges that ip-masq-agent exempts.
       */
      scope?: 'ClusterPods' | 'Nodes' | 'LinkLocal' | 'Multicast' | 'PrivateUse' | 'Reserved';
    }[];
    /**
     * Protocols and destination ports, after a Service's translation. Absent means any.
     */
    ports?: {
      /**
       * ICMP stands for ICMPv6 where the packet is IPv6.
       */
      protocol: 'TCP' | 'UDP' | 'SCTP' | 'ICMP';
      /**
       * First or only port. Absent means every port.
       */
      port?: number;
      /**
       * Last port of a range that starts with port.
       */
      endPort?: number;
    }[];
    /**
     * Interfaces by which the packet leaves; a trailing + stands for any rest. Absent means any.
     */
    outInterfaces?: string[];
    /**
     * Masquerade: the node's address. SNAT: a chosen address. Preserve: the pod's own. Continue: go on with the next policy.
     */
    action: 'Masquerade' | 'SNAT' | 'Preserve' | 'Continue';
    /**
     * The address to leave with; exactly one of the fields, and exactly with action SNAT.
     */
    snat?: {
      /**
       * At most one for each family. A family without one is not matched by the rule.
       */
      addresses?: string[];
      /**
       * Each node's own address, from its Node object; exactly one of the fields.
       */
      addressFrom?: {
        /**
         * Key of an annotation that holds an address, or one for each family with a comma.
         */
        nodeAnnotation?: string;
        /**
         * The first address of this type for each family.
         */
        nodeAddressType?: 'InternalIP' | 'ExternalIP';
      };
    };
    /**
     * Source ports to choose from; with Masquerade and SNAT only.
     */
    portRange?: {
      start: number;
      end: number;
    };
    /**
     * How source ports are chosen: FullyRandom avoids clashes of concurrent connections, KeepIfPossible keeps the pod's port while it is free.
     */
    portAllocation?: 'FullyRandom' | 'Random' | 'KeepIfPossible';
  }[];
  /**
   * What happens to connections of the source that no rule matches.
   */
  defaultAction?: 'Continue' | 'Masquerade' | 'Preserve';
  /**
   * Keep leaves living connections as they are when the policy changes; FlushChanged makes the kernel forget exactly those whose verdict changed.
   */
  connectionPolicy?: 'Keep' | 'FlushChanged';
}

/**
 * What the operator found.
 */
export interface MasqPolicyStatus {
  observedGeneration?: number;
  /**
   * Accepted, ResolvedRefs, Programmed, Conflicted and Degraded.
   */
  conditions?: {
    type: string;
    status: 'True' | 'False' | 'Unknown';
    observedGeneration?: number;
    lastTransitionTime: string;
    reason: string;
    message: string;
  }[];
  nodes?: {
    desired?: number;
    programmed?: number;
    failed?: number;
    /**
     * programmed/desired in one text, since a printer column cannot join two fields.
     */
    summary?: string;
  };
  /**
   * A few of the nodes that could not do it, not all.
   */
  failedNodes?: {
    name: string;
    reason: string;
    message: string;
  }[];
  rules?: {
    name: string;
    /**
     * Names the rule in counters and in the comments of iptables rules.
     */
    id?: string;
    /**
     * policy/rule that leaves this rule nothing to match.
     */
    shadowedBy?: string;
  }[];
  /**
   * How much the selections stand for at present.
   */
  resolved?: {
    ipPools?: number;
    ipv4CIDRs?: number;
    ipv6CIDRs?: number;
  };
}
