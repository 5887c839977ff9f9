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
 * **Lent cores** (bt_cpu_pool_lend()). More threads, each on a core that
 * belongs to somebody else and is idle now and then, take part while that
 * core's owner sleeps. They are of the kernel's idle class, so it takes the
 * core from them when the owner wakes, at any instruction, for as long as the
 * owner works:
 *
 *     owner's thread   ██████░ sleeps ░░░░░░░░░░░░░░░░░░████████████
 *     lent thread             ┌piece┐┌piece┐┌piece┐┌pie┊               stopped
 *     caller's thread  ┌piece┐┌piece┐┌piece┐┌piece┐┌piece┐┌piece again┐ next
 *
 * - Nobody waits for a lent thread. When all other items of a job are done the
 *   caller gives those inside the time of two pieces, which one that runs does
 *   not need, and then *tears out* who is not through: the thread executes no
 *   further instruction of the job, whenever it runs again. What it had begun
 *   the caller does again. So it cannot write, or read what has changed, after
 *   the job's end; nothing is copied, and no job needs to be safe against it.
 * - A piece may be done twice, the first time in part: job->fn gives the same
 *   bytes again, which most do by themselves since they write elsewhere than
 *   they read. Who changes its data in place has job->keep().
 * - fn, prepare and keep may be left at any instruction when a lent thread
 *   calls them: no locks, no allocation, nothing but arithmetic on memory.
 * - Without work for 300 us lent threads sleep, and take nothing of the core;
 *   the first job that is for them wakes them, one system call now and then.
 * - Needs no privilege: SCHED_IDLE (nice 19 where that is refused), and
 *   membarrier(2), without which nothing is lent. See lent.c for the proof.
 *
 * Waiting: a helper spins for some 300 us where there is a core for each
 * thread, else for 20 us, then sleeps on a futex; the caller wakes helpers only
 * when one sleeps.
 */
#ifndef BT_KERNELS_CPU_POOL_H
#define BT_KERNELS_CPU_POOL_H

#include <stdbool.h>
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

/** Own threads, the caller counted in. */
uint32_t bt_cpu_pool_threads(const bt_cpu_pool_t *pool);
/** Those and the ones on lent cores: how many scratch places job functions
 *  need, one for each number that they are called with. */
uint32_t bt_cpu_pool_places(const bt_cpu_pool_t *pool);

#define BT_CPU_MAX_LENT 64u

/**
 * Compute on other people's cores too, while they are idle. Once, before jobs
 * run; ends with the pool.
 *
 * @param [in] cores       n core ids to pin to, the nearest first; NULL: not
 *                         pinned. A core that may not be used is a warning.
 * @param [in] n           1 .. BT_CPU_MAX_LENT
 * @param [in] keep_bytes  What bt_cpu_job_t.keep() may need for one piece;
 *                         pieces that need more are not lent.
 * @retval BT_ERR_UNSUPPORTED    The kernel has no private membarrier.
 * @retval BT_ERR_INVALID_PARAM  n, or called before.
 * @retval BT_ERR_NO_MEMORY      Memory or threads. After each of these the pool
 *                               works as before.
 */
BT_MUST_CHECK bt_status_t bt_cpu_pool_lend(bt_cpu_pool_t *pool,
                                           const uint32_t *cores, uint32_t n,
                                           size_t keep_bytes);

typedef struct bt_cpu_lent_stats {
    uint64_t pieces;  /**< done by lent threads */
    uint64_t busy_ns; /**< that they computed */
    uint64_t again;   /**< pieces that had to be done a second time */
} bt_cpu_lent_stats_t;

/** Since the pool began; any thread may ask. */
void bt_cpu_pool_lent_stats(const bt_cpu_pool_t *pool,
                            bt_cpu_lent_stats_t *stats_p);

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
    bool keeps_ahead; /**< `ahead` is not said: what was asked for stays */
    bool lend;        /**< lent threads may take part */
    /** NULL, or what fn changes in place of items begin .. end - 1 goes to
     *  @a copy, keep_bytes for each item, or @a back from there. */
    void (*keep)(void *ctx, uint32_t begin, uint32_t end, void *copy,
                 bool back);
    size_t keep_bytes;
} bt_cpu_job_t;

/** Run job->fn over items 0 .. n_items-1 in chunks of job->grain and return
 *  when all are done. */
void bt_cpu_pool_run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job);

/** The same without preparation, for own threads; what is asked for ahead
 *  stays. */
void bt_cpu_pool_run(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                     bt_cpu_job_fn fn, void *ctx);

/** bt_cpu_pool_run() of which lent threads may do a part. */
void bt_cpu_pool_run_lent(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                          bt_cpu_job_fn fn, void *ctx);

#endif
