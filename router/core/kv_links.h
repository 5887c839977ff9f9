/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_links.h
 *
 * Tracks which prefill workers can send KV to which decode workers, from the
 * reports of the prefill workers (bt_msg_kv_link_t): one bit per pair in the
 * scheduler's entry of the worker, and the reason for the first pairs that
 * failed.
 *
 *     UNPROVEN ──▶ PROVEN ⇄ FAILED      a pair is used while it is PROVEN
 *        └──────────────────▲
 *
 * Every pair is used for a prefill worker that does not report links (an older
 * build).
 *
 * A model is ready for the first time when each decode worker that joined
 * before has a link, unless that worker prefills itself or no prefill worker is
 * present; after that, while one pair can be used.
 *
 * Pure. Threads: the table's.
 */
#ifndef BT_ROUTER_CORE_KV_LINKS_H
#define BT_ROUTER_CORE_KV_LINKS_H

#include "router/core/table.h"

#define BT_CUT_TEXT 448 /**< buffer size in bytes for bt_cut_print() */

/** KV link that failed, with the reason. */
struct bt_cut {
    bt_list_t link; /**< link in bt_table_t.cuts */
    const bt_instance_t *prefill, *decode;
    char at[BT_WIRE_MAX_AT];
    char why[BT_WIRE_MAX_WHY];
};

/** Result of a link report. */
typedef enum bt_kv_link_news {
    BT_KV_LINK_SAME,
    BT_KV_LINK_IS_USED,   /**< requests may be placed on the pair from now on */
    BT_KV_LINK_IS_CUT,    /**< pair may not be used, for a new reason */
    BT_KV_LINK_IS_UNUSED, /**< pair may not be used; no reason is given */
} bt_kv_link_news_t;

/** Applies a prefill worker's report on its link to @a decode. If memory is
 *  short, the link stays as it was. */
bt_kv_link_news_t bt_kv_link_report(bt_table_t *table, bt_instance_t *prefill,
                                    const bt_instance_t *decode,
                                    const bt_msg_kv_link_t *report);
/** Removes a worker's links when the worker leaves the table. */
void bt_kv_links_forget(bt_table_t *table, bt_instance_t *worker);

/** True when readiness waits for a decode worker that no prefill worker
 *  reaches. */
bool bt_kv_links_await(const bt_table_t *table);
/** Stops waiting for unreached decode workers once the table is ready; call
 *  after a change of workers or links. */
void bt_kv_links_settle(bt_table_t *table);

/** Number of links by state, between prefill workers that report links and
 *  decode workers. */
typedef struct bt_kv_link_counts {
    uint64_t n_proven, n_failed, n_unproven;
} bt_kv_link_counts_t;
bt_kv_link_counts_t bt_kv_links_count(const bt_table_t *table);

/** Prints a failed link: "prefill-0 cannot reach decode-0 at 10.0.0.2:4711 on
 *  eth0: no answer …" */
void bt_cut_print(const bt_cut_t *cut, char text[BT_CUT_TEXT]);
/** Returns the oldest known failed link; NULL: none. */
const bt_cut_t *bt_kv_links_first_cut(const bt_table_t *table);

#endif
