/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/alloc.h"

/* From Linux 5.14 and 6.1, which may be newer than the headers. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Large pages per call. Each call waits until every core has run some kernel
 * work: 6 ms if all are busy, while a page takes 0.1 ms. */
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

/* Small pages checked, and allocated, per call. */
#define TAKEN_AT_ONCE 512

/* Writes a zero into each missing page through the kernel, which returns EFAULT
 * where a store would end in SIGBUS. In an order of its own; @a n is at most
 * TAKEN_AT_ONCE. */
static bt_status_t take_missing(uint8_t *first, const unsigned char *there,
                                size_t n, size_t page, int zero)
{
    struct iovec missing[TAKEN_AT_ONCE];
    int n_missing = 0;
    ssize_t taken;

    for (size_t i = 0; i < n; i++) {
        if ((there[i] & 1u) == 0) {
            missing[n_missing++] =
                (struct iovec){.iov_base = first + i * page, .iov_len = 1};
        }
    }
    if (n_missing == 0) {
        return BT_OK;
    }
    do {
        taken = readv(zero, missing, n_missing);
    } while ((taken < 0) && (errno == EINTR));
    return (taken == n_missing) ? BT_OK : BT_ERR_NO_MEMORY;
}

bt_status_t bt_kvt_pages_take(void *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t all = (bytes + page - 1) / page;
    bt_status_t status = BT_OK;
    BT_CLEANUP(close)
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    if (zero < 0) {
        return BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; (i < all) && (status == BT_OK); i += TAKEN_AT_ONCE) {
        const size_t n = (all - i < TAKEN_AT_ONCE) ? all - i : TAKEN_AT_ONCE;
        uint8_t *const first = (uint8_t *)base + i * page;
        unsigned char there[TAKEN_AT_ONCE];

        status = (mincore(first, n * page, there) == 0)
                     ? take_missing(first, there, n, page, zero)
                     : BT_ERR_NO_MEMORY;
    }
    return status;
}

bt_kvt_pages_t bt_kvt_pages_of(void *base, size_t bytes)
{
    if ((uintptr_t)base % BT_KVT_PAGE_BYTES != 0) {
        return (bt_kvt_pages_t){0};
    }
    return (bt_kvt_pages_t){.base = base, .n = bytes / BT_KVT_PAGE_BYTES};
}

/* Not by a load: if the file system is full that ends in SIGBUS. */
static bool has_something(uint8_t *page)
{
    return madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_POPULATE_READ) ==
           0;
}

static void next_ask(bt_kvt_pages_t *pages, size_t n)
{
    uint8_t *const first = pages->base + pages->n_asked * BT_KVT_PAGE_BYTES;
    bool here = true;

    /* A large page without any small page would be refused. */
    for (size_t i = 0; here && (i < n); i++) {
        here = has_something(first + i * BT_KVT_PAGE_BYTES);
    }
    pages->n_asked += n;
    if (!here || ((madvise(first, n * BT_KVT_PAGE_BYTES, MADV_COLLAPSE) != 0) &&
                  (errno == EINVAL))) {
        *pages = (bt_kvt_pages_t){0}; /* not supported, or not enough memory */
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
