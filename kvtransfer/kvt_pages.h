/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_pages.h
 *
 * Memory of a pool: large pages, the thread that prepares them, and the cores
 * of the thread that verifies what arrives.
 */
#ifndef BT_KVTRANSFER_KVT_PAGES_H
#define BT_KVTRANSFER_KVT_PAGES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"

/*
 * Large pages for a pool. A decode step reads all KV blocks of its sequences:
 * with 4 KiB pages each access misses the TLB, and a prompt of 256 tokens of a
 * small model (6 MiB) took 1,440 page faults of 3 us on a virtual machine,
 * once in either pool.
 *
 * Private memory needs an aligned address and MADV_HUGEPAGE. Shared memory
 * ignores that unless the administrator allows it (shmem_enabled, "never" by
 * default); MADV_COLLAPSE (Linux 6.1) makes large pages there regardless of
 * that setting. Pages are collapsed from the front, since the block pool hands
 * out the first blocks first. Collapsing may take
 * long, so a thread does it (bt_kvt_warmer_t).
 */

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

/*
 * Background thread that gives a pool large pages: the owner
 * reports which bytes come into use, and does not wait.
 *
 *     owner ── use(bytes), more() ──▶ wanted ──▶ thread: bt_kvt_pages_ready()
 *
 * MADV_COLLAPSE waits until every core has run some kernel work, and for all
 * other callers on this host, even those with little CPU time: 6 ms where the
 * cores are busy, 0.8 s where three processes of the idle class did so too.
 * The owner answers heartbeats and cancels meanwhile. Memory that is touched
 * before its large page is ready gets small ones, which are replaced.
 *
 * Threads: one thread calls use(), more() and stop().
 */

typedef struct bt_kvt_warmer bt_kvt_warmer_t;

/** Work of the thread; see bt_kvt_pages_ready(). */
typedef void (*bt_kvt_warm_t)(bt_kvt_pages_t *pages, uint64_t bytes);

/**
 * Starts the thread.
 *
 * @param [in]  pages  Copied; the memory stays mapped until stop().
 * @param [in]  warm   Function that the thread runs: bt_kvt_pages_ready().
 * @param [out] warmer_p  End it with bt_kvt_warmer_stop().
 * @retval BT_ERR_NO_MEMORY  or no descriptor or thread
 */
BT_MUST_CHECK bt_status_t bt_kvt_warmer_start(const bt_kvt_pages_t *pages,
                                              bt_kvt_warm_t warm,
                                              bt_kvt_warmer_t **warmer_p);

/** Stops the thread; waits for the current call only. NULL is allowed. */
void bt_kvt_warmer_stop(bt_kvt_warmer_t *warmer);

/** Reports that the first @a bytes of the memory come into use. Does not wait.
 */
void bt_kvt_warmer_use(bt_kvt_warmer_t *warmer, uint64_t bytes);

/** Requests some more pages, in idle moments, once the wanted ones are done.
 *  @return false: all is done, or cannot be */
bool bt_kvt_warmer_more(bt_kvt_warmer_t *warmer);

/*
 * Keeps the verifying thread off the processors on which senders of this host
 * copy.
 *
 * The kernel usually starts a woken thread near the one that woke it, and
 * where the cores were busy until now it does not even look for an idle one
 * (SIS_UTIL, Linux 6.0). A sender and the verifier that it wakes every few
 * hundred microseconds then take turns on one core: a transfer of 64 MiB from
 * two ranks took 12.5 ms instead of 7, with a core idle. So a PART names the
 * processor of its sender, and the verifier avoids that one, as long as its
 * affinity mask has others. Afterwards the mask is restored.
 */

/** Affinity state of the verifying thread. */
typedef struct bt_kvt_aside {
    bt_list_t writers; /**< bt_kvt_writer.link */
    cpu_set_t before;  /**< while away: original affinity mask */
    cpu_set_t now;     /**< while away: current affinity mask */
    bool away;
} bt_kvt_aside_t;

/** Sender that is copying into a region. */
typedef struct bt_kvt_writer {
    bt_list_t link;
    uint32_t cpu; /**< processor, from 1 on */
} bt_kvt_writer_t;

void bt_kvt_aside_init(bt_kvt_aside_t *aside);
void bt_kvt_writer_init(bt_kvt_writer_t *writer);

/** Returns the processor of the calling thread, from 1 on; 0: unknown. */
uint32_t bt_kvt_aside_here(void);

/** Records the processor @a cpu on which @a writer goes on copying; 0, or one
 *  out of range: unknown. Only by the verifying thread. */
void bt_kvt_aside_note(bt_kvt_aside_t *aside, bt_kvt_writer_t *writer,
                       uint32_t cpu);

/** Returns the processors of @a allowed without a writer; pure.
 *  @return false: there is none, or no writer is on any of them */
bool bt_kvt_aside_choose(const bt_kvt_aside_t *aside, const cpu_set_t *allowed,
                         cpu_set_t *set_p);

#endif
