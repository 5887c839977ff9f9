/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/packed/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES ((size_t)4096)
#define POLL_NS    5000000L

/* After this many failed pieces there are no large pages left, or the file is
 * mapped elsewhere. */
#define MAX_IN_VAIN 4

/* PAGEMAP_SCAN and its types (Linux 6.7, linux/fs.h). */
#define SCAN_HUGE (UINT64_C(1) << 6)

typedef struct scan_region {
    uint64_t start;
    uint64_t end;
    uint64_t categories;
} scan_region_t;

typedef struct scan_arg {
    uint64_t size;
    uint64_t flags;
    uint64_t start;
    uint64_t end;
    uint64_t walk_end;
    uint64_t vec;
    uint64_t vec_len;
    uint64_t max_pages;
    uint64_t category_inverted;
    uint64_t category_mask;
    uint64_t category_anyof_mask;
    uint64_t return_mask;
} scan_arg_t;

#define SCAN _IOWR('f', 16, scan_arg_t)

/* True when the administrator allows huge pages on request. */
static bool huge_allowed(void)
{
    BT_CLEANUP(close)
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled",
                  O_RDONLY | O_CLOEXEC);
    char text[64] = "";

    return (fd >= 0) && (read(fd, text, sizeof(text) - 1) > 0) &&
           (strstr(text, "[never]") == NULL);
}

void *bt_packed_pages_map(int fd, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t pages = (bytes + page - 1) & ~(page - 1);
    const size_t area_bytes = pages + HUGE_BYTES;
    uint8_t *const area =
        mmap(NULL, area_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;
    size_t after;

    if (area == MAP_FAILED) {
        return NULL;
    }
    before = HUGE_BYTES - (uintptr_t)area % HUGE_BYTES;
    after = area_bytes - before - pages;
    if (mmap(area + before, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        munmap(area, area_bytes);
        return NULL;
    }
    munmap(area, before);
    if (after > 0) {
        munmap(area + before + pages, after);
    }
    (void)madvise(area + before, bytes, MADV_HUGEPAGE);
    return area + before;
}

/* True when any page of these HUGE_BYTES is in the page cache. */
static bool is_cached(void *piece)
{
    unsigned char pages[HUGE_BYTES / PAGE_BYTES];
    unsigned char any = 0;

    if (mincore(piece, HUGE_BYTES, pages) != 0) {
        return false;
    }
    for (size_t i = 0; i < HUGE_BYTES / PAGE_BYTES; i++) {
        any |= pages[i];
    }
    return (any & 1u) != 0;
}

static void touch(const void *piece)
{
    (void)*(const volatile uint8_t *)piece;
}

typedef enum piece_state {
    PIECE_SMALL,
    PIECE_HUGE,
    PIECE_UNKNOWN, /* the kernel is too old to say */
} piece_state_t;

/* Returns how a touched piece is mapped. */
static piece_state_t state_of(int pagemap, const void *piece)
{
    scan_region_t region = {0};
    scan_arg_t arg = {
        .size = sizeof(arg),
        .start = (uintptr_t)piece,
        .end = (uintptr_t)piece + HUGE_BYTES,
        .vec = (uintptr_t)&region,
        .vec_len = 1,
        .category_mask = SCAN_HUGE,
        .return_mask = SCAN_HUGE,
    };
    const int n = ioctl(pagemap, SCAN, &arg);

    return (n < 0) ? PIECE_UNKNOWN : (n == 0) ? PIECE_SMALL : PIECE_HUGE;
}

/* Drops the piece from the page cache and reads it again. */
static void read_again(void *piece, int fd, size_t at)
{
    if ((madvise(piece, HUGE_BYTES, MADV_DONTNEED) == 0) &&
        (posix_fadvise(fd, (off_t)at, HUGE_BYTES, POSIX_FADV_DONTNEED) == 0)) {
        touch(piece);
    }
}

/* @return false: without success */
static bool settle_piece(uint8_t *piece, int fd, size_t at, int pagemap)
{
    piece_state_t state;

    touch(piece);
    state = state_of(pagemap, piece);
    if ((state == PIECE_HUGE) ||
        (madvise(piece, HUGE_BYTES, MADV_COLLAPSE) == 0) ||
        (state == PIECE_UNKNOWN)) {
        return true;
    }
    read_again(piece, fd, at);
    return state_of(pagemap, piece) == PIECE_HUGE;
}

static void settle_pieces(uint8_t *map, int fd, size_t bytes, int pagemap)
{
    int in_vain = 0;

    for (size_t at = 0; (at + HUGE_BYTES <= bytes) && (in_vain < MAX_IN_VAIN);
         at += HUGE_BYTES) {
        if (is_cached(map + at) && !settle_piece(map + at, fd, at, pagemap)) {
            in_vain++;
        }
    }
}

/*
 * Locks the file, since two processes at once would keep each other's pages in
 * the cache. Where the file system has no locks, the pages stay as they are,
 * and that is no timeout.
 * @return 0 or an errno, EWOULDBLOCK: not within the time
 */
static int lock_within(int fd, uint64_t wait_ms)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const uint64_t until_ms = bt_now_ms() + wait_ms;

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EINTR) &&
            ((errno != EWOULDBLOCK) || (bt_now_ms() >= until_ms))) {
            return errno;
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

bool bt_packed_pages_settle(void *map, int fd, size_t bytes, uint64_t wait_ms)
{
    BT_CLEANUP(close)
    int pagemap = -1;
    int error;

    if (!huge_allowed() || (sysconf(_SC_PAGESIZE) != (long)PAGE_BYTES)) {
        return true;
    }
    error = lock_within(fd, wait_ms);
    if (error == 0) {
        pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        settle_pieces(map, fd, bytes, pagemap);
        (void)flock(fd, LOCK_UN);
    }
    return error != EWOULDBLOCK;
}
