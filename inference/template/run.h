/* SPDX-License-Identifier: Apache-2.0 */
/** @file run.h
 *
 * Rendering of one template: its memory, its bounds, and its error.
 */
#ifndef BT_INFERENCE_TEMPLATE_RUN_H
#define BT_INFERENCE_TEMPLATE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/*
 * Arena of one template, or of one rendering: memory is allocated piece by
 * piece, freed all at once, and never exceeds a limit. The newest piece can
 * grow in place, so a text that is appended to repeatedly is not copied each
 * time.
 *
 * Threads: an arena belongs to one thread.
 */

typedef struct bt_tmpl_arena_chunk bt_tmpl_arena_chunk_t;

typedef struct bt_tmpl_arena {
    bt_tmpl_arena_chunk_t *chunks; /**< owned, the newest first */
    char *at;                      /**< next free byte of the newest chunk */
    char *end;
    size_t used_bytes;  /**< bytes of all chunks */
    size_t limit_bytes; /**< most bytes of all chunks */
    bt_status_t status; /**< reason for the last refused piece */
} bt_tmpl_arena_t;

/** Initializes an arena; allocates nothing. */
void bt_tmpl_arena_init(bt_tmpl_arena_t *arena, size_t limit_bytes);
void bt_tmpl_arena_fini(bt_tmpl_arena_t *arena);

/** Allocates @a n elements, zeroed, aligned for any type.
 *  @return NULL: the limit is reached or memory is short; arena->status says
 *          which */
void *bt_tmpl_arena_take(bt_tmpl_arena_t *arena, size_t n, size_t size);
/** Allocates bytes that are neither zeroed nor aligned. */
char *bt_tmpl_arena_take_bytes(bt_tmpl_arena_t *arena, size_t n);
/** Extends the newest piece, which must end at @a end, by @a n bytes.
 *  @return false: another piece is there, or no space; nothing was changed */
bool bt_tmpl_arena_extend(bt_tmpl_arena_t *arena, const char *end, size_t n);

/*
 * Common state of one rendering: its memory, its remaining budget, and its
 * error. Errors stick: the first one is kept, with its line in the template,
 * and from then on all operations do nothing; loops must check bt_tmpl_run_ok()
 * or bt_tmpl_run_step().
 *
 * Threads: a run belongs to one thread.
 */

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
 *  @param [in] fmt  one sentence, without the line
 *  @return false */
bool bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
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

/** Makes space for one more element behind @a n, by moving to an array of twice
 *  the capacity, or of @a first elements where there is none.
 *  @param [in,out] cap_p  capacity of the array
 *  @return the array; NULL: failed */
void *bt_tmpl_run_grow(bt_tmpl_run_t *run, const void *array, uint32_t n,
                       uint32_t *cap_p, uint32_t first, size_t size);
/** Allocates zeroed memory of the rendering, or returns NULL and fails. */
void *bt_tmpl_run_take(bt_tmpl_run_t *run, size_t n, size_t size);

#endif
