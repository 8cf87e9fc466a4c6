#!/bin/sh
# Sees to the programs that rules need, and with the argument `test` to those of the tests on real nodes: installs their
# Debian packages as root, else names what is missing.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need iptables iptables
need ipset ipset
need nft nftables
need conntrack conntrack
need ip iproute2
need unshare util-linux
if [ "${1:-}" = test ]; then
  need openssl openssl
  need debootstrap debootstrap
  need buildah buildah
  need runc runc
  [ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "missing Debian packages, install them as root: apt-get install$missing" >&2
  exit 1
fi
echo "installing Debian packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# shellcheck disable=SC2086
apt-get install -y -q --no-install-recommends $missing >/dev/null
