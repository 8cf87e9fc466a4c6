// Whose rule it is, by the names that programs give to their chains, tables and comments. For people only: nothing is
// decided by it.

export const FELIX = "Calico's Felix";

/** Against the names of chains, the innermost first, and then of the table. The first that fits counts. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^KUBE-(ROUTER|NWPLCY|POD-FW)/, 'kube-router'],
  [/^KUBE-|^kube-proxy$/, 'kube-proxy'],
  [/^(nat-)?cali-|^calico$/, FELIX],
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
  [/--comment "?cali:/, FELIX],
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

/** The same of a printed rule of POSTROUTING, by the chain that it leads to. */
export function programOfRule(text: string): string | undefined {
  const target = / -[jg] (\S+)/.exec(text)?.[1];
  return programOf(target === undefined ? [] : [target], text);
}

/** What makes a program leave pods alone. */
const REMEDIES: ReadonlyMap<string, string> = new Map([
  [
    FELIX,
    'set chainInsertMode: Append in the FelixConfiguration, or natOutgoing: false on the IPPools that policies are about',
  ],
  ['ip-masq-agent', 'delete its DaemonSet, and its chain and the jump to it on every node'],
  ['kube-router', 'run kube-router with --enable-pod-egress=false'],
  ['flannel', 'run flanneld without --ip-masq'],
  ['Docker', 'set "ip-masq": false for the network of Docker that holds pod addresses'],
  ['Tailscale', 'run tailscale set --snat-subnet-routes=false'],
  ['firewalld', 'take masquerade off the zone: firewall-cmd --permanent --zone=ZONE --remove-masquerade'],
  ['a CNI plugin with ipMasq (bridge or ptp)', 'set "ipMasq": false in the configuration of the CNI plugin'],
  ['Cilium', 'set enableIPv4Masquerade and enableIPv6Masquerade of Cilium to false'],
  ['Antrea', "set noSNAT: true in the Antrea agent's configuration"],
  ['the Amazon VPC CNI', 'set AWS_VPC_K8S_CNI_EXTERNALSNAT=true for aws-node'],
]);

/** A phrase: what to do so that rules of this program do not decide before ours. */
export const remedyFor = (program: string | undefined): string =>
  (program === undefined ? undefined : REMEDIES.get(program)) ??
  `remove or narrow ${program === undefined ? 'the rule' : `the rule of ${program}`}, or have it match no address of a pod`;
