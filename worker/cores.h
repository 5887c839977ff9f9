/* SPDX-License-Identifier: Apache-2.0 */
/** @file cores.h
 *
 * Cores of a worker: how many threads compute, on which cores, which cores the
 * workers of one host ask each other for, and a compute thread that is stuck.
 */
#ifndef BT_WORKER_CORES_H
#define BT_WORKER_CORES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* Cores and number of threads that a worker computes with. */

#define BT_MAX_CORES 1024

/** Parses a list like "0-3,8". Empty text gives 0 cores: do not pin.
 *  @retval BT_ERR_INVALID_PARAM  malformed, or a core this process may not use
 *                                (logged) */
BT_MUST_CHECK bt_status_t bt_cores_parse(const char *text,
                                         uint32_t cores[BT_MAX_CORES],
                                         uint32_t *n_p);

/** Returns the number of threads to use: @a asked, else one per core given,
 *  else one per CPU that this process may compute on (limits.h). With a cgroup
 *  quota the default is at most the quota's whole CPUs, which is logged. */
uint32_t bt_cores_threads(uint32_t asked, uint32_t n_cores);

/** Returns how many of @a n_lent borrowed cores to compute on beside
 *  @a n_threads threads. With a cgroup quota it is at most what the quota
 *  leaves, since time on borrowed cores counts against this process. */
uint32_t bt_cores_lent(uint32_t n_threads, uint32_t n_lent);

/*
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

/*
 * Watchdog of the compute thread. Its marks (bt_engine_progress()) change with
 * every operation of a layer, so the check does not depend on how long a step
 * takes, only on how long no operation ends.
 *
 * Time between two looks counts at most an eighth of the limit: after this
 * process was stopped or got no CPU, all its threads had stood still, so the
 * compute thread is not to blame.
 *
 * Pure: marks and time in, the verdict out.
 */

/** Least number of looks without a new mark before the limit is reached. */
#define BT_STUCK_LOOKS 8

typedef struct bt_compute_watchdog {
    bool busy;          /**< the thread had work at the last look */
    uint64_t marks;     /**< marks at the last look */
    uint64_t looked_ms; /**< time of the last look */
    uint64_t still_ms;  /**< time for which the marks have not changed */
} bt_compute_watchdog_t;

/** Checks once; @a stuck is all zeros before the first time.
 *  @param [in] busy   the thread has work; without, no progress is expected
 *  @param [in] marks  any number that changes with progress
 *  @param [in] now_ms  monotonic
 *  @return whether the thread had work and made no progress for @a limit_ms */
bool bt_compute_watchdog_check(bt_compute_watchdog_t *stuck, bool busy,
                               uint64_t marks, uint64_t now_ms,
                               uint32_t limit_ms);

#endif
