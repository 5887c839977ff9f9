/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/task.h"

#include <stddef.h>

static _Thread_local bt_task_t *current;

void bt_task_init(bt_task_t *task)
{
    atomic_init(&task->canceled, false);
    task->yield = NULL;
    task->ctx = NULL;
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

void bt_task_leave(bt_task_t *before)
{
    current = before;
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
