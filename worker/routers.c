/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/routers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/rendezvous/rendezvous.h"
#include "worker/worker.h"

/* ---- joining ---- */

struct bt_membership {
    bt_rendezvous_watch_t *watch;
    bt_rendezvous_list_t there;  /* in the directory */
    bt_rendezvous_list_t joined; /* from the directory; any order */
    bool is_behind;              /* the two lists may still differ */
};

bt_status_t bt_membership_open(bt_worker_t *w)
{
    bt_membership_t *m;
    bt_status_t status;

    if (w->config->join_dir[0] == '\0') {
        return BT_OK;
    }
    m = bt_calloc(1, sizeof(*m));
    if (m == NULL) {
        BT_LOG_ERROR("out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_rendezvous_watch_open(w->config->join_dir, &m->watch);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot watch the join directory %s: %s",
                     w->config->join_dir, bt_status_str(status));
        bt_free(m);
        return status;
    }
    w->membership = m;
    return BT_OK;
}

static bool has(const bt_rendezvous_list_t *list, const char *url)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->urls[i], url) == 0) {
            return true;
        }
    }
    return false;
}

static void join_new(bt_worker_t *w, bt_membership_t *m)
{
    for (uint32_t i = 0; i < m->there.n; i++) {
        const char *url = m->there.urls[i];
        bt_status_t status;

        if (has(&m->joined, url)) {
            continue;
        }
        if (m->joined.n == BT_RENDEZVOUS_MAX) {
            m->is_behind = true; /* when one has left */
            return;
        }
        status = bt_control_join(w->control, url);
        if (status == BT_ERR_EXISTS) {
            continue; /* one of --join */
        }
        if (status != BT_OK) {
            BT_LOG_WARN("cannot join the router at %s: %s", url,
                        bt_status_str(status));
            m->is_behind = m->is_behind || (status == BT_ERR_NO_MEMORY);
            continue;
        }
        BT_LOG_INFO("router at %s found in the join directory", url);
        memcpy(m->joined.urls[m->joined.n++], url, sizeof(m->there.urls[i]));
    }
}

static void leave_old(bt_worker_t *w, bt_membership_t *m)
{
    for (uint32_t i = 0; i < m->joined.n;) {
        if (has(&m->there, m->joined.urls[i])) {
            i++;
        } else if (!bt_control_leave(w->control, m->joined.urls[i])) {
            m->is_behind = true; /* when its link is down */
            i++;
        } else {
            BT_LOG_INFO("router at %s is gone from the join directory",
                        m->joined.urls[i]);
            memmove(m->joined.urls[i], m->joined.urls[--m->joined.n],
                    sizeof(m->joined.urls[i]));
        }
    }
}

void bt_membership_tick(bt_worker_t *w)
{
    bt_membership_t *m = w->membership;

    if (m == NULL) {
        return;
    }
    if (bt_rendezvous_watch_take(m->watch, &m->there)) {
        m->is_behind = true;
        if (m->there.n_passed > 0) {
            BT_LOG_WARN(
                "join directory %s: %u files are ignored: they have no URL, or are more than %d",
                w->config->join_dir, m->there.n_passed, BT_RENDEZVOUS_MAX);
        }
    }
    if (m->is_behind) {
        m->is_behind = false;
        leave_old(w, m);
        join_new(w, m);
    }
}

void bt_membership_close(bt_worker_t *w)
{
    if (w->membership != NULL) {
        bt_rendezvous_watch_close(w->membership->watch);
        bt_free(w->membership);
        w->membership = NULL;
    }
}

/* ---- without a router ---- */

uint64_t bt_no_router_warning_check(bt_no_router_warning_t *alone,
                                    bool has_router, uint64_t now_ms)
{
    if (has_router || !alone->is_alone) {
        *alone = (bt_no_router_warning_t){.is_alone = !has_router,
                                          .since_ms = now_ms};
        return 0;
    }
    if ((alone->said_ms == 0) ? (now_ms - alone->since_ms < BT_ALONE_FIRST_MS)
                              : (now_ms - alone->said_ms < BT_ALONE_AGAIN_MS)) {
        return 0;
    }
    alone->said_ms = now_ms;
    return (now_ms - alone->since_ms) / 1000;
}

/* ---- the report to the launcher ---- */

/* Most routers that are checked: those of a shared directory, and as many of
 * --join. */
#define MOST_ROUTERS (2 * BT_RENDEZVOUS_MAX)

/* "joined 1 2 URL: WHY\n" for the first router without a link; if all are
 * linked, any other problem after the numbers. */
static void print_line(const bt_control_t *control, const char *trouble,
                       char line[BT_JOINED_LINE_BYTES])
{
    bt_control_router_t list[MOST_ROUTERS];
    const uint32_t n_all = bt_control_routers(control, list, MOST_ROUTERS);
    const bt_control_router_t *kept = NULL;
    uint32_t n_up = 0;

    for (uint32_t i = 0; (i < n_all) && (i < MOST_ROUTERS); i++) {
        n_up += list[i].is_up ? 1 : 0;
        if (!list[i].is_up && ((kept == NULL) || (kept->why[0] == '\0'))) {
            kept = &list[i];
        }
    }
    if (kept == NULL) {
        snprintf(line, BT_JOINED_LINE_BYTES, "joined %u %u%s%.512s\n", n_up,
                 n_all, (trouble[0] != '\0') ? " " : "", trouble);
        return;
    }
    /* A url and a reason of link.h, each shorter than its part of the line. */
    snprintf(line, BT_JOINED_LINE_BYTES, "joined %u %u %.256s: %.512s\n", n_up,
             n_all, kept->url,
             (kept->why[0] != '\0') ? kept->why : "no link to it yet");
}

void bt_link_status_send(bt_worker_t *w, uint64_t now_ms)
{
    char line[BT_JOINED_LINE_BYTES];

    if ((w->ready_fd < 0) || (now_ms < w->joined.next_ms) ||
        (getenv("BATON_READY_JOINED") == NULL)) {
        return;
    }
    print_line(w->control, w->kv_trouble, line);
    if (strcmp(line, w->joined.said) != 0) {
        memcpy(w->joined.said, line, sizeof(line));
        w->joined.next_ms = now_ms + BT_JOINED_EVERY_MS;
        bt_ready_fd_say(&w->ready_fd, line);
    }
}
