/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/arena.h"

#include <stdint.h>
#include <string.h>

#include "common/base/alloc.h"

#define CHUNK_BYTES     ((size_t)16 << 10)
#define MAX_CHUNK_BYTES ((size_t)1 << 20)
#define ALIGN           (_Alignof(max_align_t))

struct bt_tmpl_arena_chunk {
    bt_tmpl_arena_chunk_t *next;
    size_t bytes;
    _Alignas(max_align_t) char data[];
};

void bt_tmpl_arena_init(bt_tmpl_arena_t *arena, size_t limit_bytes)
{
    memset(arena, 0, sizeof(*arena));
    arena->limit_bytes = limit_bytes;
}

void bt_tmpl_arena_fini(bt_tmpl_arena_t *arena)
{
    while (arena->chunks != NULL) {
        bt_tmpl_arena_chunk_t *next = arena->chunks->next;

        bt_free(arena->chunks);
        arena->chunks = next;
    }
    arena->at = arena->end = NULL;
    arena->used_bytes = 0;
}

/* Returns a chunk size: as large as all chunks so far, up to a bound. */
static bool add_chunk(bt_tmpl_arena_t *arena, size_t n)
{
    const size_t left = arena->limit_bytes - arena->used_bytes;
    size_t bytes = arena->used_bytes;
    bt_tmpl_arena_chunk_t *chunk;

    bytes = (bytes < CHUNK_BYTES) ? CHUNK_BYTES : bytes;
    bytes = (bytes > MAX_CHUNK_BYTES) ? MAX_CHUNK_BYTES : bytes;
    if (bytes < n) { /* as much again, for it to grow into */
        bytes = (n <= left / 2) ? 2 * n : n;
    }
    if (bytes > left) {
        bytes = left;
    }
    if (bytes < n) {
        arena->status = BT_ERR_TOO_LARGE;
        return false;
    }
    chunk = bt_realloc_array(NULL, 1, sizeof(*chunk) + bytes);
    if (chunk == NULL) {
        arena->status = BT_ERR_NO_MEMORY;
        return false;
    }
    chunk->next = arena->chunks;
    chunk->bytes = bytes;
    arena->chunks = chunk;
    arena->at = chunk->data;
    arena->end = chunk->data + bytes;
    arena->used_bytes += bytes;
    return true;
}

char *bt_tmpl_arena_take_bytes(bt_tmpl_arena_t *arena, size_t n)
{
    char *piece;

    if ((arena->at == NULL) || (n > (size_t)(arena->end - arena->at))) {
        if ((n > arena->limit_bytes) || !add_chunk(arena, n)) {
            arena->status =
                (n > arena->limit_bytes) ? BT_ERR_TOO_LARGE : arena->status;
            return NULL;
        }
    }
    piece = arena->at;
    arena->at += n;
    return piece;
}

void *bt_tmpl_arena_take(bt_tmpl_arena_t *arena, size_t n, size_t size)
{
    size_t bytes;
    char *piece;
    size_t off;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, ALIGN, &bytes)) {
        arena->status = BT_ERR_TOO_LARGE;
        return NULL;
    }
    piece = bt_tmpl_arena_take_bytes(arena, bytes);
    if (piece == NULL) {
        return NULL;
    }
    off = (ALIGN - (uintptr_t)piece % ALIGN) % ALIGN;
    memset(piece + off, 0, bytes - off);
    return piece + off;
}

bool bt_tmpl_arena_extend(bt_tmpl_arena_t *arena, const char *end, size_t n)
{
    if ((arena->at == NULL) || (end != arena->at) ||
        (n > (size_t)(arena->end - arena->at))) {
        return false;
    }
    arena->at += n;
    return true;
}
