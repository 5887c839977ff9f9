/* SPDX-License-Identifier: Apache-2.0 */
/** @file task.h
 *
 * Cancellation and memory accounting of work on another thread. A thread enters
 * the task that it works for: its allocations and frees then count for the
 * task's account (budget.h). The owner of the task cancels it from its own
 * thread:
 *
 *     owner                         thread of a pool
 *       │                             enter(task)
 *       ├── cancel(task) ──────────▶  poll() is true, allocations fail
 *       │                             leave()
 *
 * Long loops call bt_task_poll() every few microseconds and give up when it is
 * true. They hold no lock there: the thread may run other work meanwhile
 * (bt_task_t.yield). Every allocation of a canceled task fails (alloc.h), so
 * code that handles failures ends soon too.
 *
 * Threads: bt_task_cancel() and bt_task_is_canceled() from any thread, the
 *          others about the calling thread only.
 */
#ifndef BT_COMMON_BASE_TASK_H
#define BT_COMMON_BASE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/budget.h"

/** Task of a thread. */
typedef struct bt_task {
    atomic_bool canceled;
    /** Callback of bt_task_poll() for work that cannot wait. NULL: none. */
    void (*yield)(void *ctx);
    void *ctx;
    bt_account_t *account; /**< borrowed; NULL: its memory is not counted */
    int64_t credit;        /**< bytes taken from the account and not used */
} bt_task_t;

/** Most small steps (some 10 ns each) of a loop between polls. */
#define BT_TASK_POLL_STEPS 1024u

void bt_task_init(bt_task_t *task);
void bt_task_cancel(bt_task_t *task);
bool bt_task_is_canceled(const bt_task_t *task);
/** True when the calling thread's task is canceled. False without a task. */
bool bt_task_gives_up(void);

/** Makes the calling thread work for @a task, borrowed until
 *  bt_task_leave(); NULL: for none. @return the previous task, for
 *  bt_task_leave() */
bt_task_t *bt_task_enter(bt_task_t *task);
void bt_task_leave(bt_task_t *before);
/**
 * Charges an allocation before it is made. For alloc.c.
 * @return false: the calling thread's task may not have it, or is canceled
 */
bool bt_task_may_allocate(size_t bytes);
void bt_task_allocated(size_t bytes); /**< records an allocation */
void bt_task_freed(size_t bytes);     /**< records a free */

/** Calls yield, then returns bt_task_gives_up(). */
bool bt_task_poll(void);

/** Calls bt_task_poll() once in BT_TASK_POLL_STEPS calls; @a steps is the
 *  loop's own counter, 0 at first. */
static inline bool bt_task_poll_every(unsigned *steps)
{
    return (++*steps % BT_TASK_POLL_STEPS == 0) && bt_task_poll();
}

#endif
