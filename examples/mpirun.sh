#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Router, prefill and decode worker in one MPI world, on this machine.
# Usage: examples/mpirun.sh MODEL.gguf [N_PREFILL [N_DECODE]]
# One fate: when one process dies, mpirun ends all. For separate fates start one
# mpirun (or srun) per instance, with --join and --key-file: docs/OPERATIONS.md.
set -eu
model=$1
build=${BATON_BUILD:-$(dirname "$0")/../build}
export OMPI_MCA_mpi_yield_when_idle=1
exec mpirun --oversubscribe --bind-to none \
    -np 1 "$build/router/baton-router" --model "$model" --listen tcp://127.0.0.1:0 : \
    -np "${2:-1}" "$build/worker_main/baton-prefill-worker" --model "$model" --listen-host 127.0.0.1 : \
    -np "${3:-1}" "$build/worker_main/baton-decode-worker" --model "$model" --listen-host 127.0.0.1
