/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/value.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
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

bool bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
                      ...)
{
    va_list args;

    if (run->status != BT_OK) {
        return false;
    }
    run->status = status;
    va_start(args, fmt);
    vsnprintf(run->why, sizeof(run->why), fmt, args);
    va_end(args);
    return false;
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

void *bt_tmpl_run_grow(bt_tmpl_run_t *run, const void *array, uint32_t n,
                       uint32_t *cap_p, uint32_t first, size_t size)
{
    const uint32_t cap = (*cap_p == 0) ? first : *cap_p * 2;
    void *grown;

    if (n < *cap_p) {
        return (void *)(uintptr_t)array;
    }
    grown = (cap > *cap_p) ? bt_tmpl_run_take(run, cap, size) : NULL;
    if (grown != NULL) {
        if (n > 0) {
            memcpy(grown, array, n * size);
        }
        *cap_p = cap;
    }
    return grown;
}
