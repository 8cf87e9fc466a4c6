# Functions to make, enter and end nodes, for use inside the cluster's namespaces. Node N is a namespace of its own, its
# disk a folder that outlives it.
data=$LAB/data
lab_scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
node_controllers=(cpu cpuacct cpuset memory devices freezer blkio pids systemd)

# Mounted anew, the hierarchies show this cgroup namespace's own part as /.
mount_cgroups() {
  local c
  mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
  for c in "${node_controllers[@]}"; do
    mkdir "/sys/fs/cgroup/$c"
    if [ "$c" = systemd ]; then
      mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    else
      mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c"
    fi
  done
}

# Images are unpacked once, by a containerd that lives only for that; every node starts with hard links to the result.
import_images() {
  sed -e "s#@LAB@#$LAB#g" -e "s#/run/containerd#/run/template#g" -e "s#/var/lib/containerd#$data/template#" \
    "$lab_scripts/containerd.toml" > "$data/template.toml"
  containerd -c "$data/template.toml" > "$data/log/template.log" 2>&1 &
  local daemon=$! file
  export CONTAINERD_ADDRESS=/run/template/containerd.sock
  until ctr version > /dev/null 2>&1; do sleep 0.1; done
  for file in "$LAB"/images/*.tar; do ctr -n k8s.io images import "$file" >> "$data/log/import.log" 2>&1; done
  kill $daemon
  wait $daemon || true
}

# The pid of node N's first process when it runs, from a look at the process itself: a pid file can lie.
node_pid() {
  local pid
  pid=$(cat "/run/node-$1.pid" 2> /dev/null) || return 1
  tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -q "node-init.sh $1 $" || return 1
  echo "$pid"
}

enter_node() {
  local pid
  pid=$(node_pid "$1") || { echo "node-$1 is down" >&2; return 1; }
  shift
  nsenter -t "$pid" -a -- "$@"
}

# An empty kernel; the disk as it was.
start_node() {
  local n=$1 c outer inner=
  if node_pid "$n" > /dev/null; then echo "node-$n is up already" >&2; return 1; fi
  for c in "${node_controllers[@]}"; do mkdir -p "/sys/fs/cgroup/$c/node-$n"; done
  if [ ! -d "$data/node-$n" ]; then
    mkdir "$data/node-$n"
    cp -al "$data/template" "$data/node-$n/containerd"
    # Databases are written in place: a link would be everybody's.
    (cd "$data/template" && find . -name '*.db' -exec cp --parents --remove-destination {} "$data/node-$n/containerd" \;)
  fi
  (
    for c in "${node_controllers[@]}"; do echo $BASHPID > "/sys/fs/cgroup/$c/node-$n/cgroup.procs"; done
    exec setsid unshare -n -m -p -C -u -i --fork --kill-child --mount-proc --propagation private bash "$lab_scripts/node-init.sh" "$n"
  ) > "$data/log/node-$n.log" 2>&1 < /dev/null &
  outer=$!
  for _ in $(seq 200); do
    inner=$(cat /proc/$outer/task/$outer/children 2> /dev/null | tr -d ' ')
    echo "${inner:-0}" > "/run/node-$n.pid"
    node_pid "$n" > /dev/null && break
    sleep 0.05
  done
  # With a new MAC address at each start, its neighbours would have the old one for seconds.
  ip link add "node-$n" type veth peer name eth0 address "02:00:00:00:00:1$n" netns "$inner"
  ip link set "node-$n" master br0 up
  for _ in $(seq 2400); do
    [ -e "/proc/$inner/root/run/node/up" ] && return 0
    [ -d "/proc/$inner" ] || break
    sleep 0.05
  done
  { echo "node-$n did not become ready:"; tail -n 5 "$data/log/node-$n".*; } >&2
  return 1
}

# As if its plug were pulled.
stop_node() {
  local n=$1 pid c
  pid=$(node_pid "$n") || { echo "node-$n is down already" >&2; return 1; }
  kill -9 "$pid"
  while [ -d "/proc/$pid" ]; do sleep 0.05; done
  for c in "${node_controllers[@]}"; do
    for _ in $(seq 100); do
      find "/sys/fs/cgroup/$c/node-$n" -depth -type d -exec rmdir {} \; 2> /dev/null
      [ -d "/sys/fs/cgroup/$c/node-$n" ] || break
      sleep 0.05
    done
  done
  # The kernel takes a dead namespace's links away a moment later.
  while [ -e "/sys/class/net/node-$n" ]; do sleep 0.05; done
  rm -f "/run/node-$n.pid"
}
