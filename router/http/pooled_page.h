/* SPDX-License-Identifier: Apache-2.0 */
/** @file pooled_page.h
 *
 * A page that is long to write, by the pool: the loop copies what it says, one
 * at a time. Who asks meanwhile gets the next, so however many do there is one
 * copy and one page, and nobody's page is older than his question.
 *
 *     ask ─▶ asked ── take() ──▶ readers ── write() at the pool ──▶ answers
 *
 * Threads: everything on the event loop's thread, but for what the pool runs.
 */
#ifndef BT_ROUTER_HTTP_POOLED_PAGE_H
#define BT_ROUTER_HTTP_POOLED_PAGE_H

#include <stdbool.h>

#include "common/base/list.h"
#include "common/base/pool.h"
#include "common/base/strbuf.h"

typedef struct bt_door bt_door_t;
typedef struct bt_visit bt_visit_t;
typedef struct bt_pooled_page bt_pooled_page_t;

typedef struct bt_pooled_page_ops {
    const char *type; /**< Content-Type */
    /** On the loop: copy what the page says.
     *  @retval others  503; what was copied is for drop() */
    bt_status_t (*take)(bt_pooled_page_t *page);
    /** At the pool: append it. Once for each take(). */
    void (*write)(bt_pooled_page_t *page, bt_strbuf_t *out);
    /** On the loop: free what take() made; also where there is nothing. */
    void (*drop)(bt_pooled_page_t *page);
} bt_pooled_page_ops_t;

/** Embedded in the page's own. */
struct bt_pooled_page {
    bt_pool_job_t job;
    bt_door_t *door;
    const bt_pooled_page_ops_t *ops;
    bt_list_t asked;   /**< visits that get the next page */
    bt_list_t readers; /**< visits that get the one under way */
    bool is_under_way;
    bt_strbuf_t text;
};

/** @param [in] ops  static. @param [in] door  borrowed */
void bt_pooled_page_init(bt_pooled_page_t *page,
                         const bt_pooled_page_ops_t *ops, bt_door_t *door);
/** The visit is answered with a page, or with 503 when memory is short or the
 *  pool stops. If it is over before that, it takes itself out of the list. */
void bt_pooled_page_ask(bt_pooled_page_t *page, bt_visit_t *visit);
/** The pool must have been stopped. Also of a zeroed one. */
void bt_pooled_page_fini(bt_pooled_page_t *page);

#endif
