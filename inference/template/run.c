/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bt_tmpl_run_init(bt_tmpl_run_t *run, size_t bytes, uint64_t steps)
{
    memset(run, 0, sizeof(*run));
    bt_tmpl_arena_init(&run->values, bytes);
    bt_tmpl_arena_init(&run->bytes, bytes);
    run->steps_left = steps;
}

void bt_tmpl_run_fini(bt_tmpl_run_t *run)
{
    bt_tmpl_arena_fini(&run->values);
    bt_tmpl_arena_fini(&run->bytes);
}

#include "common/base/task.h"

void bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
                      ...)
{
    va_list args;

    if (run->status != BT_OK) {
        return;
    }
    run->status = status;
    va_start(args, fmt);
    vsnprintf(run->why, sizeof(run->why), fmt, args);
    va_end(args);
}

void bt_tmpl_run_fail_memory(bt_tmpl_run_t *run, const bt_tmpl_arena_t *arena)
{
    bt_tmpl_run_fail(run, arena->status, "%s",
                     (arena->status == BT_ERR_TOO_LARGE)
                         ? "the template takes more memory than it may"
                         : "out of memory");
}

bool bt_tmpl_run_step(bt_tmpl_run_t *run, uint64_t n)
{
    if (n > run->steps_left) {
        run->steps_left = 0;
        bt_tmpl_run_fail(run, BT_ERR_TOO_LARGE,
                         "the template takes more steps than it may");
    } else if (bt_task_poll()) {
        bt_tmpl_run_fail(run, BT_ERR_CANCELED, "canceled");
    } else {
        run->steps_left -= n;
    }
    return run->status == BT_OK;
}

bool bt_tmpl_run_enter(bt_tmpl_run_t *run)
{
    if (run->depth >= BT_RUN_MAX_DEPTH) {
        bt_tmpl_run_fail(
            run, BT_ERR_TOO_LARGE,
            "more than %u values, blocks or calls within each other",
            BT_RUN_MAX_DEPTH);
    }
    if (run->status != BT_OK) {
        return false;
    }
    run->depth++;
    return true;
}

void *bt_tmpl_run_take(bt_tmpl_run_t *run, size_t n, size_t size)
{
    void *piece = (run->status == BT_OK)
                      ? bt_tmpl_arena_take(&run->values, n, size)
                      : NULL;

    if (piece == NULL) {
        bt_tmpl_run_fail_memory(run, &run->values);
    }
    return piece;
}
