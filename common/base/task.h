/* SPDX-License-Identifier: Apache-2.0 */
/** @file task.h
 *
 * Work for one request on other threads: memory budget, accounts, cancellation.
 */
#ifndef BT_COMMON_BASE_TASK_H
#define BT_COMMON_BASE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"

/*
 * Memory budget for clients' requests: one budget of a process, a share of it
 * for each client, an account for each request. A thread that works for a
 * request enters a task with its account; then every allocation is
 * charged to the budget before it is made, and credited when it is freed:
 *
 *     budget (limit) ◀── share of a client (half) ◀── account ◀── allocations
 *      used                used                         held
 *
 *     refused: too large by itself  REQUEST   beyond a half of the limit
 *              the client's others  CLIENT    the client would have over a half
 *              all together         SERVER    over three quarters; over the
 *                                             limit for accounts up to 64 KiB
 *              the whole process    PROCESS   the process exceeds its memory
 *                                             limit
 *
 * Memory allocated under an account and freed elsewhere stays held until the
 * account's end.
 *
 * Threads: bt_account_take() and bt_account_give() from any thread; the rest
 *          the owner's.
 */

/** Size in bytes up to which accounts may use the last quarter. */
#define BT_BUDGET_SMALL_BYTES ((uint64_t)64 * 1024)

typedef enum bt_budget_refusal {
    BT_BUDGET_REQUEST,
    BT_BUDGET_CLIENT,
    BT_BUDGET_SERVER,
    BT_BUDGET_PROCESS,
    BT_BUDGET_N_REFUSALS, /**< not refused */
} bt_budget_refusal_t;

/** Budget of a process. */
typedef struct bt_budget {
    uint64_t limit; /**< bytes; UINT64_MAX: none */
    _Atomic uint64_t used;
    atomic_bool process_is_full; /**< only small accounts may take more */
    _Atomic uint64_t n_refused[BT_BUDGET_N_REFUSALS]; /**< accounts refused, by
                                                           reason */
    bt_list_t shares;
} bt_budget_t;

/** Share of one client. */
typedef struct bt_budget_share {
    bt_list_t link; /**< in budget->shares */
    uint64_t tenant, address;
    uint32_t n_accounts;
    _Atomic uint64_t used;
} bt_budget_share_t;

/** Account of one request. */
typedef struct bt_account {
    bt_budget_t *budget;
    bt_budget_share_t *share;
    _Atomic uint64_t held;
    _Atomic uint32_t refusal; /**< first refusal; bt_budget_refusal_t */
} bt_account_t;

void bt_budget_init(bt_budget_t *budget, uint64_t limit);
/** Charge or credit memory without an account. */
void bt_budget_take(bt_budget_t *budget, uint64_t bytes);
void bt_budget_give(bt_budget_t *budget, uint64_t bytes);
/** True when memory without an account, which has @a have bytes, may take @a
 *  more. */
bool bt_budget_allows(const bt_budget_t *budget, uint64_t have, uint64_t more);

/**
 * Creates an account.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_account_create(bt_budget_t *budget,
                                            uint64_t tenant, uint64_t address,
                                            bt_account_t **account_p);
/** Credits what is still held, and frees the account. NULL is allowed. */
void bt_account_destroy(bt_account_t *account);
/** Charges bytes to an account. @return false: refused, and nothing was
 *  taken */
BT_MUST_CHECK bool bt_account_take(bt_account_t *account, uint64_t bytes);
/** Credits bytes, at most as many as are held. */
void bt_account_give(bt_account_t *account, uint64_t bytes);
/** Returns the reason of the first refusal; BT_BUDGET_N_REFUSALS if none, or
 *  for NULL. */
bt_budget_refusal_t bt_account_refusal(const bt_account_t *account);

/*
 * Cancellation and memory accounting of work on another thread. A thread enters
 * the task that it works for: its allocations and frees then count for the
 * task's account. The owner of the task cancels it from its own
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

/** Task of a thread. */
typedef struct bt_task {
    atomic_bool canceled;
    /** Callback of bt_task_poll() for work that cannot wait. NULL: none. */
    void (*yield)(void *ctx);
    void *ctx;
    bt_account_t *account; /**< borrowed; NULL: its memory is not counted */
    int64_t credit;        /**< bytes taken from the account and not used */
    uint64_t away_ns; /**< CPU time of other work in yield, which it adds */
} bt_task_t;

/** Most small steps (some 10 ns each) of a loop between polls. */
#define BT_TASK_POLL_STEPS 1024u

void bt_task_init(bt_task_t *task);
void bt_task_cancel(bt_task_t *task);
bool bt_task_is_canceled(const bt_task_t *task);

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

/** Calls yield. @return true: the calling thread's task is canceled */
bool bt_task_poll(void);

/** Returns the CPU time of the calling thread, without that of other work in
 *  polls of its task: a difference of two is what the task itself has taken. */
uint64_t bt_task_cpu_ns(void);

/** Calls bt_task_poll() once in BT_TASK_POLL_STEPS calls; @a steps is the
 *  loop's own counter, 0 at first. */
static inline bool bt_task_poll_every(unsigned *steps)
{
    return (++*steps % BT_TASK_POLL_STEPS == 0) && bt_task_poll();
}

#endif
