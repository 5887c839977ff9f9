#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Router, prefill and decode workers in one MPI world, on this machine.
# Usage: [PREFILL_TP=T] [PREFILL_EP=E] [PREFILL_PP=P] [DECODE_TP=T] [DECODE_EP=E] [DECODE_PP=P] examples/mpirun.sh MODEL [N_PREFILL [N_DECODE]]
# One fate: when one process dies, mpirun ends all. For separate fates start one
# mpirun (or srun) per instance, with --join and --cluster-key-file: docs/DEPLOY.md.
set -eu
fail() {
    echo "mpirun.sh: $*" >&2
    exit 2
}
model=${1:-}
build=${BATON_BUILD:-$(dirname "$0")/../build}
router=$build/router/baton-router
prefill_worker=$build/worker/main/baton-prefill-worker
decode_worker=$build/worker/main/baton-decode-worker
installed=$(dirname "$0")/../../../libexec/baton
if [ -z "${BATON_BUILD:-}" ] && [ ! -x "$router" ] && [ -x "$installed/baton-router" ]; then
    router=$installed/baton-router
    prefill_worker=$installed/baton-prefill-worker
    decode_worker=$installed/baton-decode-worker
fi
prefill_tp=${PREFILL_TP:-1} decode_tp=${DECODE_TP:-1}
prefill_ep=${PREFILL_EP:-1} decode_ep=${DECODE_EP:-1}
prefill_pp=${PREFILL_PP:-1} decode_pp=${DECODE_PP:-1}
[ -n "$model" ] || fail "which model? examples/mpirun.sh MODEL [N_PREFILL [N_DECODE]]"
[ -e "$model" ] || fail "there is no model $model"
[ -x "$router" ] || fail "nothing is built in $build: ./baton serve builds, or set BATON_BUILD"
command -v mpirun > /dev/null || fail "there is no mpirun here (package openmpi-bin)"
if [ "$(id -u)" = 0 ] && [ -z "${OMPI_ALLOW_RUN_AS_ROOT:-}" ]; then
    fail "mpirun does not run as root, unless OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are set"
fi
# So that it does not matter on which side what is computed.
parts=$((prefill_tp > decode_tp ? prefill_tp : decode_tp))
prefill_share=$((prefill_tp / prefill_ep)) decode_share=$((decode_tp / decode_ep))
moe_parts=$((prefill_share > decode_share ? prefill_share : decode_share))
export OMPI_MCA_mpi_yield_when_idle=1
exec mpirun --oversubscribe --bind-to none \
    -np 1 "$router" --model "$model" --listen tcp://127.0.0.1:0 : \
    -np $((${2:-1} * prefill_tp * prefill_pp)) "$prefill_worker" --model "$model" \
    --rank-host 127.0.0.1 --tp "$prefill_tp" --ep "$prefill_ep" --pp "$prefill_pp" \
    --reduction-parts "$parts" --moe-reduction-parts "$moe_parts" : \
    -np $((${3:-1} * decode_tp * decode_pp)) "$decode_worker" --model "$model" \
    --rank-host 127.0.0.1 --tp "$decode_tp" --ep "$decode_ep" --pp "$decode_pp" \
    --reduction-parts "$parts" --moe-reduction-parts "$moe_parts"
