#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bare.sh's second half: bare_life.sh ROOT, where the package is installed, in a
# namespace with a loopback network alone.
set -euo pipefail
bare=$1
ip link set lo up
mount -t sysfs sysfs "$bare/sys" # of this namespace's network
here=(chroot "$bare" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root/try XDG_RUNTIME_DIR=/root/try LC_ALL=C.UTF-8)
say() { printf '%s s: %s\n' "$SECONDS" "$*"; }
fail() { echo "$*"; [ ! -e "$bare/root/try/log" ] || tail -n 40 "$bare/root/try/log"; exit 1; }

for program in gcc cc git meson ninja curl; do
    ! "${here[@]}" sh -c "command -v $program" >/dev/null || fail "$program is here: this machine is not bare"
done

# Everything but what dpkg and apt note about themselves.
list() { (cd "$bare" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/log -o -path ./root/try \
    -o -path ./var/cache \) -prune -o -print | sort); }

"${here[@]}" baton serve --model /root/try/model.gguf --kv-memory 16m >"$bare/root/try/log" 2>&1 &
server=$!
for ((i = 0; i < 1200; i++)); do
    ! grep -q 'Baton is ready' "$bare/root/try/log" || break
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    sleep 0.1
done
grep -q 'Baton is ready' "$bare/root/try/log" || fail "the server is not ready"
answer=$("${here[@]}" baton ask Hello --max-tokens 8) || fail "no answer"
[ -n "$answer" ] || fail "an empty answer"
"${here[@]}" baton status | grep '^decode-0 .* ready ' >/dev/null || fail "no decode-0 in the status"
"${here[@]}" baton load-test --requests 4 --concurrency 2 --prompt-tokens 8 --output-tokens 4 | grep '4 answered' >/dev/null || fail "no load"
"${here[@]}" baton version
kill -TERM "$server"
wait "$server" || fail "the server ended with $?"
grep -q 'KV goes to decode-0 by shm' "$bare/root/try/log" || fail "KV did not go by shared memory"
! grep -E ' (warn|error) ' "$bare/root/try/log" || fail "it warned"
say "it served, answered and stopped"

# What a service would have left, and who configured it.
for place in lib cache log; do
    mkdir -p "$bare/var/$place/private/baton/x"
    ln -s private/baton "$bare/var/$place/baton"
done
echo 'tenant shop' >"$bare/etc/baton/keys"
"${here[@]}" dpkg --purge baton >>"$bare.log" 2>&1 || { tail -n 5 "$bare.log"; exit 1; }
rm -rf "$bare/root/try/log"
left=$(cd "$bare" && find . -xdev -path ./root/try -prune -o -path ./var/cache/apt -prune -o -iname '*baton*' -print)
[ -z "$left" ] || fail "left behind: $left"
"${here[@]}" dpkg --unpack /root/try/baton.deb >/dev/null && "${here[@]}" dpkg --configure baton >/dev/null && "${here[@]}" dpkg --purge baton >/dev/null
list >"$bare.first"
"${here[@]}" dpkg -i /root/try/baton.deb >/dev/null
"${here[@]}" baton list --models-dir /root >/dev/null 2>&1 # as root: Python keeps what it compiled
"${here[@]}" dpkg --purge baton >/dev/null
list >"$bare.second"
diff "$bare.first" "$bare.second" || fail "files are left"
! grep -qi baton "$bare/etc/passwd" "$bare/etc/group" || fail "a user is left"
[ -z "$(ls -A "$bare/dev/shm")" ] || fail "left in /dev/shm: $(ls "$bare/dev/shm")"
[ "$(tail -n +2 /proc/net/tcp /proc/net/tcp6 | grep -c ' 0A ')" = 0 ] || fail "somebody listens"
for process in /proc/[0-9]*; do
    ! readlink "$process/root" | grep -x "$bare" >/dev/null || fail "a process is left: $(tr '\0' ' ' <"$process/cmdline")"
done
say "nothing is left"
