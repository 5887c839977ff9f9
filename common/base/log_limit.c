/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/log_limit.h"

#include <stddef.h>

/* One of the table, or NULL: it is full. */
static bt_log_kind_t *find(bt_log_limit_t *limit, const char *format)
{
    const uint32_t mask = BT_LOG_LIMIT_KINDS - 1;
    /* Fibonacci hashing of the address. */
    const uint64_t hash = (uint64_t)(uintptr_t)format * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & mask;

    for (uint32_t i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        bt_log_kind_t *const kind = &limit->kinds[(at + i) & mask];

        if (kind->format == format) {
            return kind;
        }
        if (kind->format == NULL) {
            kind->format = format;
            return kind;
        }
    }
    return NULL;
}

bool bt_log_limit_take(bt_log_limit_t *limit, const char *format, int level,
                       uint64_t now_ms)
{
    bt_log_kind_t *const kind = find(limit, format);

    if (kind == NULL) {
        return true;
    }
    if ((kind->n_lines == 0) || (now_ms - kind->begin_ms >= BT_LOG_LIMIT_MS)) {
        kind->begin_ms = now_ms;
        kind->n_lines = 0;
    }
    if (kind->n_lines < BT_LOG_LIMIT_LINES) {
        kind->n_lines++;
        return true;
    }
    if (kind->n_held == 0) {
        const uint64_t due_ms = kind->begin_ms + BT_LOG_LIMIT_MS;

        if ((limit->n_holding == 0) || (due_ms < limit->due_ms)) {
            limit->due_ms = due_ms;
        }
        limit->n_holding++;
    }
    kind->n_held++;
    kind->level = level;
    return false;
}

bool bt_log_limit_over(bt_log_limit_t *limit, uint64_t now_ms,
                       bt_log_kind_t *told_p)
{
    uint64_t due_ms = UINT64_MAX;

    if ((limit->n_holding == 0) || (now_ms < limit->due_ms)) {
        return false;
    }
    for (uint32_t i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        bt_log_kind_t *const kind = &limit->kinds[i];
        const uint64_t at_ms = kind->begin_ms + BT_LOG_LIMIT_MS;

        if (kind->n_held == 0) {
            continue;
        }
        if (now_ms >= at_ms) {
            *told_p = *kind;
            kind->n_held = 0;
            limit->n_holding--;
            return true;
        }
        due_ms = (at_ms < due_ms) ? at_ms : due_ms;
    }
    limit->due_ms = due_ms;
    return false;
}
