#!/bin/bash
# The first process of the cluster's namespaces: the network between the nodes, two hosts beyond it, the control plane,
# and the nodes, which are namespaces within these. One kill ends everything.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=$LAB/data keys=$LAB/data/keys
export PATH=$LAB/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset SSL_CERT_FILE SSL_CERT_DIR 2>/dev/null || true
. "$here/node.sh"
hostname control-plane

# --- mounts, seen by nobody else; the nodes start from a copy of them
mount -t sysfs sysfs /sys
mount_cgroups
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/netns /run/lock "$data"
# Disks of nodes and etcd, in memory: they are gone with the namespace.
mount -t tmpfs -o size=12g,mode=755 data "$data"
mkdir -p "$keys" "$data/log"

# --- network: br0 joins the nodes; `outside` is their router and a host, `far` a host behind it
ip link set lo up
ip link add br0 type bridge
for name in iptables ip6tables arptables; do echo 0 > "/proc/sys/net/bridge/bridge-nf-call-$name" 2>/dev/null || true; done
ip addr add 203.0.113.10/24 dev br0
ip addr add 2001:db8:1::10/64 dev br0 nodad
ip link set br0 up
ip route add default via 203.0.113.200
ip -6 route add default via 2001:db8:1::200
for name in outside far; do
  ip netns add $name
  ip -n $name link set lo up
done
ip link add outside type veth peer name eth0 netns outside
ip link set outside master br0 up
ip -n outside link add eth1 type veth peer name eth0 netns far
give() {
  ip -n "$1" addr add "$3" dev "$2"
  ip -n "$1" addr add "$4" dev "$2" nodad
  ip -n "$1" link set "$2" up
}
give outside eth0 203.0.113.200/24 2001:db8:1::200/64
give outside eth1 198.51.100.1/24 2001:db8:2::1/64
give far eth0 198.51.100.200/24 2001:db8:2::200/64
ip -n far route add default via 198.51.100.1
ip -n far -6 route add default via 2001:db8:2::1
ip netns exec outside sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
for n in $(seq "$NODES"); do
  # Pods' own addresses are answered too, so that a packet arrives whatever source it has.
  ip -n outside route add "10.244.$n.0/24" via "203.0.113.1$n"
  ip -n outside -6 route add "fd00:10:244:$n::/64" via "2001:db8:1::1$n"
done
ip netns exec far node "$here/hear.cjs" > "$LAB/heard" 2> "$data/log/far.log" &

# --- keys and tokens
cd "$keys"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=ca 2>/dev/null
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(echo "$3") 2>/dev/null
}
certificate apiserver /CN=kube-apiserver "subjectAltName=DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:203.0.113.10,IP:10.96.0.1"
certificate apiserver-kubelet /O=system:masters/CN=kubelet-client "extendedKeyUsage=clientAuth"
openssl genrsa -out sa.key 2048 2>/dev/null
account() {
  local token
  token=$(openssl rand -hex 16)
  echo "$token,$2,$1,\"${3:-}\"" >> tokens.csv
  sed -e "s#@CA@#$keys/ca.crt#" -e "s#@TOKEN@#$token#" "$here/kubeconfig.yaml" > "$data/$1.kubeconfig"
}
account admin admin system:masters
account controllers system:kube-controller-manager
account scheduler system:kube-scheduler
account proxy system:kube-proxy
for n in $(seq "$NODES"); do
  account "node-$n" "system:node:node-$n" system:nodes
  certificate "node-$n" "/CN=node-$n" "subjectAltName=DNS:node-$n,IP:203.0.113.1$n,IP:2001:db8:1::1$n"
done

# --- control plane
cd "$data"
export KUBECONFIG=$data/admin.kubeconfig
run() {
  local name=$1
  shift
  "$@" > "$data/log/$name.log" 2>&1 < /dev/null &
}
run etcd etcd --data-dir "$data/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
run apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --advertise-address=203.0.113.10 \
  --tls-cert-file="$keys/apiserver.crt" --tls-private-key-file="$keys/apiserver.key" --client-ca-file="$keys/ca.crt" \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$keys/sa.key" \
  --service-account-signing-key-file="$keys/sa.key" --token-auth-file="$keys/tokens.csv" --authorization-mode=Node,RBAC \
  --enable-admission-plugins=NodeRestriction --service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112 --allow-privileged=true \
  --kubelet-client-certificate="$keys/apiserver-kubelet.crt" --kubelet-client-key="$keys/apiserver-kubelet.key" \
  --kubelet-certificate-authority="$keys/ca.crt" --kubelet-preferred-address-types=InternalIP
import_images &
import=$!
until kubectl get --raw /readyz > /dev/null 2>&1; do sleep 0.1; done
# The defaults would deal with accounts slowly, and call a node dead after a minute only.
run controllers kube-controller-manager --kubeconfig=controllers.kubeconfig --use-service-account-credentials \
  --service-account-private-key-file="$keys/sa.key" --root-ca-file="$keys/ca.crt" --leader-elect=false --bind-address=127.0.0.1 \
  --kube-api-qps=300 --kube-api-burst=500 --node-monitor-grace-period=12s --node-monitor-period=1s
run scheduler kube-scheduler --kubeconfig=scheduler.kubeconfig --leader-elect=false --bind-address=127.0.0.1
# Made here, so that node N has pod CIDR N.
for n in $(seq "$NODES"); do
  kubectl create -f - <<Y
apiVersion: v1
kind: Node
metadata:
  name: node-$n
spec:
  podCIDR: 10.244.$n.0/24
  podCIDRs: [10.244.$n.0/24, 'fd00:10:244:$n::/64']
Y
done
wait $import
starts=()
for n in $(seq "$NODES"); do
  start_node "$n" &
  starts+=($!)
done
for start in "${starts[@]}"; do wait "$start"; done
until kubectl -n default get serviceaccount default > /dev/null 2>&1 && kubectl -n default get configmap kube-root-ca.crt > /dev/null 2>&1; do sleep 0.1; done
touch /run/up
# It reaps what loses its parent.
trap 'exit 0' TERM INT
while :; do
  sleep 3600 &
  wait $! || true
done
