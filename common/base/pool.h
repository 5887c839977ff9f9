/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool.h
 *
 * A few threads that do for an event loop what takes long.
 *
 *     owner: post() ──▶ queued ──▶ run(), on a thread of the pool
 *                                    │
 *     owner: done() ◀── next() ◀── finished ──▶ fd() becomes readable
 *
 * There are lanes. All threads take from the first lane before others, so it is
 * for what is soon done and seldom. Of the rest, one thread takes from the
 * short lane alone, the others from the long one first: so neither waits for
 * the other for ever, and what is short never waits for more than one job of
 * the long lane per thread. What takes longest has the background lane, whose
 * one thread gives way to others that compute (thread.h). What waits for disks
 * has a lane and a thread of its own, too.
 *
 * The short, the long and the background lane may have an order of their
 * owner's (bt_pool_set_order()); otherwise they are first come, first served. A
 * job of the last two that polls lets others of its lane go first that are
 * expected to take half as long or less: its thread runs them there and then,
 * for half of the time at most.
 *
 *     long job ████████▒▒▒▒██████▒▒████████   ▒ shorter ones, run inside
 *
 * Each posted job's done() is called exactly once, in the order in which they
 * finished; a job that was canceled before its turn, or was not run when the
 * pool stops, has `ran` false in it. A job runs as its own task (task.h), which
 * bt_pool_cancel() cancels.
 *
 * Threads: one owner, who alone calls these functions; run() is called on the
 * pool's threads, done() on the owner's, from bt_pool_next() or
 * bt_pool_stop().
 */
#ifndef BT_COMMON_BASE_POOL_H
#define BT_COMMON_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/base/task.h"

typedef struct bt_pool bt_pool_t;
typedef struct bt_pool_job bt_pool_job_t;

typedef enum bt_pool_lane {
    BT_POOL_FIRST,
    BT_POOL_SHORT,
    BT_POOL_LONG,
    BT_POOL_BACKGROUND,
    BT_POOL_FILES,
    BT_POOL_N_LANES,
} bt_pool_lane_t;

/** Embedded in whatever the job is about. Its owner fills run and done; it
 *  belongs to the pool from post() to done(). */
struct bt_pool_job {
    bt_list_t link;
    void (*run)(bt_pool_job_t *job);
    /** May free the job or post it again. */
    void (*done)(bt_pool_job_t *job);
    bool ran;              /**< false in done(): canceled or stopped before its
                                turn */
    bool queued;           /**< the pool's: no thread has begun it */
    bt_pool_lane_t lane;   /**< the pool's */
    bt_task_t task;        /**< the pool's */
    bt_account_t *account; /**< of what it allocates; borrowed, or NULL */
    void *place;           /**< of the lane's order; NULL: it comes before those
                                that have one */
    uint64_t cost_us;      /**< with a place: what it is expected to take */
};

/** In which order the jobs of a lane run that have a place. Called with the
 *  pool's lock, on any of its threads or the owner's: must not block. */
typedef struct bt_pool_order {
    void (*push)(void *ctx, bt_pool_job_t *job);
    /** Takes the next one that costs at most so much. NULL: there is none. */
    bt_pool_job_t *(*pop)(void *ctx, uint64_t most_us);
    /** One that waits is not needed any more. */
    void (*remove)(void *ctx, bt_pool_job_t *job);
    /** One that was popped has taken so much, or was not run after all. */
    void (*ended)(void *ctx, bt_pool_job_t *job, uint64_t took_us);
} bt_pool_order_t;

/** Jobs that were canceled since the pool was made. */
typedef struct bt_pool_canceled {
    uint64_t queued;  /**< removed before their turn */
    uint64_t running; /**< told to give up */
} bt_pool_canceled_t;

/** @param [in] n_threads  at least 2; those of the background and for files
 *                         come on top
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO (no descriptor or thread) */
BT_MUST_CHECK bt_status_t bt_pool_create(uint32_t n_threads,
                                         bt_pool_t **pool_p);
/** Of BT_POOL_SHORT, BT_POOL_LONG or BT_POOL_BACKGROUND, before the first job.
 *  Borrowed. */
void bt_pool_set_order(bt_pool_t *pool, bt_pool_lane_t lane,
                       const bt_pool_order_t *order, void *ctx);
/** Never fails: the job brings its own memory. How many may wait is the
 *  owner's to say. After bt_pool_stop() its done() is called at once. */
void bt_pool_post(bt_pool_t *pool, bt_pool_job_t *job, bt_pool_lane_t lane);
/** Nobody needs what a posted job makes, whose done() was not called yet. One
 *  that waits is removed at once and its done() is called by bt_pool_next(),
 *  with `ran` false; one that runs is told to give up (bt_task_poll()). */
void bt_pool_cancel(bt_pool_t *pool, bt_pool_job_t *job);
bt_pool_canceled_t bt_pool_canceled(const bt_pool_t *pool);
/** Jobs that were run inside longer ones. */
uint64_t bt_pool_n_inside(const bt_pool_t *pool);
/** Readable while there may be finished jobs. */
int bt_pool_fd(const bt_pool_t *pool);
/** Calls done() of one finished job. @return false: none has finished */
bool bt_pool_next(bt_pool_t *pool);
uint32_t
bt_pool_n_jobs(const bt_pool_t *pool); /**< posted, done() not called */

/** Lets the jobs end that are being run, runs no more, and calls done() of all.
 *  Idempotent. */
void bt_pool_stop(bt_pool_t *pool);
void bt_pool_destroy(bt_pool_t *pool); /**< stops it; NULL is allowed */

#endif
