/* SPDX-License-Identifier: Apache-2.0 */
/** @file task.h
 *
 * Cancellation and memory of work on another thread. A thread enters the task
 * that it works for: what it allocates and frees meanwhile counts for the
 * task's account (budget.h). The owner of the task cancels it from its own
 * thread:
 *
 *     owner                         thread of a pool
 *       │                             enter(task)
 *       ├── cancel(task) ──────────▶  poll() is true, allocations fail
 *       │                             leave()
 *
 * Loops that run for long call bt_task_poll() every few microseconds and give
 * up when it is true. They hold no lock there: the thread may run other work
 * meanwhile (bt_task_t.yield). Every allocation of a canceled task fails
 * (alloc.h), so code that handles those ends soon too.
 *
 * Threads: bt_task_cancel() and bt_task_is_canceled() from any thread, the
 * others about the calling thread alone.
 */
#ifndef BT_COMMON_BASE_TASK_H
#define BT_COMMON_BASE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/budget.h"

typedef struct bt_task {
    atomic_bool canceled;
    /** Called by bt_task_poll(): does what cannot wait. NULL: nothing. */
    void (*yield)(void *ctx);
    void *ctx;
    bt_account_t *account; /**< borrowed; NULL: its memory is not counted */
    int64_t credit;        /**< taken from the account, and not used */
} bt_task_t;

/** Polls of a loop may be this many small steps apart (some 10 ns each). */
#define BT_TASK_POLL_STEPS 1024u

void bt_task_init(bt_task_t *task);
void bt_task_cancel(bt_task_t *task);
bool bt_task_is_canceled(const bt_task_t *task);
/** Is the calling thread's task canceled? Without a task false. */
bool bt_task_gives_up(void);

/** The calling thread works for @a task, borrowed until bt_task_leave(); NULL:
 *  for none. @return the task of before, for bt_task_leave() */
bt_task_t *bt_task_enter(bt_task_t *task);
void bt_task_leave(bt_task_t *before);
/** For alloc.c. Before memory of so many bytes is asked for.
 *  @return false: the calling thread's task may not have it, or is canceled */
bool bt_task_may_allocate(size_t bytes);
void bt_task_allocated(size_t bytes); /**< so many more are there */
void bt_task_freed(size_t bytes);     /**< so many fewer */

/** Yield, then bt_task_gives_up(). */
bool bt_task_poll(void);

/** bt_task_poll() every BT_TASK_POLL_STEPS calls; @a steps is the loop's own
 *  counter, 0 at first. */
static inline bool bt_task_poll_every(unsigned *steps)
{
    return (++*steps % BT_TASK_POLL_STEPS == 0) && bt_task_poll();
}

#endif
