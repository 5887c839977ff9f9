#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The package's life on a machine that has nothing: bare.sh DEB MODEL CACHE
#
# Debian is put into memory, as debootstrap's smallest, the package with what it
# depends on as apt finds it; a server answers and stops; then the package is purged
# and nothing of it is left. All that happens in namespaces of its own, and CACHE keeps
# what was downloaded. Exit status 77: this cannot be tried here, the last line says why.
set -euo pipefail

cannot() { echo "$*"; exit 77; }
say() { printf '%s s: %s\n' "$SECONDS" "$*"; }

if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || cannot "only root may"
    command -v debootstrap >/dev/null || cannot "there is no debootstrap"
    unshare -m -p true 2>/dev/null || cannot "no namespaces here"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    status=0
    unshare -m -p -f --mount-proc bash "$0" inside "$work/bare" "$@" || status=$?
    exit "$status"
fi
bare=$2 deb=$3 model=$4 cache=$5
mkdir -p "$cache" "$bare"
mount -t tmpfs -o mode=755 none "$bare"

# As this machine gets its packages: mirror, proxy, credentials, trusted keys.
mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" && !n++ { print $2 }')
[ -n "$mirror" ] || cannot "this is no Debian 12 with package lists"
debootstrap --variant=minbase --cache-dir="$cache" bookworm "$bare" "$mirror" >"$bare.log" 2>&1 || {
    tail -n 5 "$bare.log"
    cannot "debootstrap did not get so far"
}
say "a bare Debian"
rm -rf "$bare/etc/apt"
cp -r /etc/apt "$bare/etc/apt"
cp /etc/resolv.conf /etc/hosts "$bare/etc/"
cp -r /usr/share/keyrings "$bare/usr/share/" 2>/dev/null || true
rm -f "$bare/etc/apt/apt.conf.d/docker-clean" # would empty the cache
echo force-unsafe-io >"$bare/etc/dpkg/dpkg.cfg.d/quick"
printf '#!/bin/sh\nexit 101\n' >"$bare/usr/sbin/policy-rc.d" # nothing is started
chmod 755 "$bare/usr/sbin/policy-rc.d"
mount --bind "$cache" "$bare/var/cache/apt/archives"
mkdir -p "$cache/partial" "$bare/root/try"
mount -t proc proc "$bare/proc"
mount -t tmpfs none "$bare/dev/shm"
cp "$deb" "$bare/root/try/baton.deb"
cp "$model" "$bare/root/try/model.gguf"

# apt's own downloads go to a file that fails the test only when the package could
# not be installed for a reason of its own.
apt() { chroot "$bare" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -q -o APT::Sandbox::User=root "$@" >>"$bare.log" 2>&1; }
apt update || cannot "apt-get update failed: $(tail -n 1 "$bare.log")"
say "its package lists"
apt install -y --no-install-recommends /root/try/baton.deb || { tail -n 20 "$bare.log"; exit 1; }
# Without what it recommends it says what to install, and with that it knows where the default model is.
serve() { chroot "$bare" env -i PATH=/usr/bin:/bin HOME=/root/try BATON_FETCH_PAUSE_S=0 "$@" 2>&1 || true; }
[[ $(serve baton serve) == *"install Debian's python3-pip-whl"* ]] || { serve baton serve; exit 1; }
apt install -y --no-install-recommends python3-pip-whl || { tail -n 20 "$bare.log"; exit 1; }
[[ $(serve python3 -Bc "import sys; sys.path.append('/usr/share/baton/setup'); import fetch_model as f; print(f.index_url({}))") == https://* ]] ||
    { echo "the package index is not known"; exit 1; }
say "the package and $(chroot "$bare" dpkg-query -W -f '.\n' | wc -l) others"

# From here on without a network but its own loopback.
exec unshare -n bash "$(dirname "$0")/bare_life.sh" "$bare"
