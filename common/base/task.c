/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/task.h"

#include <stddef.h>

/* Taken from the account at a time, so that small allocations are cheap. */
#define CREDIT_BYTES ((int64_t)16 * 1024)

static _Thread_local bt_task_t *current;

void bt_task_init(bt_task_t *task)
{
    atomic_init(&task->canceled, false);
    task->yield = NULL;
    task->ctx = NULL;
    task->account = NULL;
    task->credit = 0;
}

void bt_task_cancel(bt_task_t *task)
{
    atomic_store_explicit(&task->canceled, true, memory_order_relaxed);
}

bool bt_task_is_canceled(const bt_task_t *task)
{
    return atomic_load_explicit(&task->canceled, memory_order_relaxed);
}

bt_task_t *bt_task_enter(bt_task_t *task)
{
    bt_task_t *before = current;

    current = task;
    return before;
}

/* Settles the credit with the account: unused bytes go back; a negative
 * credit, which the rounding of sizes causes, is charged. */
static void settle(bt_task_t *task)
{
    if (task->credit > 0) {
        bt_account_give(task->account, (uint64_t)task->credit);
    } else if (task->credit < 0) {
        bt_account_add(task->account, (uint64_t)-task->credit);
    }
    task->credit = 0;
}

void bt_task_leave(bt_task_t *before)
{
    if ((current != NULL) && (current->account != NULL)) {
        settle(current);
    }
    current = before;
}

bool bt_task_may_allocate(size_t bytes)
{
    int64_t lacks;

    if (current == NULL) {
        return true;
    }
    if (bt_task_is_canceled(current)) {
        return false;
    }
    if (current->account == NULL) {
        return true;
    }
    if (bytes > INT64_MAX / 2) {
        return false;
    }
    lacks = (int64_t)bytes - current->credit;
    if (lacks <= 0) {
        return true;
    }
    lacks = (lacks < CREDIT_BYTES) ? CREDIT_BYTES : lacks;
    if (!bt_account_take(current->account, (uint64_t)lacks)) {
        return false;
    }
    current->credit += lacks;
    return true;
}

void bt_task_allocated(size_t bytes)
{
    if ((current != NULL) && (current->account != NULL)) {
        current->credit -= (int64_t)bytes;
    }
}

void bt_task_freed(size_t bytes)
{
    if ((current == NULL) || (current->account == NULL)) {
        return;
    }
    current->credit += (int64_t)bytes;
    if (current->credit > 4 * CREDIT_BYTES) {
        bt_account_give(current->account,
                        (uint64_t)(current->credit - CREDIT_BYTES));
        current->credit = CREDIT_BYTES;
    }
}

bool bt_task_poll(void)
{
    if ((current != NULL) && (current->yield != NULL)) {
        current->yield(current->ctx);
    }
    return bt_task_gives_up();
}

bool bt_task_gives_up(void)
{
    return (current != NULL) && bt_task_is_canceled(current);
}
