/* SPDX-License-Identifier: Apache-2.0 */
/** @file run.h
 *
 * The state of one rendering that everybody needs: its memory, what it may
 * still spend, and its error. Errors stick: the first one is kept, with the
 * line of the template it happened in, and from then on nothing is done; who
 * loops asks bt_tmpl_run_ok() or bt_tmpl_run_step().
 *
 * Threads: a run belongs to one.
 */
#ifndef BT_INFERENCE_TEMPLATE_RUN_H
#define BT_INFERENCE_TEMPLATE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/template/arena.h"

#define BT_RUN_WHY_BYTES 512

/** Values and blocks within each other, calls of macros included. */
#define BT_RUN_MAX_DEPTH 200u

struct bt_tmpl_mark; /* value.h */

typedef struct bt_tmpl_run {
    bt_tmpl_arena_t values; /**< nodes, lists, marks */
    bt_tmpl_arena_t bytes;  /**< of texts: the newest can grow */
    /** The text that is added to again and again has room of its own behind
     *  it, whatever else was made meanwhile. */
    char *grows_at, *grows_end;
    uint32_t grows_len; /**< the longest keeps the place */
    struct bt_tmpl_mark
        *grows_marks; /**< of it; others see the first of them */
    uint32_t n_grows_marks, cap_grows_marks;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /**< of the template, where it is now */
    bt_status_t status;
    bool raised; /**< by the template itself: why is its message */
    char why[BT_RUN_WHY_BYTES];
} bt_tmpl_run_t;

/** @param [in] bytes  most of values, and of texts */
void bt_tmpl_run_init(bt_tmpl_run_t *run, size_t bytes, uint64_t steps);
void bt_tmpl_run_fini(bt_tmpl_run_t *run);

static inline bool bt_tmpl_run_ok(const bt_tmpl_run_t *run)
{
    return run->status == BT_OK;
}

/** The first failure only. @param [in] fmt  one sentence, without the line */
void bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
/** The arena's refusal. */
void bt_tmpl_run_fail_memory(bt_tmpl_run_t *run, const bt_tmpl_arena_t *arena);

/** Spend @a n steps. @return false: none are left, or it failed before */
bool bt_tmpl_run_step(bt_tmpl_run_t *run, uint64_t n);
/** Steps for work on @a n bytes. */
static inline bool bt_tmpl_run_step_bytes(bt_tmpl_run_t *run, uint64_t n)
{
    return bt_tmpl_run_step(run, 1 + n / 64);
}

/** One level deeper; after true comes bt_tmpl_run_leave(). */
bool bt_tmpl_run_enter(bt_tmpl_run_t *run);
static inline void bt_tmpl_run_leave(bt_tmpl_run_t *run)
{
    run->depth--;
}

/** Zeroed memory of the rendering, or NULL and failed. */
void *bt_tmpl_run_take(bt_tmpl_run_t *run, size_t n, size_t size);

#endif
