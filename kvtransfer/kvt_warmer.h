/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_warmer.h
 *
 * Background thread that gives a pool large pages (kvt_pages.h): the owner
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
#ifndef BT_KVTRANSFER_KVT_WARMER_H
#define BT_KVTRANSFER_KVT_WARMER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kvtransfer/kvt_pages.h"

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

#endif
