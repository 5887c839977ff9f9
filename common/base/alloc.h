/* SPDX-License-Identifier: Apache-2.0 */
/** @file alloc.h
 *
 * Memory allocation for all of Baton's own code, so that tests can make the
 * n-th allocation fail. All functions return NULL when memory is short, a
 * product overflows, or the thread works for a task (task.h) that is canceled
 * or whose account is exhausted.
 */
#ifndef BT_COMMON_BASE_ALLOC_H
#define BT_COMMON_BASE_ALLOC_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/** Allocates zeroed memory for @a n elements; freed with bt_free(). */
void *bt_calloc(size_t n, size_t size);

/** Grows or shrinks an array; new bytes are not zeroed. On NULL the old
 *  array is untouched and still owned by the caller. */
void *bt_realloc_array(void *ptr, size_t n, size_t size);

/** Gives an array, whose pointer is at @a array_p, at least @a need elements of
 *  @a size bytes: where it grows, twice as many as it had or more. New bytes
 *  are not zeroed.
 *  @return false: no memory; nothing changed */
bool bt_array_grow(void *array_p, uint32_t *cap_p, uint32_t need, size_t size);

/** Allocates zeroed, 64-byte aligned memory, large areas in huge pages where
 *  the system allows them; freed with bt_free(). */
void *bt_calloc_aligned(size_t n, size_t size);

/** Copies @a text; freed with bt_free(). NULL for NULL. */
char *bt_strdup(const char *text);

/** Copies @a n bytes and adds a zero byte; freed with bt_free(). */
void *bt_memdup(const void *data, size_t n);

/** Frees memory. NULL is allowed. */
void bt_free(void *ptr);

/**
 * Lets the @a nth allocation from now fail, once (1 = the next), for tests; 0
 * turns it off. Not for threaded tests.
 * @return allocations still to come before the one set by the previous call:
 *     above 0 it has not failed
 */
int bt_alloc_fail_at(int nth);

/*
 * BT_CLEANUP(free|close|closedir|fclose) for resources that do not outlive the
 * function.
 */

static inline void bt_cleanup_free(void *ptr_p)
{
    bt_free(*(void **)ptr_p);
}

static inline void bt_cleanup_close(const int *fd_p)
{
    if (*fd_p >= 0) {
        close(*fd_p);
    }
}

static inline void bt_cleanup_closedir(DIR *const *dir_p)
{
    if (*dir_p != NULL) {
        closedir(*dir_p);
    }
}

static inline void bt_cleanup_fclose(FILE *const *file_p)
{
    if (*file_p != NULL) {
        fclose(*file_p);
    }
}

#define BT_CLEANUP(what) __attribute__((cleanup(bt_cleanup_##what)))

/*
 * Memory of an object's small parts, which are freed together:
 *
 *     arena ─▶ block [ "tiny" | choices … | free ] ─▶ block [ … ]
 *
 * Blocks come from bt_calloc(), so that an account of the thread's task
 * (task.h) counts them. A zeroed arena is empty.
 *
 * Threads: one at a time.
 */

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
