#!/bin/sh
# Puts into the folder $1 what the program needs to run, as it is on this machine: Node, the tools, their libraries and
# plug-ins, and the licences of all. Nothing else gets into the image.
set -eu
root=$1
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The file or link $1 at its own place, and what it points to. Folders that are links (/lib) are followed.
place() {
  path=$(readlink -f "$(dirname "$1")")/$(basename "$1")
  [ -e "$root$path" ] && return 0
  mkdir -p "$root$(dirname "$path")"
  cp -a "$path" "$root$path"
  if [ -L "$path" ]; then place "$(readlink -f "$path")"; fi
}

with_libraries() {
  place "$1"
  # A line has `name => path (address)`, or for the loader `path (address)`.
  ldd "$1" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | while read -r library; do
    place "$library"
  done
}

mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/tmp" "$root/etc" "$root/run" "$root/var/lib/natoutgoing"
chmod 1777 "$root/tmp"
for link in bin sbin lib lib64; do
  if [ -L "/$link" ]; then cp -a "/$link" "$root/$link"; mkdir -p "$root/$(readlink "/$link")"; fi
done

# env finds the interpreter of the program's first line; files of the kernel are read by cat, as a tool with a time limit.
for tool in node env cat ipset nft conntrack ip \
  iptables-nft ip6tables-nft iptables-nft-restore ip6tables-nft-restore iptables-nft-save ip6tables-nft-save \
  iptables-legacy ip6tables-legacy iptables-legacy-restore ip6tables-legacy-restore iptables-legacy-save ip6tables-legacy-save; do
  with_libraries "$(command -v "$tool")"
done
# The program and whoever looks in find Node at one place, wherever the base has it.
[ -e "$root/usr/bin/node" ] || ln -s "$(command -v node)" "$root/usr/bin/node"

# What iptables loads by name, and where.
for plugin in $(dpkg -L iptables | grep '/xtables/.*\.so$'); do with_libraries "$plugin"; done
for file in /etc/ssl/certs/ca-certificates.crt /etc/protocols /etc/services /etc/ethertypes /etc/iproute2 /usr/share/iproute2; do
  if [ -e "$file" ]; then place "$file"; fi
done
printf 'root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65532:65532:nobody:/:/usr/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nnobody:x:65532:\n' > "$root/etc/group"

dpkg-query -S $(find "$root" -type f | sed "s#^$root##") 2>/dev/null | cut -d: -f1 | sort -u | while read -r package; do
  for file in "/usr/share/doc/$package/copyright"; do
    if [ -e "$file" ]; then mkdir -p "$root$(dirname "$file")"; cp -L "$file" "$root$file"; fi
  done
  dpkg-query -W -f '${Package} ${Version}\n' "$package"
done | sort -u > "$root/usr/lib/packages"
