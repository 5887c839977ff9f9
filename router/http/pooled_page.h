/* SPDX-License-Identifier: Apache-2.0 */
/** @file pooled_page.h
 *
 * Serves a page that takes long to write: the loop copies its data, then the
 * pool writes the page, one at a time. Requests in the meantime get the next
 * page, so there is never more than one copy and one page, and no page is older
 * than its request.
 *
 *     ask ─▶ asked ── take() ──▶ readers ── write() at the pool ──▶ answers
 *
 * Threads: everything on the event loop's thread, except the pool's jobs.
 */
#ifndef BT_ROUTER_HTTP_POOLED_PAGE_H
#define BT_ROUTER_HTTP_POOLED_PAGE_H

#include <stdbool.h>

#include "common/base/containers.h"
#include "common/base/pool.h"
#include "common/base/text.h"
#include "router/frontend/frontend.h"

typedef struct bt_door bt_door_t;
typedef struct bt_http_request bt_http_request_t;
typedef struct bt_pooled_page bt_pooled_page_t;

typedef struct bt_pooled_page_ops {
    const char *type; /**< Content-Type */
    /** On the loop: copies the page's data.
     *  @retval others  answered with 503; drop() frees what was copied */
    bt_status_t (*take)(bt_pooled_page_t *page);
    /** At the pool: appends the page. Once for each take(). */
    void (*write)(bt_pooled_page_t *page, bt_strbuf_t *out);
    /** On the loop: frees the data of take(); also where there is none. */
    void (*drop)(bt_pooled_page_t *page);
} bt_pooled_page_ops_t;

/** Base of a page; embedded in the page's own type. */
struct bt_pooled_page {
    bt_pool_job_t job;
    bt_door_t *door;
    const bt_pooled_page_ops_t *ops;
    bt_list_t asked;   /**< requests that get the next page */
    bt_list_t readers; /**< requests that get the page being written */
    bool is_under_way;
    bt_strbuf_t text;
};

/** Initializes a page. @param [in] ops  static. @param [in] door  borrowed */
void bt_pooled_page_init(bt_pooled_page_t *page,
                         const bt_pooled_page_ops_t *ops, bt_door_t *door);
/** Answers the request with a page, or with 503 when memory is short or the
 * pool stops. A request that is over earlier removes itself from the list. */
void bt_pooled_page_ask(bt_pooled_page_t *page, bt_http_request_t *r);
/** Frees the page; the pool must have been stopped. Also accepts a zeroed page.
 */
void bt_pooled_page_fini(bt_pooled_page_t *page);

/* ---- GET /metrics ---- */

/** Page of the metrics' snapshot. For 64 workers and 16 models, writing takes
 *  1.1 ms, and copying 2 us. */
typedef struct bt_scrape {
    bt_pooled_page_t page;
    bt_metrics_snapshot_t *snapshot; /**< owned; NULL: it is written */
    bt_metrics_process_t process;
    bt_metrics_cpu_t cpu; /**< as on the previous page */
} bt_scrape_t;

/** Initializes the page. @param [in] door  borrowed */
void bt_scrape_init(bt_scrape_t *scrape, bt_door_t *door);

#endif
