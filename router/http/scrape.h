/* SPDX-License-Identifier: Apache-2.0 */
/** @file scrape.h
 *
 * GET /metrics: a page (pooled_page.h) of the metrics' snapshot. For 64 workers
 * and 16 models, writing takes 1.1 ms, and copying 2 us.
 *
 * Threads: as pooled_page.h.
 */
#ifndef BT_ROUTER_HTTP_SCRAPE_H
#define BT_ROUTER_HTTP_SCRAPE_H

#include "router/frontend/frontend.h"
#include "router/http/pooled_page.h"

typedef struct bt_scrape {
    bt_pooled_page_t page;
    bt_metrics_snapshot_t *snapshot; /**< owned; NULL: it is written */
    bt_metrics_process_t process;
    bt_metrics_cpu_t cpu; /**< as on the previous page */
} bt_scrape_t;

/** Initializes the page. @param [in] door  borrowed */
void bt_scrape_init(bt_scrape_t *scrape, bt_door_t *door);

#endif
