/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool.h
 *
 * Thread pool of a CPU back end: one parallel-for at a time, started by the
 * thread that drives the back end, which takes part.
 *
 * Each thread has a share of adjacent items, which it takes in chunks, so that
 * it reads weights as one stream; a thread that is done steals from other
 * shares. So a helper that is not scheduled (few cores, other processes) never
 * delays the others. The thread that computes an item never changes its value.
 *
 * **Lent cores** (bt_cpu_pool_lend()). Additional threads, each on a borrowed
 * core that belongs to another thread or process and is idle at times, take
 * part while the core's owner sleeps. They run in the kernel's idle scheduling
 * class, so the kernel preempts them when the owner wakes, at any instruction,
 * for as long as the owner works:
 *
 *     owner's thread   ██████░ sleeps ░░░░░░░░░░░░░░░░░░████████████
 *     lent thread             ┌piece┐┌piece┐┌piece┐┌pie┊   preempted
 *     caller's thread  ┌piece┐┌piece┐┌piece┐┌piece┐┌piece┐┌redone piece┐
 *
 * - No thread waits for a preempted lent thread. When all other items of a job
 *   are done, the caller gives lent threads inside the job the time of two
 *   pieces, which a running thread does not need, and then *tears out* the
 *   unfinished ones: such a thread executes no further instruction of the job,
 *   whenever it runs again. The caller redoes the piece it had begun. So a lent
 *   thread cannot write, or read changed data, after the job's end; nothing is
 *   copied, and no job needs to be safe against it.
 * - A piece may be done twice, the first time partially: job->fn must give the
 *   same bytes again. Most functions do, as they do not write what they read. A
 *   function that changes its data in place has job->keep().
 * - fn, prepare and keep may be abandoned at any instruction when a lent thread
 *   calls them: no locks, no allocation, nothing but arithmetic on memory.
 * - Without work for 300 us lent threads sleep and use no CPU time; the first
 *   job for them wakes them, an occasional system call.
 * - No privilege is needed: SCHED_IDLE (nice 19 where that is refused), and
 *   membarrier(2), without which no cores are borrowed. lent.c has the proof.
 *
 * Waiting: a helper spins for some 300 us if there is a core for each thread,
 * else for 20 us, then sleeps on a futex; the caller wakes helpers only when
 * one sleeps.
 */
#ifndef BT_KERNELS_CPU_POOL_H
#define BT_KERNELS_CPU_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/kernels.h"

typedef struct bt_cpu_pool bt_cpu_pool_t;

/** Processes items begin .. end-1; @a thread (0 = the caller) selects
 *  scratch. */
typedef void (*bt_cpu_job_fn)(void *ctx, uint32_t thread, uint32_t begin,
                              uint32_t end);

/**
 * Creates a pool.
 *
 * @param [in]  n_threads  At least 1, including the caller.
 * @param [in]  cores      n_threads core ids to pin to, the caller's first; or
 *     NULL. An unusable core is a warning.
 * @retval BT_ERR_INVALID_PARAM  n_threads is 0 or above 1024.
 * @retval BT_ERR_NO_MEMORY      Memory or threads.
 */
BT_MUST_CHECK bt_status_t bt_cpu_pool_create(uint32_t n_threads,
                                             const uint32_t *cores,
                                             bt_cpu_pool_t **pool_p);

/** Ends the helpers and frees the pool. NULL is allowed. */
void bt_cpu_pool_destroy(bt_cpu_pool_t *pool);

/** Returns the number of own threads and threads on borrowed cores: job
 *  functions need one scratch slot for each thread number. */
uint32_t bt_cpu_pool_slots(const bt_cpu_pool_t *pool);

#define BT_CPU_MAX_LENT 64u

/**
 * Adds threads on borrowed cores, which compute while the cores' owners are
 * idle. Call once, before jobs run; lasts as long as the pool.
 *
 * @param [in] cores       n core ids to pin to, the nearest first; NULL: not
 *     pinned. An unusable core is a warning.
 * @param [in] n           1 .. BT_CPU_MAX_LENT
 * @param [in] keep_bytes  Bytes that bt_cpu_job_t.keep() may need for one
 *     piece; lent threads do not take pieces that need more.
 * @retval BT_ERR_UNSUPPORTED    The kernel has no private membarrier.
 * @retval BT_ERR_INVALID_PARAM  n, or called before.
 * @retval BT_ERR_NO_MEMORY      Memory or threads. After each of these errors
 *     the pool works as before.
 */
BT_MUST_CHECK bt_status_t bt_cpu_pool_lend(bt_cpu_pool_t *pool,
                                           const uint32_t *cores, uint32_t n,
                                           size_t keep_bytes);

/** Reports the work of lent threads since the pool began; any thread may call
 *  it. */
void bt_cpu_pool_lent_stats(const bt_cpu_pool_t *pool,
                            bt_lent_stats_t *stats_p);

/** Data that a later job will read: n_items adjacent pieces. While waiting for
 *  a job, each thread prefetches the start of its share between polls, so that
 *  memory is busy meanwhile. Changes no result. */
typedef struct bt_cpu_ahead {
    const uint8_t *data; /**< NULL: nothing */
    size_t item_bytes;
    uint32_t n_items;
} bt_cpu_ahead_t;

typedef struct bt_cpu_job {
    /** Per-thread preparation, called by each thread that takes items, once,
     *  before them: data that every thread makes for itself needs no job and no
     *  barrier of its own. NULL: none. */
    void (*prepare)(void *ctx, uint32_t thread);
    bt_cpu_job_fn fn;
    void *ctx;
    uint32_t n_items;
    uint32_t grain; /**< items per chunk, at least 1 */
    bt_cpu_ahead_t ahead;
    bool keeps_ahead; /**< `ahead` is not set: the earlier request stays */
    bool lend;        /**< lent threads may take part */
    /** Saves to @a copy, keep_bytes for each item, the data that fn changes
     *  in place for items begin .. end - 1, or restores it (@a back). NULL:
     *  none. */
    void (*keep)(void *ctx, uint32_t begin, uint32_t end, void *copy,
                 bool back);
    size_t keep_bytes;
} bt_cpu_job_t;

/** Runs job->fn over items 0 .. n_items-1 in chunks of job->grain and returns
 *  when all are done. */
void bt_cpu_pool_run_job(bt_cpu_pool_t *pool, const bt_cpu_job_t *job);

/** Runs @a fn like bt_cpu_pool_run_job(), without preparation and on own
 *  threads only; the prefetch request stays. */
void bt_cpu_pool_run(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                     bt_cpu_job_fn fn, void *ctx);

/** Runs @a fn like bt_cpu_pool_run(), with lent threads taking part. */
void bt_cpu_pool_run_lent(bt_cpu_pool_t *pool, uint32_t n_items, uint32_t grain,
                          bt_cpu_job_fn fn, void *ctx);

#endif
