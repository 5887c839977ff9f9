/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/membership.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/rendezvous/rendezvous.h"
#include "worker/worker.h"

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
