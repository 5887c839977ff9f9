/* SPDX-License-Identifier: Apache-2.0 */
/** @file arena.h
 *
 * Arena of one template, or of one rendering: memory is allocated piece by
 * piece, freed all at once, and never exceeds a limit. The newest piece can
 * grow in place, so a text that is appended to repeatedly is not copied each
 * time.
 *
 * Threads: an arena belongs to one thread.
 */
#ifndef BT_INFERENCE_TEMPLATE_ARENA_H
#define BT_INFERENCE_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

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

#endif
