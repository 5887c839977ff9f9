#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exit status 0: yes. Without curl, which a container does not have.
#
#     baton-health                  is the server here, at the port of BATON_HTTP, ready?
#     baton-health ADDR:PORT NAME   does the worker NAME take requests, by the metrics
#                                   of the router there?
set -eu

# get ADDR PORT PATH: print the answer's head and body.
get() {
    # shellcheck disable=SC2016 # expands in the inner shell
    timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2" &&
        printf "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" "$3" >&3 && cat <&3' - "$@"
}

if [ $# -eq 0 ]; then
    port=${BATON_HTTP:-:8000}
    status=$(get 127.0.0.1 "${port##*:}" /v2/health/ready | head -c 12 | tail -c 3)
    [ "$status" = 200 ]
else
    # Read whole: who stops at the line that it wants breaks the pipe.
    get "${1%:*}" "${1##*:}" /metrics | grep "^baton_worker_up{.*worker=\"$2\".* 1\r*\$" >/dev/null
fi
