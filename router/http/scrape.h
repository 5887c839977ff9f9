/* SPDX-License-Identifier: Apache-2.0 */
/** @file scrape.h
 *
 * Pages of metrics for those who ask. The text of a page takes milliseconds, so
 * the frontend's pool writes it from a snapshot, one page at a time:
 *
 *     ask ─▶ asked ──▶ snapshot ─▶ written ─▶ each of its readers is answered
 *              ▲          │ (pool)               │
 *              └── who asks meanwhile gets ◀─────┘
 *                  the next page
 *
 * So whoever asks, and however many do, there is one snapshot and one page, and
 * nobody's page is older than his question.
 *
 * Threads: everything on the event loop's thread, but for what the pool runs.
 */
#ifndef BT_ROUTER_HTTP_SCRAPE_H
#define BT_ROUTER_HTTP_SCRAPE_H

#include <stdbool.h>

#include "common/base/list.h"
#include "common/base/pool.h"
#include "common/base/strbuf.h"
#include "router/frontend/frontend.h"

typedef struct bt_door bt_door_t;
typedef struct bt_visit bt_visit_t;

typedef struct bt_scrape {
    bt_pool_job_t job;
    bt_door_t *door;
    bt_list_t asked;   /**< visits that get the next page */
    bt_list_t readers; /**< visits that get the one under way */
    bool is_under_way;
    bt_metrics_snapshot_t *snapshot; /**< owned; NULL: it is written */
    bt_metrics_process_t process;
    bt_metrics_cpu_t cpu; /**< as the page before had it */
    bt_strbuf_t page;
} bt_scrape_t;

/** @param [in] door  borrowed */
void bt_scrape_init(bt_scrape_t *scrape, bt_door_t *door);
/** The visit is answered with a page, or with 503 when memory is short or the
 *  pool stops. If it is over before that, it takes itself out of the list. */
void bt_scrape_ask(bt_scrape_t *scrape, bt_visit_t *visit);
/** The pool must have been stopped. Also of a zeroed one. */
void bt_scrape_fini(bt_scrape_t *scrape);

#endif
