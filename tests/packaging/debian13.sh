#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Baton on Debian 13, from its sources: debian13.sh MODEL CACHE
#
# A bare Debian 13 is unpacked beside this one, with this tree in a folder whose name
# has a blank, a comma and an é. There `./baton serve` installs what it needs, builds,
# and answers with the default model, the file MODEL; then all of it is built with
# warnings as errors, and the tests of tests/unit run. CACHE keeps what was downloaded.
#
# Prints a line for each test, and as its last one `N passed, N failed, N skipped`.
set -euo pipefail

tree=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
suite=trixie
passed=0 failed=0 skipped=0

say() { printf '%s s: %s\n' "$SECONDS" "$*"; }
total() { printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"; exit $((failed > 0)); }
ok() { passed=$((passed + 1)); echo "ok debian13: $1 ($SECONDS s)"; }
not_ok() { # NAME LOG: what follows needs it
    failed=$((failed + 1))
    tail -n 60 "$2"
    echo "not ok debian13: $1"
    total
}

# Where it cannot be tried; on a build machine that is a failure, for nobody would see it.
cannot() {
    if [ "${CI:-}" = true ]; then
        failed=1
        echo "not ok debian13: $1"
    else
        skipped=1
        echo "skip debian13: $1"
    fi
    total
}

if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || cannot "only root may"
    command -v debootstrap >/dev/null || cannot "there is no debootstrap"
    unshare -m -p true 2>/dev/null || cannot "no namespaces here"
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    status=0
    # What is mounted and started there ends with its namespaces.
    unshare -m -p -f --mount-proc --kill-child bash "$0" inside "$work/debian" "$@" || status=$?
    exit "$status"
fi
root=$2 model=$3 cache=$4
log=$(dirname "$root")/log
home="/root/a check,out é"
mkdir -p "$cache/partial" "$root"

in_root() {
    chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "${settings[@]}" "$@"
}
in_tree() { in_root bash -c 'cd "$0" && exec "$@"' "$home" "$@"; }

# ---- the machine: mirror, proxy, credentials and keys as this one has them ----

mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" && !n++ { print $2 }')
[ -n "$mirror" ] || cannot "this is no Debian 12 with package lists"
# Packages of apt and of debootstrap's own lie side by side in the cache.
debootstrap --variant=minbase --cache-dir="$cache" "$suite" "$root" "$mirror" >"$log" 2>&1 ||
    { tail -n 5 "$log"; cannot "debootstrap did not get so far"; }
for part in apt.conf.d auth.conf.d trusted.gpg.d; do
    [ ! -d "/etc/apt/$part" ] || cp -rT "/etc/apt/$part" "$root/etc/apt/$part"
done
rm -f "$root/etc/apt/apt.conf.d/docker-clean" # would empty the cache
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /usr/share/keyrings "$root/usr/share/" 2>/dev/null || true
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/quick"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing is started
chmod 755 "$root/usr/sbin/policy-rc.d"
echo 'APT::Sandbox::User "root";' >"$root/etc/apt/apt.conf.d/99test"
mount --bind "$cache" "$root/var/cache/apt/archives"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs none "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -sf pts/ptmx "$root/dev/ptmx"
settings=()
for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
done
say "a bare $(. "$root/etc/os-release" && echo "$PRETTY_NAME")"

# ---- the sources, and the model where `serve` would have put it ----

mkdir -p "$root$home" "$root/root/.cache/baton"
(cd "$tree" && git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | tar -c --null -T - | tar -x -C "$root$home")
cp "$model" "$root/root/.cache/baton/"

# ---- serve: packages, build, answer ----

in_tree ./baton serve --yes --http 127.0.0.1:0 --grpc 127.0.0.1:0 --metrics 127.0.0.1:0 --kv-memory 256m >"$log" 2>&1 &
server=$!
until grep -q 'Baton is ready' "$log"; do
    kill -0 "$server" 2>/dev/null || not_ok serve "$log"
    ((SECONDS < 1800)) || not_ok serve "$log"
    sleep 0.5
done
say "$(in_tree ./baton version | tr '\n' ' ')"
http=$(sed -n 's/.*BATON_URL=\([0-9.:]*\) .*/\1/p' "$log" | head -n 1)
answer=$(in_tree env BATON_URL="$http" ./baton ask "Name the capital of France." --max-tokens 24 --temperature 0 2>>"$log") || not_ok serve "$log"
say "it answers: $answer"
[[ $answer == *Paris* ]] || not_ok serve "$log"
pid=$(pgrep -P "$server" -f baton-launch || echo "$server")
kill -TERM "$pid"
wait "$server" || not_ok serve "$log"
! grep -E ' (warn|error) ' "$log" || not_ok serve "$log"
ok serve

# ---- the tests: their packages are there by name, and what tests/unit needs is installed ----

names=$(awk '!/^#/ && NF { sub(/\|.*/, "", $1); print $1 }' "$tree"/setup/packages*.txt | sort -u)
# shellcheck disable=SC2086 # words
in_root apt-get install --simulate --no-install-recommends $names >"$log" 2>&1 || not_ok packages "$log"
ok packages
in_root apt-get install -y --no-install-recommends libcmocka-dev g++ openmpi-bin openssl procps >"$log" 2>&1 || not_ok install "$log"

in_tree env CC=gcc meson setup build/test-gcc --prefix=/usr --werror -Dbuildtype=debugoptimized -Dc_args=-g1 -Dtests=enabled \
    >"$log" 2>&1 || not_ok build "$log"
in_tree ninja -k 0 -j "$(nproc)" -C build/test-gcc >"$log" 2>&1 || not_ok build "$log"
ok build

in_tree env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 meson test -C build/test-gcc --no-rebuild --suite unit \
    --num-processes $((2 * $(nproc))) >"$log" 2>&1 || true
python3 "$tree/setup/test_report.py" results "$root$home/build/test-gcc/meson-logs/testlog.json" >"$log" || true
grep -av '^ok ' "$log" | sed '$d' || true
read -r more_passed _ more_failed _ more_skipped _ < <(tail -n 1 "$log")
passed=$((passed + more_passed)) failed=$((failed + more_failed)) skipped=$((skipped + more_skipped))
total
