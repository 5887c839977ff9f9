#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a shell reads to complete the words after an installed `baton`:
# completion.sh LAUNCHER bash|zsh
set -eu
root=$(dirname "$0")/..
self=baton
launch=$1
# shellcheck source=setup/commands.sh
. "$root/setup/commands.sh"
cmd_completion "$2"
