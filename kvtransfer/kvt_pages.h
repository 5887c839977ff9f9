/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_pages.h
 *
 * Large pages for a pool. A step of decoding reads all KV blocks of its
 * sequences: by pages of 4 KiB it misses the translation of each, and a prompt
 * of 256 tokens of a small model (6 MiB) met 1,440 first touches at 3 us on a
 * virtual machine, once in either pool.
 *
 * Private memory needs an aligned address and MADV_HUGEPAGE. Shared memory
 * does not heed that unless the administrator allowed it (shmem_enabled, which
 * is "never" as kernels come); there large pages are asked for by MADV_COLLAPSE
 * (Linux 6.1), which no such setting refuses. From the front on, as the block
 * pool deals them out first. That may take long: kvt_warmer.h.
 */
#ifndef BT_KVTRANSFER_KVT_PAGES_H
#define BT_KVTRANSFER_KVT_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_KVT_PAGE_BYTES ((size_t)2 << 20)

/** Shared memory that gets its large pages as it comes into use; all zero: it
 *  gets none. */
typedef struct bt_kvt_pages {
    uint8_t *base;
    size_t n;       /**< whole large pages from base on */
    size_t n_asked; /**< of these, from the front: nothing more is done */
} bt_kvt_pages_t;

/** Addresses for @a bytes, nothing behind them, from a multiple of
 *  BT_KVT_PAGE_BYTES on: to be mapped over, or given back by munmap().
 *  @return NULL: there are none */
void *bt_kvt_pages_reserve(size_t bytes);

/**
 * Have a page behind all of @a bytes of shared memory that is all zero, so that
 * no touch of it can end in SIGBUS. What is there already costs next to nothing
 * (10 ms for each GiB); the rest is taken as by a first touch.
 *
 * @param base  Mapped, from a page on.
 * @retval BT_ERR_NO_MEMORY  the file system behind it, or the machine, is full;
 *                           what was taken stays so until it is unmapped
 */
BT_MUST_CHECK bt_status_t bt_kvt_pages_take(void *base, size_t bytes);

/** @param base  Shared memory of @a bytes, mapped; outlives the result. */
bt_kvt_pages_t bt_kvt_pages_of(void *base, size_t bytes);

/** Have memory behind the first @a bytes, in large pages where that can be, and
 *  behind some more. Contents stay. Without large pages all stays as
 *  bt_kvt_pages_take() made it. */
void bt_kvt_pages_ready(bt_kvt_pages_t *pages, uint64_t bytes);

#endif
