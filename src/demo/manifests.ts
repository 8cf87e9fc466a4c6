// The demo's cluster: Calico pools, a node and policies, as a user would write them. They are text here and not files
// beside the program, so that the demo runs from the one-file bundle.

export interface Manifest {
  /** File name. */
  readonly name: string;
  readonly text: string;
}

const pool = (name: string, cidr: string, natOutgoing: boolean): string =>
  `apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: ${name}}
spec: {cidr: "${cidr}", natOutgoing: ${natOutgoing}, ipipMode: Never, vxlanMode: Never}
`;

const POOLS = [
  pool('nat-v4', '10.244.0.0/16', true),
  pool('nat-v6', 'fd00:244::/48', true),
  pool('plain-v4', '10.245.0.0/16', false),
  pool('plain-v6', 'fd00:245::/48', false),
].join('---\n');

const NODE = `apiVersion: v1
kind: Node
metadata:
  name: demo-node
  labels: {kubernetes.io/hostname: demo-node}
status:
  addresses:
  - {type: InternalIP, address: 192.168.50.10}
  - {type: InternalIP, address: "2001:db8:50::10"}
  - {type: Hostname, address: demo-node}
`;

const DATACENTRE = `# Hosts of the datacentre route pods' addresses: they shall see them. One old network there does not.
apiVersion: natoutgoing.io/v1alpha1
kind: MasqPolicy
metadata: {name: datacentre}
spec:
  priority: 100
  source:
    ipPools: {natOutgoing: Enabled}
  rules:
  - name: keep-pod-address
    to:
    - ipBlock: {cidr: 172.16.0.0/12, except: [172.16.9.0/24]}
    - ipBlock: {cidr: "fd00:dc::/32", except: ["fd00:dc:9::/48"]}
    action: Preserve
`;

const BANK = `# The bank lets one address of ours in, by TCP and UDP 443.
apiVersion: natoutgoing.io/v1alpha1
kind: MasqPolicy
metadata: {name: bank}
spec:
  priority: 200
  source:
    ipPools: {names: [nat-v4, nat-v6]}
  rules:
  - name: settlement
    to:
    - ipBlock: {cidr: 203.0.113.0/24}
    - ipBlock: {cidr: "2001:db8:ba::/48"}
    ports:
    - {protocol: TCP, port: 443}
    - {protocol: UDP, port: 443}
    action: SNAT
    snat: {addresses: [198.51.100.7, "2001:db8:51::7"]}
    portRange: {start: 20000, end: 29999}
`;

const APPLIANCE = `# An appliance lives in a pool's range but is no pod and has no route to pods: the pool alone would spare it.
apiVersion: natoutgoing.io/v1alpha1
kind: MasqPolicy
metadata: {name: appliance}
spec:
  priority: 300
  source:
    ipPools: {natOutgoing: Enabled}
  rules:
  - name: no-route-to-pods
    to:
    - ipBlock: {cidr: 10.245.7.0/24}
    - ipBlock: {cidr: "fd00:245:0:7::/64"}
    action: Masquerade
`;

const LEASED_LINE = `# Whatever leaves by the second uplink keeps the pod's address.
apiVersion: natoutgoing.io/v1alpha1
kind: MasqPolicy
metadata: {name: leased-line}
spec:
  priority: 400
  source:
    ipBlocks:
    - {cidr: 10.244.0.0/16}
    - {cidr: "fd00:244::/48"}
  rules:
  - name: second-uplink
    outInterfaces: [eth1]
    action: Preserve
`;

const PREVIEW = `# Not yet in force: DryRun counts and changes nothing.
apiVersion: natoutgoing.io/v1alpha1
kind: MasqPolicy
metadata: {name: preview}
spec:
  priority: 50
  enforcementMode: DryRun
  source:
    ipPools: {natOutgoing: Disabled}
  rules:
  - name: masquerade-all
    action: Masquerade
`;

export const DEMO_MANIFESTS: readonly Manifest[] = [
  { name: 'ippools.yaml', text: POOLS },
  { name: 'node.yaml', text: NODE },
  { name: 'datacentre.yaml', text: DATACENTRE },
  { name: 'bank.yaml', text: BANK },
  { name: 'appliance.yaml', text: APPLIANCE },
  { name: 'leased-line.yaml', text: LEASED_LINE },
  { name: 'preview.yaml', text: PREVIEW },
];

/** The name of the Node in the manifests. */
export const DEMO_NODE = 'demo-node';
