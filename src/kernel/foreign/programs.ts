// Whose rule it is, by the names that programs give to their chains, tables and comments. For people only: nothing is
// decided by it.

/** Against the names of chains, the innermost first, and then of the table. The first that fits counts. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^KUBE-(ROUTER|NWPLCY|POD-FW)/, 'kube-router'],
  [/^KUBE-|^kube-proxy$/, 'kube-proxy'],
  [/^(nat-)?cali-|^calico$/, "Calico's Felix"],
  [/^IP-MASQ(-AGENT)?$/, 'ip-masq-agent'],
  [/^FLANNEL-/, 'flannel'],
  [/^DOCKER/, 'Docker'],
  [/^ts-/, 'Tailscale'],
  [/^(nat_)?POST_|^(nat_)?POSTROUTING_|^firewalld$/, 'firewalld'],
  [/^CNI-HOSTPORT-|^CNI-DN-|^CNI-SN-/, 'the portmap plugin of CNI'],
  [/^CNI-/, 'a CNI plugin with ipMasq (bridge or ptp)'],
  [/^(OLD_)?CILIUM_/, 'Cilium'],
  [/^ANTREA-/, 'Antrea'],
  [/^LIBVIRT_/, 'libvirt'],
  [/^WEAVE/, 'Weave Net'],
  [/^OVN-KUBE-/, 'OVN-Kubernetes'],
  [/^AWS-/, 'the Amazon VPC CNI'],
  [/^NETAVARK|^netavark$/, 'Podman'],
  [/^ufw/, 'ufw'],
];

/** Against a rule's text, for those that stand in POSTROUTING without a chain of their own. */
const TEXTS: readonly (readonly [RegExp, string])[] = [
  [/--comment "?cali:/, "Calico's Felix"],
  [/--comment "?flanneld masq/, 'flannel'],
  [/--comment "kubenet:/, 'kubelet (kubenet)'],
  [/generated for (LXD|Incus) network/, 'LXD or Incus'],
  [
    /! -o (docker0|br-[0-9a-f]{12}) .*-j MASQUERADE|oifname != "?(docker0|br-[0-9a-f]{12})\b.*masquerade/,
    'Docker',
  ],
];

/** The program that a rule is from, where it can be told. `chains` is the way to it, the table's name first. */
export function programOf(chains: readonly string[], text: string): string | undefined {
  for (const name of chains.toReversed()) {
    const known = NAMES.find(([pattern]) => pattern.test(name));
    if (known !== undefined) return known[1];
  }
  return TEXTS.find(([pattern]) => pattern.test(text))?.[1];
}
