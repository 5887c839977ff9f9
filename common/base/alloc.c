/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/alloc.h"

#include <malloc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/task.h"

#define ALIGN_BYTES 64

/* From here on huge pages: streaming a large area by pages of 4 KiB was half as
 * fast (14 against 30 GB/s on a virtual machine, where a miss costs most). */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HUGE_FROM_BYTES (2 * HUGE_PAGE_BYTES)

static _Atomic int fail_countdown; /* 0 = off */

/* Approximate overhead of the allocator per allocation. */
#define HEAD_BYTES 16u

/* Before @a n times @a size bytes are asked for, of which @a have are there. */
static int must_fail(size_t n, size_t size, size_t have)
{
    int left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, HEAD_BYTES, &bytes) ||
        !bt_task_may_allocate((bytes > have) ? bytes - have : 0)) {
        return 1;
    }
    if (left == 0) {
        return 0;
    }
    atomic_store(&fail_countdown, left - 1);
    return left == 1;
}

/* It is there now; NULL: it is not. */
static void *count(void *ptr)
{
    if (ptr != NULL) {
        bt_task_allocated(malloc_usable_size(ptr));
    }
    return ptr;
}

void *bt_calloc(size_t n, size_t size)
{
    return must_fail(n, size, 0) ? NULL : count(calloc(n, size));
}

void *bt_realloc_array(void *ptr, size_t n, size_t size)
{
    const size_t have = (ptr != NULL) ? malloc_usable_size(ptr) : 0;
    void *moved;

    if (must_fail(n, size, have)) {
        return NULL;
    }
    moved = count(reallocarray(ptr, n, size));
    if (moved != NULL) {
        bt_task_freed(have);
    }
    return moved;
}

bool bt_array_grow(void *array_p, uint32_t *cap_p, uint32_t need, size_t size)
{
    const uint32_t twice = (*cap_p < 8) ? 16 : *cap_p * 2;
    const uint32_t cap = (need > twice) ? need : twice;
    void *grown;

    if (need <= *cap_p) {
        return true;
    }
    memcpy(&grown, array_p, sizeof(grown)); /* a pointer of any type */
    grown = bt_realloc_array(grown, cap, size);
    if (grown == NULL) {
        return false;
    }
    memcpy(array_p, &grown, sizeof(grown));
    *cap_p = cap;
    return true;
}

void *bt_calloc_aligned(size_t n, size_t size)
{
    size_t align = ALIGN_BYTES;
    size_t bytes;
    void *ptr;

    if (must_fail(n, size, 0) || __builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)(ALIGN_BYTES - 1), &bytes)) {
        return NULL;
    }
    bytes &= ~(size_t)(ALIGN_BYTES - 1);
    if (bytes >= HUGE_FROM_BYTES) {
        align = HUGE_PAGE_BYTES;
    }
    /* Not aligned_alloc(): it wants sizes that are multiples of the alignment.
     */
    if (posix_memalign(&ptr, align, (bytes == 0) ? ALIGN_BYTES : bytes) != 0) {
        ptr = NULL;
    }
    if (ptr != NULL) {
        if (align == HUGE_PAGE_BYTES) {
            /* Whole huge pages only; where the system has none it says so, and
             * nothing else happens. */
            (void)madvise(ptr, bytes & ~(HUGE_PAGE_BYTES - 1), MADV_HUGEPAGE);
        }
        memset(ptr, 0, bytes);
    }
    return count(ptr);
}

char *bt_strdup(const char *text)
{
    return (text == NULL) ? NULL : bt_memdup(text, strlen(text));
}

void *bt_memdup(const void *data, size_t n)
{
    char *copy = bt_calloc(n + 1, 1);

    if ((copy != NULL) && (n > 0)) {
        memcpy(copy, data, n);
    }
    return copy;
}

void bt_free(void *ptr)
{
    if (ptr != NULL) {
        bt_task_freed(malloc_usable_size(ptr));
    }
    free(ptr);
}

int bt_alloc_fail_at(int nth)
{
    return atomic_exchange(&fail_countdown, nth);
}

/* ---- arenas ---- */

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
