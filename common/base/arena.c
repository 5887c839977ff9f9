/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "common/base/alloc.h"

#define BLOCK_BYTES 2048u

typedef struct bt_arena_block {
    struct bt_arena_block *next;
    size_t bytes;
    alignas(max_align_t) char data[];
} block_t;

void *bt_arena_alloc(bt_arena_t *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    size_t need = (bytes > 0) ? bytes : 1;

    if (need > SIZE_MAX - sizeof(block_t) - (align - 1)) {
        return NULL;
    }
    need += align - 1;
    need -= need % align;
    if (need > arena->free_bytes) {
        const size_t size = (need > BLOCK_BYTES) ? need : BLOCK_BYTES;
        block_t *block = bt_calloc(1, sizeof(*block) + size);

        if (block == NULL) {
            return NULL;
        }
        block->bytes = size;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->free_bytes = size;
    }
    arena->free_bytes -= need;
    return arena->blocks->data + arena->blocks->bytes - arena->free_bytes -
           need;
}

void *bt_arena_dup(bt_arena_t *arena, const void *data, size_t bytes)
{
    void *copy = bt_arena_alloc(arena, bytes);

    if ((copy != NULL) && (bytes > 0)) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

bool bt_arena_strdup(bt_arena_t *arena, const char *text, const char **copy_p)
{
    char *copy = NULL;

    if (text != NULL) {
        copy = bt_arena_dup(arena, text, strlen(text) + 1);
        if (copy == NULL) {
            return false;
        }
    }
    *copy_p = copy;
    return true;
}

void bt_arena_fini(bt_arena_t *arena)
{
    while (arena->blocks != NULL) {
        block_t *block = arena->blocks;

        arena->blocks = block->next;
        bt_free(block);
    }
    *arena = (bt_arena_t){0};
}
