#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm/baton.sbatch on a cluster of three nodes (cluster.sh): text comes back, KV
# crosses between two nodes, a dead worker comes back, both ways of ending are
# clean. usage: test_slurm.sh BUILD [MODEL [TEXT]]; the answer to "The capital of
# France is" must hold TEXT. Without MODEL it is the default model, which
# BATON_TEST_MODEL names, and TEXT is Paris. Exit status 77: cannot run here.
set -u

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cluster=$here/cluster.sh
script=$here/../../slurm/baton.sbatch
HTTP=10.77.0.11:8000
METRICS=10.77.0.11:8002

skip() { echo "skip: $*"; exit 77; }
[ $# -ge 1 ] || { echo "usage: test_slurm.sh BUILD [MODEL [TEXT]]" >&2; exit 2; }
[ $# -ge 2 ] || set -- "$1" "${BATON_TEST_MODEL:-}" Paris
[ -n "$2" ] || skip "BATON_TEST_MODEL names no model file"
build=$(readlink -f "$1")
model=$(readlink -f "$2")
expected=${3:-}

[ "$(id -u)" = 0 ] || skip "needs root"
for command in slurmctld slurmd munged sbatch srun unshare nsenter ip curl; do
    command -v "$command" >/dev/null || skip "no $command"
done
unshare --net --uts --mount --pid --ipc --fork true 2>/dev/null || skip "no namespaces"

# What the caller's own job or options may have left must not reach this one.
for name in "${!SLURM_@}" "${!SBATCH_@}" "${!BATON_@}" "${!PMIX_@}" "${!OMPI_@}"; do unset "$name"; done
unset MODEL BUILD PREFILL DECODE NET_DEVICE WORK_DIR CONTROL_PORT

work=$(mktemp -d "${TMPDIR:-/tmp}/baton-slurm-XXXXXX") || exit 1
cd "$work" || exit 1
job=
CLUSTER_DIR=
finish() {
    [ -n "$CLUSTER_DIR" ] && "$cluster" down
    cd / && rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
    echo "not ok: $*"
    for file in "$work"/baton-*.out "$work"/baton-*.log; do
        [ -e "$file" ] && tail -n 60 "$file" | sed 's/^/    /'
    done
    exit 1
}
within() { # SECONDS WHAT cmd …
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "$what"
        sleep 0.2
    done
    echo "ok: $what"
}
on() { "$cluster" exec "$@"; }
said() { cat "$work/baton-$job.out" "$work/baton-$job"-*.log 2>/dev/null | grep "$1" >/dev/null; } # PATTERN
submit() { # sbatch's options …
    job=$(on n1 env MODEL="$model" BUILD="$build" BATON_THREADS=1 BATON_KV_MEMORY=64m \
        sbatch --parsable "$@" "$script") || fail "sbatch"
}
state() { on ctl scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
is_state() { [ "$(state)" = "$1" ]; }
bearer() { printf 'Authorization: Bearer %s' "$(cat "$work/baton-$job/api-key")"; }
ask() { # prints the text
    on n1 curl -s -m 60 -H "$(bearer)" "http://$HTTP/v2/models/ensemble/generate" \
        -d '{"text_input": "The capital of France is", "max_tokens": 8}' |
        sed -n 's/.*"text_output":"\(.*\)"}$/\1/p'
}
answers() { [ -n "$(ask)" ]; }
metric() { # FAMILY{LABELS} as a pattern
    on n1 curl -s -m 10 -H "$(bearer)" "http://$METRICS/metrics" | sed -n "s/^$1 //p"
}
moved() { awk -v v="$(metric "$1")" 'BEGIN { exit !(v > 0) }'; }
pids_on() { on "$1" pgrep -f "$2"; } # NODE PATTERN
nothing_left() {
    local node
    for node in n1 n2 n3; do pids_on "$node" '/baton-(router|prefill-worker|decode-worker)' && return 1; done
    return 0
}

CLUSTER_DIR=$("$cluster" up 3) || { CLUSTER_DIR=; fail "the cluster does not come up"; }
export CLUSTER_DIR

submit
within 120 "three nodes are ready" said 'baton.sbatch: ready after'
for place in "n1 baton-router" "n2 baton-prefill-worker" "n3 baton-decode-worker"; do
    within 1 "${place#* } runs on ${place% *}" pids_on "${place% *}" "/${place#* }"
done
key=$work/baton-$job/key
[ "$(stat -c %a "$key")" = 600 ] || fail "the key is not private: $(ls -l "$key")"
[ "$(stat -c %a "$work/baton-$job/api-key")" = 600 ] || fail "the API key is not private"
said "clients need the API key in $work/baton-$job/api-key" || fail "nobody says where the API key is"
status=$(on n1 curl -s -m 10 -o /dev/null -w '%{http_code}' "http://$HTTP/v1/models")
[ "$status" = 401 ] || fail "without the key: $status"
text=$(ask)
[ -n "$text" ] || fail "no answer"
case $text in *"$expected"*) echo "ok: the answer is $text" ;; *) fail "no $expected in the answer: $text" ;; esac
family=nv_trt_llm_disaggregated_serving_metrics
within 5 "kv_cache_transfer_ms has moved" moved "$family{[^}]*kv_cache_transfer_ms[^}]*}"
[ "$(metric "$family{[^}]*\"request_count\"[^}]*}")" = 1 ] || fail "request_count is not 1"
said 'KV goes to decode-0 by network' || fail "KV did not take the network"

pid=$(pids_on n3 '/baton-decode-worker') || fail "no decode worker to kill"
on n3 kill -9 "$pid"
within 10 "a killed worker is missed" said 'decode-0 on n3 ended with 137'
within 60 "its successor answers" answers

on n1 scancel "$job"
within 40 "scancel ends the job cleanly" said 'baton.sbatch: stopped'
said 'router-0: ended with 0' || fail "the router did not end by itself"
within 20 "nothing is left on the nodes" nothing_left
within 20 "the job is cancelled" is_state CANCELLED
[ ! -e "$key" ] || fail "the key is left behind"
[ ! -e "$work/baton-$job/api-key" ] || fail "the API key is left behind"

# One node for all; the time limit's signal comes to the script alone.
submit -N1
within 120 "one node serves as well" said 'baton.sbatch: ready after'
within 60 "and answers" answers
on n1 scancel --batch --signal=USR1 "$job"
within 40 "the warning of the time limit ends the job" is_state COMPLETED
within 20 "nothing is left on the node" nothing_left

# Nobody has so much memory: starting again is of no use.
submit -N1 --export=ALL,BATON_KV_MEMORY=60000g
within 60 "what cannot run is left alone at once" said 'ended with 78: it cannot run there'
within 60 "and the job fails" is_state FAILED
said 'is started again' && fail "it was started again"

job=$(on n1 sbatch --parsable "$script") || fail "sbatch"
within 20 "a job without a model says so" said 'MODEL is not set'
within 20 "and fails" is_state FAILED
echo "passed"
