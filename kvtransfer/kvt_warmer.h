/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_warmer.h
 *
 * Large pages for a pool (kvt_pages.h), by a thread of its own: the owner says
 * what comes into use and goes on.
 *
 *     owner ── use(bytes), more() ──▶ wanted ──▶ thread: bt_kvt_pages_ready()
 *
 * MADV_COLLAPSE waits until every core has done some work of the kernel's, and
 * for all others who ask the same on this host, however little they are let
 * run: 6 ms where the cores are busy, 0.8 s where three processes of the idle
 * class did so too. The owner answers heartbeats and cancels meanwhile. What is
 * touched before its large page is there gets small ones, which are replaced.
 *
 * Threads: use(), more() and stop() belong to one.
 */
#ifndef BT_KVTRANSFER_KVT_WARMER_H
#define BT_KVTRANSFER_KVT_WARMER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kvtransfer/kvt_pages.h"

typedef struct bt_kvt_warmer bt_kvt_warmer_t;

/** As bt_kvt_pages_ready(). */
typedef void (*bt_kvt_warm_t)(bt_kvt_pages_t *pages, uint64_t bytes);

/**
 * @param [in]  pages  Copied; its memory stays mapped until stop().
 * @param [in]  warm   What the thread does: bt_kvt_pages_ready().
 * @param [out] warmer_p  End it with bt_kvt_warmer_stop().
 * @retval BT_ERR_NO_MEMORY  or no descriptor or thread
 */
BT_MUST_CHECK bt_status_t bt_kvt_warmer_start(const bt_kvt_pages_t *pages,
                                              bt_kvt_warm_t warm,
                                              bt_kvt_warmer_t **warmer_p);

/** Waits for the call that is under way, no longer. NULL is allowed. */
void bt_kvt_warmer_stop(bt_kvt_warmer_t *warmer);

/** The first @a bytes of the memory are in use from now on. Does not wait. */
void bt_kvt_warmer_use(bt_kvt_warmer_t *warmer, uint64_t bytes);

/** For idle moments: some more, once what was wanted is done.
 *  @return false: all is done, or cannot be */
bool bt_kvt_warmer_more(bt_kvt_warmer_t *warmer);

#endif
