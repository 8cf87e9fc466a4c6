#!/bin/bash
# supervise.sh FOLDER NODES: a cluster of real nodes for as long as standard input stays open. When it closes, whoever
# closed it and however (kill -9 of the test closes it too), everything ends and nothing is left. Says `up PID` once the
# cluster is ready: PID is the first process in its namespaces.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LAB=$1 NODES=$2
group=natoutgoing-e2e-$$

controllers=(cpu cpuacct cpuset memory devices freezer blkio pids systemd)
if [ ! -d /sys/fs/cgroup/cpuset ]; then
  echo "this machine has no cgroup v1 controllers below /sys/fs/cgroup; these nodes know no other" >&2
  exit 1
fi
own_path() { awk -F: -v c="$1" '$2 == c || $2 == "name=" c { print $3 }' /proc/$$/cgroup; }
folder_of() {
  local path
  path=$(own_path "$1")
  echo "/sys/fs/cgroup/$1${path%/}/$group"
}
for c in "${controllers[@]}"; do
  folder=$(folder_of "$c")
  mkdir "$folder" || exit 1
  if [ "$c" = cpuset ]; then
    # A new group of this controller has no processor and no memory until it is given some.
    cat "$folder/../cpuset.cpus" > "$folder/cpuset.cpus"
    cat "$folder/../cpuset.mems" > "$folder/cpuset.mems"
    echo 1 > "$folder/cgroup.clone_children"
  fi
done

(
  for c in "${controllers[@]}"; do echo $BASHPID > "$(folder_of "$c")/cgroup.procs"; done
  exec unshare -n -m -p -C -u -i --fork --kill-child --mount-proc --propagation private bash "$here/cluster.sh"
) > "$LAB/cluster.log" 2>&1 < /dev/null &
outer=$!

clean() {
  # The first process of a pid namespace takes all others with it.
  kill -9 $outer 2>/dev/null
  wait $outer 2>/dev/null
  local c folder tries
  for c in "${controllers[@]}"; do
    folder=$(folder_of "$c")
    for tries in $(seq 100); do
      find "$folder" -depth -type d -exec rmdir {} \; 2>/dev/null
      [ -d "$folder" ] || break
      sleep 0.05
    done
    [ -d "$folder" ] && echo "left: $folder: $(tr '\n' ' ' < "$folder/cgroup.procs")" >&2
  done
}
trap clean EXIT

for _ in $(seq 1800); do
  inner=$(cat /proc/$outer/task/$outer/children 2>/dev/null | tr -d ' ')
  [ -n "$inner" ] && [ -e "/proc/$inner/root/run/up" ] && break
  [ -d /proc/$outer ] || break
  read -r -t 0.1 || [ $? -gt 128 ] || exit 1
done
if [ -z "${inner:-}" ] || [ ! -e "/proc/$inner/root/run/up" ]; then
  tail -n 30 "$LAB/cluster.log" >&2
  exit 1
fi
echo "up $inner"
while read -r; do :; done
