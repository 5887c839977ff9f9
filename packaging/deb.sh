#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh BUILD OUT: a Debian package of what was built in BUILD, which was configured
# with --prefix=/usr, for the folder OUT. Prints its path. `./baton package deb` builds
# before.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

option() { meson introspect --buildoptions "$build" | python3 -c '
import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == sys.argv[1]))' "$1"; }
[ "$(option prefix)" = /usr ] || {
    echo "deb.sh: $build is configured for $(option prefix): meson configure $build --prefix=/usr" >&2
    exit 1
}

# 0.2.0+57.g1a2b3c4d5e6f: later commits are later versions.
number=$(meson introspect --projectinfo "$build" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
version=$number
date=$(date -R)
if commit=$("$root/setup/commit.sh" 2>/dev/null); then
    version+=+$(git -C "$root" rev-list --count HEAD).g${commit//-/.}
    date=$(git -C "$root" log -1 --format=%cD)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/baton"
cp -r "$root/packaging/debian" "$work/baton/debian"
cat >"$work/baton/debian/changelog" <<END
baton ($version) unstable; urgency=medium

  * Built from ${commit:-a tree without git}.

 -- Baton developers <developers@baton.invalid>  $date
END
cd "$work/baton"
BATON_BUILD=$build dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$work/log" 2>&1 || {
    tail -n 30 "$work/log" >&2
    exit 1
}
deb=$(echo "$work"/*.deb)
mv "$deb" "$out/"
printf '%s/%s\n' "$out" "$(basename "$deb")"
