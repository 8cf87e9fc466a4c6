#!/bin/bash
# node-init.sh N: the first process of node N: containerd, kubelet and kube-proxy, in namespaces of their own.
set -eu
n=$1 name=node-$1
. "$(dirname "${BASH_SOURCE[0]}")/node.sh"
keys=$data/keys
export PATH=$LAB/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
hostname "$name"

# --- mounts
mount -t sysfs sysfs /sys
mount_cgroups
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/node/cni /run/node/sysctl /run/netns /run/lock
touch /run/xtables.lock
mkdir -p "$data/$name"/{containerd,kubelet,log,lib,work}
mount -t overlay -o "lowerdir=/var/lib,upperdir=$data/$name/lib,workdir=$data/$name/work" varlib /var/lib
# An overlay cannot hold the upper folders of the overlays in it.
for folder in containerd kubelet; do
  mkdir -p "/var/lib/$folder"
  mount --bind "$data/$name/$folder" "/var/lib/$folder"
done
mount --bind "$data/$name/log" /var/log
# kubelet wants these settings of the whole machine: it is shown what it wants, and the machine stays as it is.
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/node/sysctl/$(basename "${pair%=*}")
  echo "${pair#*=}" > "$file"
  mount --bind "$file" "/proc/sys/${pair%=*}"
done
cat /proc/sys/kernel/random/uuid > /run/node/boot_id
mount --bind /run/node/boot_id /proc/sys/kernel/random/boot_id
printf '%032d\n' "$n" > /run/node/machine-id
mount --bind /run/node/machine-id /etc/machine-id
mount --make-rshared /

# --- network
ip link set lo up
until [ -e /sys/class/net/eth0 ]; do sleep 0.02; done
ip addr add "203.0.113.1$n/24" dev eth0
ip addr add "2001:db8:1::1$n/64" dev eth0 nodad
ip link set eth0 up
ip route add default via 203.0.113.200
ip -6 route add default via 2001:db8:1::200
for other in $(seq "$NODES"); do
  [ "$other" = "$n" ] && continue
  ip route add "10.244.$other.0/24" via "203.0.113.1$other"
  ip -6 route add "fd00:10:244:$other::/64" via "2001:db8:1::1$other"
done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
echo "nameserver 203.0.113.200" > /run/node/resolv.conf

# --- daemons
fill() { sed -e "s#@N@#$n#g" -e "s#@LAB@#$LAB#g" "$lab_scripts/$1" > "$2"; }
fill cni.conflist /run/node/cni/10-pods.conflist
fill containerd.toml /run/node/containerd.toml
fill kubelet.yaml /run/node/kubelet.yaml
run() {
  local daemon=$1
  shift
  "$@" >> "$data/log/$name.$daemon.log" 2>&1 &
}
cd /run/node
run containerd containerd -c containerd.toml
until ctr version > /dev/null 2>&1; do sleep 0.1; done
run kubelet kubelet --config=kubelet.yaml --kubeconfig="$data/$name.kubeconfig" --root-dir=/var/lib/kubelet \
  --node-ip="203.0.113.1$n,2001:db8:1::1$n" --hostname-override="$name" --tls-cert-file="$keys/$name.crt" --tls-private-key-file="$keys/$name.key"
# Zeros keep it from settings of the whole machine.
run proxy kube-proxy --kubeconfig="$data/proxy.kubeconfig" --proxy-mode=iptables --cluster-cidr=10.244.0.0/16,fd00:10:244::/48 \
  --hostname-override="$name" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
export KUBECONFIG=$data/admin.kubeconfig
# Ready, and by this boot's kubelet: not by what the last one wrote before it ended.
kubectl wait "node/$name" --for=jsonpath='{.status.nodeInfo.bootID}'="$(cat boot_id)" --timeout=90s
kubectl wait "node/$name" --for=condition=Ready --timeout=90s
touch up
trap 'exit 0' TERM INT
while :; do
  sleep 3600 &
  wait $! || true
done
