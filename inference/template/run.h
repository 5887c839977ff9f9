/* SPDX-License-Identifier: Apache-2.0 */
/** @file run.h
 *
 * Common state of one rendering: its memory, its remaining budget, and its
 * error. Errors stick: the first one is kept, with its line in the template,
 * and from then on all operations do nothing; loops must check bt_tmpl_run_ok()
 * or bt_tmpl_run_step().
 *
 * Threads: a run belongs to one thread.
 */
#ifndef BT_INFERENCE_TEMPLATE_RUN_H
#define BT_INFERENCE_TEMPLATE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/template/arena.h"

#define BT_RUN_WHY_BYTES 512

/** Most levels of nested values and blocks, including macro calls. */
#define BT_RUN_MAX_DEPTH 200u

struct bt_tmpl_mark; /* value.h */

typedef struct bt_tmpl_run {
    bt_tmpl_arena_t values; /**< nodes, lists, marks */
    bt_tmpl_arena_t bytes;  /**< texts: the newest can grow */
    /** Reserved space behind the text that is appended to repeatedly,
     *  unaffected by other allocations. */
    char *grows_at, *grows_end;
    uint32_t grows_len; /**< length of that text; only one at least as
                             long replaces it */
    struct bt_tmpl_mark *grows_marks; /**< marks of that text; other texts share
                                         a prefix of them */
    uint32_t n_grows_marks, cap_grows_marks;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /**< current line of the template */
    bt_status_t status;
    bool raised; /**< by the template itself: why is its message */
    char why[BT_RUN_WHY_BYTES];
} bt_tmpl_run_t;

/** Initializes a rendering.
 *  @param [in] bytes  most bytes of values, and of texts */
void bt_tmpl_run_init(bt_tmpl_run_t *run, size_t bytes, uint64_t steps);
void bt_tmpl_run_fini(bt_tmpl_run_t *run);

static inline bool bt_tmpl_run_ok(const bt_tmpl_run_t *run)
{
    return run->status == BT_OK;
}

/** Records a failure, if it is the first.
 *  @param [in] fmt  one sentence, without the line */
void bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
/** Records that the arena refused memory. */
void bt_tmpl_run_fail_memory(bt_tmpl_run_t *run, const bt_tmpl_arena_t *arena);

/** Spends @a n steps. @return false: none are left, or the run has failed */
bool bt_tmpl_run_step(bt_tmpl_run_t *run, uint64_t n);
/** Spends steps for work on @a n bytes. */
static inline bool bt_tmpl_run_step_bytes(bt_tmpl_run_t *run, uint64_t n)
{
    return bt_tmpl_run_step(run, 1 + n / 64);
}

/** Enters one more level of nesting; pair with bt_tmpl_run_leave() when
 *  true. */
bool bt_tmpl_run_enter(bt_tmpl_run_t *run);
static inline void bt_tmpl_run_leave(bt_tmpl_run_t *run)
{
    run->depth--;
}

/** Allocates zeroed memory of the rendering, or returns NULL and fails. */
void *bt_tmpl_run_take(bt_tmpl_run_t *run, size_t n, size_t size);

#endif
