/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_pages.h
 *
 * Large pages for a pool. A decode step reads all KV blocks of its sequences:
 * with 4 KiB pages each access misses the TLB, and a prompt of 256 tokens of a
 * small model (6 MiB) took 1,440 page faults of 3 us on a virtual machine,
 * once in either pool.
 *
 * Private memory needs an aligned address and MADV_HUGEPAGE. Shared memory
 * ignores that unless the administrator allows it (shmem_enabled, "never" by
 * default); MADV_COLLAPSE (Linux 6.1) makes large pages there regardless of
 * that setting. Pages are collapsed from the front, since the block pool hands
 * out the first blocks first. Collapsing may take long: kvt_warmer.h.
 */
#ifndef BT_KVTRANSFER_KVT_PAGES_H
#define BT_KVTRANSFER_KVT_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_KVT_PAGE_BYTES ((size_t)2 << 20)

/** Shared memory that gets large pages as it comes into use; all zero: it gets
 *  none. */
typedef struct bt_kvt_pages {
    uint8_t *base;
    size_t n;       /**< whole large pages from base on */
    size_t n_asked; /**< leading pages already done */
} bt_kvt_pages_t;

/** Reserves an address range of @a bytes without memory, aligned to
 *  BT_KVT_PAGE_BYTES: to be mapped over, or returned by munmap().
 *  @return NULL: failed */
void *bt_kvt_pages_reserve(size_t bytes);

/**
 * Allocates a page behind all of @a bytes of shared memory that is all zero, so
 * that no access can end in SIGBUS. Pages already there cost next to nothing
 * (10 ms per GiB); the others cost a first touch.
 *
 * @param base  Mapped; at the beginning of a page.
 * @retval BT_ERR_NO_MEMORY  the file system behind it, or the machine, is full;
 *                           pages taken stay allocated until the memory is
 *                           unmapped
 */
BT_MUST_CHECK bt_status_t bt_kvt_pages_take(void *base, size_t bytes);

/** Returns the state for shared memory.
 *  @param base  Shared memory of @a bytes, mapped; outlives the result. */
bt_kvt_pages_t bt_kvt_pages_of(void *base, size_t bytes);

/** Backs the first @a bytes, and some more, with memory, in large pages where
 *  possible. Contents stay. Without large pages all stays as
 *  bt_kvt_pages_take() made it. */
void bt_kvt_pages_ready(bt_kvt_pages_t *pages, uint64_t bytes);

#endif
