#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What git calls this tree: its commit (behind its tag, if it has one), and -dirty
# where files differ from it. Fails where the tree is not git's own, such as an
# unpacked archive, also inside a repository of somebody else's.
root=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
top=$(git -C "$root" rev-parse --show-toplevel 2>/dev/null) || exit 1
[ "$top" = "$root" ] || exit 1
GIT_OPTIONAL_LOCKS=0 exec git -C "$root" describe --always --dirty --abbrev=12
