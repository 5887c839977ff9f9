/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compiler.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"

/* Chunks double from the first size to the last, so that a small grammar takes
 * little and a large one few allocations. */
#define FIRST_CHUNK_BYTES (16u << 10)
#define LAST_CHUNK_BYTES  (1u << 20)

/* An arena is its newest chunk. */
struct bt_grammar_arena {
    bt_grammar_arena_t *older;
    size_t bytes, used; /* of data */
    alignas(max_align_t) unsigned char data[];
};

void bt_grammar_compiler_init(bt_grammar_compiler_t *c)
{
    *c = (bt_grammar_compiler_t){.fuel = BT_GRAMMAR_FUEL};
}

/* The compiler that counts the bytes of all arenas. */
static bt_grammar_compiler_t *whole_of(bt_grammar_compiler_t *c)
{
    return (c->whole != NULL) ? c->whole : c;
}

void bt_grammar_compiler_fini(bt_grammar_compiler_t *c)
{
    while (c->arena != NULL) {
        bt_grammar_arena_t *chunk = c->arena;

        c->arena = chunk->older;
        whole_of(c)->arena_bytes -= chunk->bytes;
        bt_free(chunk);
    }
}

void bt_grammar_scratch_init(bt_grammar_compiler_t *scratch,
                             bt_grammar_compiler_t *c)
{
    bt_grammar_compiler_init(scratch);
    scratch->fuel = c->fuel;
    scratch->whole = whole_of(c);
}

void bt_grammar_scratch_fini(bt_grammar_compiler_t *scratch,
                             bt_grammar_compiler_t *c)
{
    c->fuel = scratch->fuel;
    if (!bt_grammar_ok(scratch)) {
        bt_grammar_fail(c, scratch->status, "%s", scratch->why);
    }
    bt_grammar_compiler_fini(scratch);
}

void bt_grammar_fail(bt_grammar_compiler_t *c, bt_status_t status,
                     const char *format, ...)
{
    va_list args;

    if (!bt_grammar_ok(c)) {
        return;
    }
    BT_ASSERT(status != BT_OK);
    c->status = status;
    va_start(args, format);
    vsnprintf(c->why, sizeof(c->why), format, args);
    va_end(args);
}

void bt_grammar_spend_all(bt_grammar_compiler_t *c)
{
    c->fuel = 0;
    bt_grammar_fail(c, BT_ERR_TOO_LARGE,
                    "the grammar takes too many steps to compile");
}

bool bt_grammar_poll(bt_grammar_compiler_t *c)
{
    if (bt_task_poll()) {
        bt_grammar_fail(c, BT_ERR_NO_MEMORY, "the compilation was canceled");
    }
    return bt_grammar_ok(c);
}

static bool add_chunk(bt_grammar_compiler_t *c, size_t need)
{
    bt_grammar_compiler_t *whole = whole_of(c);
    const size_t left = BT_GRAMMAR_MAX_ARENA - whole->arena_bytes;
    size_t size = FIRST_CHUNK_BYTES;
    bt_grammar_arena_t *chunk;

    if (c->arena != NULL) {
        size = c->arena->bytes * 2;
        size = (size < LAST_CHUNK_BYTES) ? size : LAST_CHUNK_BYTES;
    }
    size = (size > need) ? size : need;
    size = (size > left) ? need : size;
    if (size > left) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE,
                        "the grammar takes more than %u MiB to compile",
                        BT_GRAMMAR_MAX_ARENA >> 20);
        return false;
    }
    chunk = bt_calloc(1, sizeof(*chunk) + size);
    if (chunk == NULL) {
        bt_grammar_fail(c, BT_ERR_NO_MEMORY, "out of memory");
        return false;
    }
    chunk->older = c->arena;
    chunk->bytes = size;
    whole->arena_bytes += size;
    c->arena = chunk;
    return true;
}

/* Bytes of an allocation, rounded up so that the next one is aligned. False: it
 * does not fit a size_t. */
static bool padded_bytes(size_t n, size_t size, size_t *bytes_p)
{
    const size_t align = alignof(max_align_t);
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, align - 1, &bytes)) {
        return false;
    }
    *bytes_p = bytes - bytes % align;
    return true;
}

void *bt_grammar_alloc(bt_grammar_compiler_t *c, size_t n, size_t size)
{
    size_t bytes;
    void *memory;

    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    if (!padded_bytes(n, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    bytes = (bytes > 0) ? bytes : alignof(max_align_t);
    if (((c->arena == NULL) || (bytes > c->arena->bytes - c->arena->used)) &&
        !add_chunk(c, bytes)) {
        return NULL;
    }
    memory = c->arena->data + c->arena->used;
    c->arena->used += bytes;
    return memory;
}

bool bt_grammar_enlarge(bt_grammar_compiler_t *c, void *array_p,
                        uint32_t *cap_p, uint32_t need, size_t size)
{
    uint64_t cap = (*cap_p < 4) ? 8 : (uint64_t)*cap_p * 2;
    void *old, *grown;

    if (!bt_grammar_ok(c)) {
        return false;
    }
    BT_ASSERT(need > *cap_p);
    cap = (cap > need) ? cap : need;
    cap = (cap < UINT32_MAX) ? cap : UINT32_MAX;
    grown = bt_grammar_alloc(c, cap, size);
    if (grown == NULL) {
        return false;
    }
    memcpy(&old, array_p, sizeof(old));
    if (*cap_p > 0) {
        memcpy(grown, old, (size_t)*cap_p * size);
    }
    memcpy(array_p, &grown, sizeof(grown));
    *cap_p = (uint32_t)cap;
    return true;
}
