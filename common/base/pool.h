/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool.h
 *
 * Thread pool for an event loop: a few threads that run its long jobs.
 *
 *     owner: post() ──▶ queued ──▶ run(), on a thread of the pool
 *                                    │
 *     owner: done() ◀── next() ◀── finished ──▶ fd() becomes readable
 *
 * Jobs wait in queues, one for each class of length. All threads serve the
 * first queue before others, so it is for short and rare jobs. Of the rest, one
 * thread serves only the short queue, the others serve the long one first: so
 * neither queue starves, and a short job never waits for more than one long job
 * per thread. The longest jobs have the background queue, whose single thread
 * yields to others that compute (thread.h). Disk I/O has its own queue and
 * thread, too.
 *
 * Each queue but the first may have a scheduling order of its owner
 * (bt_pool_set_order()); otherwise it is first come, first served. A job of the
 * long or background queue that polls is interrupted for jobs of its queue that
 * are expected to take half as long or less: its thread runs them on the spot,
 * for at most half of the time.
 *
 *     long job ████████▒▒▒▒██████▒▒████████   ▒ shorter ones, run inside
 *
 * The done() of each posted job is called exactly once, in the order in which
 * jobs finished; a job that was canceled before its turn, or was not run when
 * the pool stops, has `ran` false in it. A job runs as its own task (task.h),
 * which bt_pool_cancel() cancels.
 *
 * Threads: one owner, which alone calls these functions; run() is called on the
 *          pool's threads, done() on the owner's, from bt_pool_next() or
 *          bt_pool_stop().
 */
#ifndef BT_COMMON_BASE_POOL_H
#define BT_COMMON_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"
#include "common/base/task.h"

typedef struct bt_pool bt_pool_t;
typedef struct bt_pool_job bt_pool_job_t;

typedef enum bt_pool_queue {
    BT_POOL_FIRST,
    BT_POOL_SHORT,
    BT_POOL_LONG,
    BT_POOL_BACKGROUND,
    BT_POOL_FILES,
    BT_POOL_N_QUEUES,
} bt_pool_queue_t;

/** Job; embedded in the owner's object. The owner fills run and done; the
 *  job belongs to the pool from post() to done(). */
struct bt_pool_job {
    bt_list_t link;
    void (*run)(bt_pool_job_t *job);
    /** Callback on the owner's thread; may free the job or post it again. */
    void (*done)(bt_pool_job_t *job);
    bool ran;              /**< false in done(): canceled or stopped before
                                its turn */
    bool queued;           /**< set by the pool: no thread has begun the job */
    bt_pool_queue_t queue; /**< set by the pool */
    bt_task_t task;        /**< set by the pool */
    bt_account_t *account; /**< account of its allocations; borrowed, or NULL */
    void *position;        /**< position in the queue's order; NULL: before
                              all jobs that have one */
    uint64_t cost_us;      /**< expected time, if `position` is set */
};

/** Scheduling order of a queue's jobs that have a `position`. Called with the
 *  pool's lock, on any of its threads or the owner's: must not block. */
typedef struct bt_pool_order {
    void (*push)(void *ctx, bt_pool_job_t *job);
    /** Takes the next job that costs at most most_us. NULL: there is none. */
    bt_pool_job_t *(*pop)(void *ctx, uint64_t most_us);
    /** Removes a waiting job. */
    void (*remove)(void *ctx, bt_pool_job_t *job);
    /** Records that a popped job has taken took_us, or was not run after
     *  all. */
    void (*ended)(void *ctx, bt_pool_job_t *job, uint64_t took_us);
} bt_pool_order_t;

/** Numbers of jobs canceled since the pool was created. */
typedef struct bt_pool_canceled {
    uint64_t queued;  /**< removed before their turn */
    uint64_t running; /**< notified to give up */
} bt_pool_canceled_t;

/**
 * Creates a pool.
 * @param [in] n_threads  at least 2; the threads for background and files come
 *                        on top
 * @retval BT_ERR_NO_MEMORY, BT_ERR_IO (no descriptor or thread)
 */
BT_MUST_CHECK bt_status_t bt_pool_create(uint32_t n_threads,
                                         bt_pool_t **pool_p);
/** Sets the order of a queue, which is not BT_POOL_FIRST, before the first job.
 *  Borrowed. */
void bt_pool_set_order(bt_pool_t *pool, bt_pool_queue_t queue,
                       const bt_pool_order_t *order, void *ctx);
/** Queues a job. Never fails: the job brings its own memory, and the owner
 *  bounds their number. After bt_pool_stop() its done() is called at once. */
void bt_pool_post(bt_pool_t *pool, bt_pool_job_t *job, bt_pool_queue_t queue);
/** Cancels a posted job whose done() was not called yet. A queued job is
 *  removed at once and its done() is called by bt_pool_next(), with `ran`
 *  false; a running one is notified to give up (bt_task_poll()). */
void bt_pool_cancel(bt_pool_t *pool, bt_pool_job_t *job);
bt_pool_canceled_t bt_pool_canceled(const bt_pool_t *pool);
/** Returns the jobs that were run inside longer ones. */
uint64_t bt_pool_n_inside(const bt_pool_t *pool);
/** Returns a descriptor that is readable while there may be finished jobs. */
int bt_pool_fd(const bt_pool_t *pool);
/** Calls done() of one finished job. @return false: none has finished */
bool bt_pool_next(bt_pool_t *pool);
uint32_t
bt_pool_n_jobs(const bt_pool_t *pool); /**< posted, done() not called */

/** Waits for running jobs, starts no more, and calls done() of all.
 *  Idempotent. */
void bt_pool_stop(bt_pool_t *pool);
void bt_pool_destroy(bt_pool_t *pool); /**< stops it; NULL is allowed */

#endif
