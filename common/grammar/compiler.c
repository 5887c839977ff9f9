/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/compiler.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "common/base/alloc.h"
#include "common/base/task.h"

/* Chunks double from the first size to the last, so that a small grammar takes
 * little and a large one few allocations. */
#define FIRST_CHUNK_BYTES (16u << 10)
#define LAST_CHUNK_BYTES  (1u << 20)

/* An arena is its newest chunk. Memory is zeroed when it is handed out, so that
 * a chunk may be used again. */
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

/* Says to AddressSanitizer whether memory of a chunk may be used. */
static void mark_usable(bt_grammar_arena_t *chunk, bool usable)
{
#if defined(__SANITIZE_ADDRESS__)
    if (usable) {
        __asan_unpoison_memory_region(chunk->data, chunk->bytes);
    } else {
        __asan_poison_memory_region(chunk->data, chunk->bytes);
    }
#else
    (void)chunk;
    (void)usable;
#endif
}

/* Frees the chunk that was given back last. */
static void free_spare(bt_grammar_compiler_t *whole)
{
    bt_grammar_arena_t *chunk = whole->spare;

    whole->spare = chunk->older;
    whole->spare_bytes -= chunk->bytes;
    mark_usable(chunk, true);
    bt_free(chunk);
}

void bt_grammar_compiler_fini(bt_grammar_compiler_t *c)
{
    bt_grammar_compiler_t *whole = whole_of(c);

    while (c->arena != NULL) {
        bt_grammar_arena_t *chunk = c->arena;

        c->arena = chunk->older;
        chunk->older = whole->spare;
        whole->spare = chunk;
        whole->arena_bytes -= chunk->bytes;
        whole->spare_bytes += chunk->bytes;
        mark_usable(chunk, false);
    }
    while ((c == whole) && (c->spare != NULL)) {
        free_spare(c);
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

/* Takes a chunk of about a size out of those that were given back; NULL: there
 * is none. */
static bt_grammar_arena_t *take_spare(bt_grammar_compiler_t *whole, size_t size,
                                      size_t most)
{
    for (bt_grammar_arena_t **at = &whole->spare; *at != NULL;
         at = &(*at)->older) {
        bt_grammar_arena_t *const chunk = *at;

        if ((chunk->bytes >= size) && (chunk->bytes <= most)) {
            *at = chunk->older;
            whole->spare_bytes -= chunk->bytes;
            mark_usable(chunk, true);
            return chunk;
        }
    }
    return NULL;
}

/* Returns a chunk, whose memory may have been used; NULL: no memory. */
static bt_grammar_arena_t *chunk_of(bt_grammar_compiler_t *whole, size_t size,
                                    size_t left)
{
    const size_t most = (2 * size < left) ? 2 * size : left;
    bt_grammar_arena_t *chunk = take_spare(whole, size, most);

    if (chunk != NULL) {
        return chunk;
    }
    while ((whole->spare != NULL) && (whole->spare_bytes > left - size)) {
        free_spare(whole);
    }
    chunk = bt_realloc_array(NULL, 1, sizeof(*chunk) + size);
    if (chunk != NULL) {
        chunk->bytes = size;
    }
    return chunk;
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
    chunk = chunk_of(whole, size, left);
    if (chunk == NULL) {
        bt_grammar_fail(c, BT_ERR_NO_MEMORY, "out of memory");
        return false;
    }
    chunk->older = c->arena;
    chunk->used = 0;
    whole->arena_bytes += chunk->bytes;
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

/* Allocates memory that is not zeroed. */
static void *allocate(bt_grammar_compiler_t *c, size_t n, size_t size)
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

void *bt_grammar_alloc(bt_grammar_compiler_t *c, size_t n, size_t size)
{
    void *memory = allocate(c, n, size);

    return (memory != NULL) ? memset(memory, 0, n * size) : NULL;
}

/* Makes the newest allocation of an arena larger, where it is. */
static bool extend(bt_grammar_compiler_t *c, const void *array, size_t before,
                   size_t after)
{
    bt_grammar_arena_t *chunk = c->arena;
    size_t old, new;

    if ((chunk == NULL) || !padded_bytes(before, 1, &old) ||
        !padded_bytes(after, 1, &new) || (old > chunk->used) ||
        (array != chunk->data + chunk->used - old) ||
        (new - old > chunk->bytes - chunk->used)) {
        return false;
    }
    chunk->used += new - old;
    return true;
}

bool bt_grammar_enlarge(bt_grammar_compiler_t *c, void *array_p,
                        uint32_t *cap_p, uint32_t need, size_t size)
{
    const size_t before = *cap_p * size;
    uint64_t cap = (*cap_p < 4) ? 8 : (uint64_t)*cap_p * 2;
    void *old, *grown;

    if (!bt_grammar_ok(c)) {
        return false;
    }
    BT_ASSERT(need > *cap_p);
    cap = (cap > need) ? cap : need;
    cap = (cap < UINT32_MAX) ? cap : UINT32_MAX;
    memcpy(&old, array_p, sizeof(old));
    if ((before > 0) && extend(c, old, before, cap * size)) {
        grown = old;
    } else {
        grown = allocate(c, cap, size);
        if (grown == NULL) {
            return false;
        }
        if (before > 0) {
            memcpy(grown, old, before);
        }
    }
    memset((unsigned char *)grown + before, 0, cap * size - before);
    memcpy(array_p, &grown, sizeof(grown));
    *cap_p = (uint32_t)cap;
    return true;
}
