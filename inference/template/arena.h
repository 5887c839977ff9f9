/* SPDX-License-Identifier: Apache-2.0 */
/** @file arena.h
 *
 * Memory of one template, or of one rendering: taken piece by piece, given back
 * all at once, never more than a limit. The newest piece can grow in place, so
 * a text that is added to again and again is not copied each time.
 *
 * Threads: an arena belongs to one.
 */
#ifndef BT_INFERENCE_TEMPLATE_ARENA_H
#define BT_INFERENCE_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct bt_tmpl_arena_chunk bt_tmpl_arena_chunk_t;

typedef struct bt_tmpl_arena {
    bt_tmpl_arena_chunk_t *chunks; /**< owned, the newest first */
    char *at;                      /**< next free byte of the newest */
    char *end;
    size_t used_bytes;  /**< of all chunks */
    size_t limit_bytes; /**< most of them */
    bt_status_t status; /**< why the last piece was refused */
} bt_tmpl_arena_t;

/** Allocates nothing. */
void bt_tmpl_arena_init(bt_tmpl_arena_t *arena, size_t limit_bytes);
void bt_tmpl_arena_fini(bt_tmpl_arena_t *arena);

/** @a n elements, zeroed, aligned for anything.
 *  @return NULL: the limit is met or memory is short; arena->status says which
 */
void *bt_tmpl_arena_take(bt_tmpl_arena_t *arena, size_t n, size_t size);
/** Bytes that are not zeroed, nor aligned. */
char *bt_tmpl_arena_take_bytes(bt_tmpl_arena_t *arena, size_t n);
/** More bytes right behind @a end, which is where the newest piece ended.
 *  @return false: something else is there, or no room; nothing was changed */
bool bt_tmpl_arena_extend(bt_tmpl_arena_t *arena, const char *end, size_t n);

#endif
