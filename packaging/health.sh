#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does the server of this container, at the port of BATON_HTTP, say that it is
# ready? Without curl, which the container does not have. Exit status 0: it does.
set -eu
port=${BATON_HTTP:-:8000}
port=${port##*:}
# shellcheck disable=SC2016 # expands in the inner shell
status=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" &&
    printf "GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3 && head -c 12 <&3' - "$port" | tail -c 3)
[ "$status" = 200 ]
