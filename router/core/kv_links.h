/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_links.h
 *
 * Which prefill worker's KV reaches which decode worker, as the prefill workers
 * say it (bt_msg_kv_link_t): a bit for each pair in the worker's place at the
 * scheduler, and for the first pairs that failed the reason.
 *
 *     UNPROVEN ──▶ PROVEN ⇄ FAILED      a pair is used while it is PROVEN
 *        └──────────────────▲
 *
 * Of a prefill worker that does not tell (an older build) every pair is used.
 *
 * A model is ready for the first time when each decode worker that came before
 * has a link, unless it prefills itself or no prefill worker is here; after
 * that, while one pair can be used.
 *
 * Pure. Threads: the table's.
 */
#ifndef BT_ROUTER_CORE_KV_LINKS_H
#define BT_ROUTER_CORE_KV_LINKS_H

#include "router/core/table.h"

#define BT_CUT_TEXT 448 /**< bytes of bt_cut_print() */

/** A link that failed. */
struct bt_cut {
    bt_list_t link; /**< in bt_table_t.cuts */
    const bt_instance_t *prefill, *decode;
    char at[BT_WIRE_MAX_AT];
    char why[BT_WIRE_MAX_WHY];
};

/** What a report comes to. */
typedef enum bt_kv_link_news {
    BT_KV_LINK_SAME,
    BT_KV_LINK_IS_USED,   /**< the pair may be placed from now on */
    BT_KV_LINK_IS_CUT,    /**< it may not, or for another reason than before */
    BT_KV_LINK_IS_UNUSED, /**< it may not; no reason is given */
} bt_kv_link_news_t;

/** A prefill worker says how its link to @a decode is. Without memory a link
 *  stays as it was. */
bt_kv_link_news_t bt_kv_link_report(bt_table_t *table, bt_instance_t *prefill,
                                    const bt_instance_t *decode,
                                    const bt_msg_kv_link_t *said);
/** The worker leaves the table. */
void bt_kv_links_forget(bt_table_t *table, bt_instance_t *worker);

/** Is a decode worker waited for, which no prefill worker reaches? */
bool bt_kv_links_await(const bt_table_t *table);
/** Something is new of workers or links: nobody is waited for any more once all
 *  is well. */
void bt_kv_links_settle(bt_table_t *table);

/** Pairs of a prefill worker that tells and a decode worker. */
typedef struct bt_kv_link_counts {
    uint64_t n_proven, n_failed, n_unproven;
} bt_kv_link_counts_t;
bt_kv_link_counts_t bt_kv_links_count(const bt_table_t *table);

/** "prefill-0 cannot reach decode-0 at 10.0.0.2:4711 on eth0: no answer …" */
void bt_cut_print(const bt_cut_t *cut, char text[BT_CUT_TEXT]);
/** The first failed link that is known; NULL: none. */
const bt_cut_t *bt_kv_links_first_cut(const bt_table_t *table);

#endif
