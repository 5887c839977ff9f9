/* SPDX-License-Identifier: Apache-2.0 */
/** @file orchestrate.h
 *
 * Orchestrator: one process under mpirun starts others, each job as a world of
 * its own (MPI_Comm_spawn), and waits until all have ended:
 *
 *     mpirun -np 1 ─▶ orchestrator ─┬─ spawn ─▶ router
 *                                   ├─ spawn ─▶ prefill-0   rank 0, rank 1
 *                                   └─ spawn ─▶ decode-0
 *
 * A child sends a goodbye when it closes its cluster (cluster.h). If one ends
 * without it, mpirun notices, and ends all processes.
 *
 * Threads: one thread.
 * Source: MPI 3.1, chapter 10.
 */
#ifndef BT_COMMON_CLUSTER_ORCHESTRATE_H
#define BT_COMMON_CLUSTER_ORCHESTRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Processes of one world. */
typedef struct bt_cluster_job {
    const char *program; /**< path */
    char **args;         /**< without argv[0], NULL at the end */
    uint32_t n;          /**< processes */
} bt_cluster_job_t;

/**
 * Checks that this process can start others here. mpirun must have started it,
 * alone, and not srun, under which MPI_Comm_spawn never returns.
 * @param [out] why  On failure the reason and an alternative.
 */
BT_MUST_CHECK bt_status_t bt_cluster_may_orchestrate(char *why,
                                                     size_t why_bytes);

/** Conditions for the end; both are polled. */
typedef struct bt_cluster_end {
    bool (*is_due)(void *ctx);  /**< true: SIGTERM is sent to all */
    bool (*is_over)(void *ctx); /**< true: the grace period is over, and
                                     remaining processes are killed */
    void *ctx;
} bt_cluster_end_t;

/**
 * Starts all jobs on this host, bound to no core, and waits until they have
 * ended.
 *
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged
 * @retval BT_ERR_CANCELED  is_over()
 * All except the first return only if MPI_Abort() does.
 */
BT_MUST_CHECK bt_status_t bt_cluster_orchestrate(const bt_cluster_job_t *jobs,
                                                 uint32_t n_jobs,
                                                 const bt_cluster_end_t *end);

#endif
