/* SPDX-License-Identifier: Apache-2.0 */
/** @file arena.h
 *
 * Memory of an object's small parts, which are freed together:
 *
 *     arena ─▶ block [ "tiny" | choices … | free ] ─▶ block [ … ]
 *
 * Blocks come from bt_calloc(), so that an account of the thread's task
 * (task.h) counts them. A zeroed arena is empty.
 *
 * Threads: one at a time.
 */
#ifndef BT_COMMON_BASE_ARENA_H
#define BT_COMMON_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bt_arena {
    struct bt_arena_block *blocks; /**< owned; newest first */
    size_t free_bytes;             /**< left in the newest block */
} bt_arena_t;

/** Allocates zeroed bytes, aligned for any type. @return NULL: no memory */
void *bt_arena_alloc(bt_arena_t *arena, size_t bytes);
/** Copies bytes into the arena. @return NULL: no memory */
void *bt_arena_dup(bt_arena_t *arena, const void *data, size_t bytes);
/** Copies a text into the arena; NULL stays NULL.
 *  @return false: no memory; copy_p is unchanged */
bool bt_arena_strdup(bt_arena_t *arena, const char *text, const char **copy_p);
/** Frees all memory of the arena, which is empty afterwards. */
void bt_arena_fini(bt_arena_t *arena);

#endif
