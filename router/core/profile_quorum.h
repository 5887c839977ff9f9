/* SPDX-License-Identifier: Apache-2.0 */
/** @file profile_quorum.h
 *
 * Tracks workers that were refused because they differ from the present ones in
 * numerics profile, KV type, block size or layout. The first worker to join
 * determines these properties, and may be the wrong one. The refused workers of
 * one kind replace the present ones when together they could serve better, for
 * a while, and the present ones have no requests.
 *
 *     kind          nothing < serves alone (a decode worker that prefills)
 *                           < has both roles
 *     refused ─▶ noted ─▶ better for BT_QUORUM_WAIT_US ─▶ win
 *                  └──▶ not seen again for BT_QUORUM_KEEP_US ─▶ forgotten
 *
 * Refused workers try again every two seconds or so. Pure.
 * Threads: the core's.
 */
#ifndef BT_ROUTER_CORE_PROFILE_QUORUM_H
#define BT_ROUTER_CORE_PROFILE_QUORUM_H

#include <stdbool.h>
#include <stdint.h>

#include "router/core/table.h"

#define BT_QUORUM_MAX_REFUSED 16
#define BT_QUORUM_WAIT_US     10000000u /**< longer than a worker's restart */
#define BT_QUORUM_KEEP_US     10000000u

typedef struct bt_refused_worker {
    bt_msg_hello_t hello; /**< hello without ranks */
    uint64_t seen_us;
} bt_refused_worker_t;

/** Refused workers; all zero: none. */
typedef struct bt_profile_quorum {
    bt_refused_worker_t list[BT_QUORUM_MAX_REFUSED];
    uint32_t n;
    uint64_t better_since_us; /**< when the refused became better in us; 0: not
                                 better */
} bt_profile_quorum_t;

/** Records a worker that @a table refused because of the workers in it.
 *  @return true when the refused workers of this kind should replace the
 *    present ones */
bool bt_profile_quorum_refused(bt_profile_quorum_t *quorum,
                               const bt_table_t *table,
                               const bt_msg_hello_t *hello, uint64_t now_us);

#endif
