/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_demand.h
 *
 * Shared board on which the workers of one host ask for cores: a file in the
 * launcher's run directory, mapped by all workers, with one word per core of
 * the host. A worker that borrows idle cores of others writes the time until
 * which it wants them exclusively (common/sched/sched_pipeline.h); the
 * owner of the core reads the word. A word expires by itself, so nothing needs
 * cleaning up after a process that dies.
 *
 * Words are only hints: a wrong value costs its reader some time, within the
 * bounds of sched_pipeline.h.
 *
 * Threads: the owner opens and closes; only the compute thread does the rest.
 */
#ifndef BT_WORKER_CORE_DEMAND_H
#define BT_WORKER_CORE_DEMAND_H

#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_core_demand bt_core_demand_t;

/**
 * Opens the board.
 *
 * @param [in] dir         The run directory.
 * @param [in] own         Cores of this worker, n_own of them, each below
 *                         BT_MAX_CORES.
 * @param [in] lent        Borrowed cores: those of other workers.
 * @param [out] board_p
 * @retval BT_ERR_NO_MEMORY, BT_ERR_IO
 */
BT_MUST_CHECK bt_status_t bt_core_demand_open(
    const char *dir, const uint32_t *own, uint32_t n_own, const uint32_t *lent,
    uint32_t n_lent, bt_core_demand_t **board_p);
/** Closes the board. NULL is allowed. */
void bt_core_demand_close(bt_core_demand_t *board);

/** Requests all borrowed cores until @a until_ns (by bt_now_ns()); 0 withdraws
 *  the request. @a board is a bt_core_demand_t. Makes no system call. */
void bt_core_demand_want(void *board, uint64_t until_ns);
/** Returns until when a worker wants one of this worker's own cores; 0 or a
 *  time in the past: none does. Makes no system call. */
uint64_t bt_core_demand_wanted(void *board);

#endif
