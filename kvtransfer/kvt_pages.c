/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_pages.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of Linux 5.14 and 6.1, which may be newer than the headers. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Each call waits until every core has done some work of the kernel's: 6 ms
 * where all are busy, for 0.1 ms that a page takes. So many are asked for at a
 * time. */
#define STEP 32

void *bt_kvt_pages_reserve(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t wanted = (bytes + page - 1) / page * page;
    const size_t all = wanted + BT_KVT_PAGE_BYTES;
    uint8_t *area =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (area == MAP_FAILED) {
        return NULL;
    }
    before = -(uintptr_t)area % BT_KVT_PAGE_BYTES;
    if (before > 0) {
        munmap(area, before);
    }
    if (before < BT_KVT_PAGE_BYTES) {
        munmap(area + before + wanted, BT_KVT_PAGE_BYTES - before);
    }
    return area + before;
}

bt_kvt_pages_t bt_kvt_pages_of(void *base, size_t bytes)
{
    if ((uintptr_t)base % BT_KVT_PAGE_BYTES != 0) {
        return (bt_kvt_pages_t){0};
    }
    return (bt_kvt_pages_t){.base = base, .n = bytes / BT_KVT_PAGE_BYTES};
}

/* By this and not by a load: where the file system is full that is SIGBUS. */
static bool has_something(uint8_t *page)
{
    return madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_POPULATE_READ) ==
           0;
}

static void next_ask(bt_kvt_pages_t *pages, size_t n)
{
    uint8_t *const first = pages->base + pages->n_asked * BT_KVT_PAGE_BYTES;
    bool here = true;

    /* A large page of which nothing is there yet would be refused. */
    for (size_t i = 0; here && (i < n); i++) {
        here = has_something(first + i * BT_KVT_PAGE_BYTES);
    }
    pages->n_asked += n;
    if (!here || ((madvise(first, n * BT_KVT_PAGE_BYTES, MADV_COLLAPSE) != 0) &&
                  (errno == EINVAL))) {
        *pages = (bt_kvt_pages_t){0}; /* not on this system, or no room */
    }
}

void bt_kvt_pages_ready(bt_kvt_pages_t *pages, uint64_t bytes)
{
    size_t wanted =
        (size_t)((bytes + BT_KVT_PAGE_BYTES - 1) / BT_KVT_PAGE_BYTES);

    if (wanted > pages->n_asked) {
        wanted += STEP;
        wanted = (wanted < pages->n) ? wanted : pages->n;
    }
    if (wanted > pages->n_asked) {
        next_ask(pages, wanted - pages->n_asked);
    }
}
