/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool.h
 *
 * The thread group of a CPU back end: one parallel-for at a time, started by
 * the one thread that drives the back end, which works along.
 *
 * Each thread has a share of neighbouring items, which it takes in chunks, so
 * that it reads weights as one stream; who is done takes of the others' shares.
 * So a helper that is not scheduled (few cores, other processes) never holds
 * the others up. Which thread computes an item never changes its value.
 *
 * Waiting: a helper spins for some 300 us where there is a core for each
 * thread, else for 20 us, then sleeps on a futex; the caller wakes helpers only
 * when one sleeps.
 */
#ifndef BT_KERNELS_CPU_POOL_H
#define BT_KERNELS_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_cpu_pool bt_cpu_pool_t;

/** Work on items begin .. end-1; @a thread (0 = the caller) picks scratch. */
typedef void (*bt_cpu_job_fn)(void *ctx, uint32_t thread, uint32_t begin,
                              uint32_t end);

/**
 * @param [in]  n_threads  At least 1, the caller counted in.
 * @param [in]  cores      n_threads core ids to pin to, the caller's first;
 *                         or NULL. A core that may not be used is a warning.
 * @retval BT_ERR_INVALID_PARAM  n_threads is 0 or above 1024.
 * @retval BT_ERR_NO_MEMORY      Memory or threads.
 */
BT_MUST_CHECK bt_status_t bt_cpu_pool_create(uint32_t n_threads,
                                             const uint32_t *cores,
                                             bt_cpu_pool_t **pool_p);

/** Ends the helpers. NULL is allowed. */
void bt_cpu_pool_destroy(bt_cpu_pool_t *pool);

uint32_t bt_cpu_pool_threads(const bt_cpu_pool_t *pool);

/** What a later job will read: n_items neighbouring pieces. Each thread asks
 *  for the first of its share while it waits, from one look at whether there is
 *  a job to the next, so that memory is busy meanwhile. Changes no result. */
typedef struct bt_cpu_ahead {
    const uint8_t *data; /**< NULL: nothing */
    size_t item_bytes;
    uint32_t n_items;
} bt_cpu_ahead_t;

typedef struct bt_cpu_job {
    /** NULL, or called by each thread that takes items, once, before them: what
     *  every thread makes for itself needs no job and no barrier of its own. */
    void (*prepare)(void *ctx, uint32_t thread);
    bt_cpu_job_fn fn;
    void *ctx;
    uint32_t n_items;
    uint32_t grain; /**< items of a chunk, at least 1 */
    bt_cpu_ahead_t ahead;
} bt_cpu_job_t;

/** Run job->fn over items 0 .. n_items-1 in chunks of job->grain and return
 *  when all are done. */
void bt_cpu_pool_run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job);

/** The same without preparation; what is asked for ahead stays. */
void bt_cpu_pool_run(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                     bt_cpu_job_fn fn, void *ctx);

#endif
