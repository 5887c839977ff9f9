/* SPDX-License-Identifier: Apache-2.0 */
/** @file orchestrate.h
 *
 * One process under mpirun starts others, each as a world of its own
 * (MPI_Comm_spawn), and waits until all have ended:
 *
 *     mpirun -np 1 ─▶ orchestrator ─┬─ spawn ─▶ router
 *                                   ├─ spawn ─▶ prefill-0   rank 0, rank 1
 *                                   └─ spawn ─▶ decode-0
 *
 * What was started says goodbye when it closes its cluster (cluster.h). Who
 * ends without that is noticed by mpirun, which then ends everybody: one fate.
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

/** Can this process start others here? mpirun must have started it, alone, and
 *  not srun, under which MPI_Comm_spawn never returns.
 *  @param [out] why  On failure the reason and what works instead. */
BT_MUST_CHECK bt_status_t bt_cluster_may_orchestrate(char *why,
                                                     size_t why_bytes);

/** When it ends; both are asked all the time. */
typedef struct bt_cluster_end {
    bool (*is_due)(void *ctx);  /**< true: all are told, by SIGTERM */
    bool (*is_over)(void *ctx); /**< true: whoever is left has had long enough,
                                     and is ended */
    void *ctx;
} bt_cluster_end_t;

/**
 * Start all jobs on this host, bound to no core, and wait until they have
 * ended.
 *
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_INTERNAL  MPI failed; logged
 * @retval BT_ERR_CANCELED  is_over()
 * But for the first these return where MPI_Abort() does.
 */
BT_MUST_CHECK bt_status_t bt_cluster_orchestrate(const bt_cluster_job_t *jobs,
                                                 uint32_t n_jobs,
                                                 const bt_cluster_end_t *end);

#endif
