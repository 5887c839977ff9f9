/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "common/base/clock.h"
#include "launcher/supervisor_priv.h"

#define ADDRESS_BYTES 128
/* Time for the launcher's own end, after all processes have ended. */
#define END_MS 5000u

typedef struct counts {
    uint32_t n_meant, n_ready; /* processes, standbys included */
    uint32_t n_left;           /* that have not ended yet */
    uint32_t n_routers, n_serving;
    const bt_child_t *router; /* the first that is ready, or NULL */
} counts_t;

static void count(const bt_supervisor_t *s, counts_t *counts)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        const bt_child_t *const child = s->children[i];
        const bool is_meant = (child->life != BT_LIFE_STOPPED) &&
                              (child->life != BT_LIFE_STOPPING);
        const bool is_ready = (child->life == BT_LIFE_READY);

        counts->n_meant += is_meant;
        counts->n_ready += is_ready;
        counts->n_left += (child->pid != 0);
        if (bt_child_is_router(child)) {
            counts->n_routers += is_meant;
            counts->n_serving += is_ready;
            if (is_ready && (counts->router == NULL)) {
                counts->router = child;
            }
        }
    }
}

static void describe(const bt_supervisor_t *s, const counts_t *counts,
                     char *out, size_t bytes)
{
    char http[ADDRESS_BYTES];

    if (s->phase != BT_SUPERVISOR_RUNNING) {
        snprintf(out, bytes, "Stopping: %u processes are left", counts->n_left);
    } else if (!s->was_announced) {
        snprintf(out, bytes, "Starting: %u of %u processes are ready",
                 counts->n_ready, counts->n_meant);
    } else if ((counts->router != NULL) &&
               bt_ready_address(&counts->router->ready, "http", http,
                                sizeof(http))) {
        snprintf(out, bytes, "Serving at %s: %u of %u processes are ready",
                 http, counts->n_ready, counts->n_meant);
    } else {
        snprintf(out, bytes, "No router is ready: %u of %u processes are",
                 counts->n_ready, counts->n_meant);
    }
}

void bt_supervisor_notify(bt_supervisor_t *s)
{
    char status[BT_NOTIFY_STATUS_BYTES];
    counts_t counts = {0};
    bt_notify_state_t state = {
        .is_ready = s->was_announced,
        .is_stopping = (s->phase != BT_SUPERVISOR_RUNNING),
        .stop_ms = s->options->drain_ms + BT_SUPERVISOR_DRAIN_GRACE_MS +
                   BT_SUPERVISOR_WORKER_GRACE_MS + END_MS,
        .status = status,
    };

    if (s->options->notify->fd < 0) {
        return; /* no service manager */
    }
    count(s, &counts);
    state.n_routers = counts.n_routers;
    state.n_serving = counts.n_serving;
    describe(s, &counts, status, sizeof(status));
    bt_notify_tell(s->options->notify, &state, bt_now_ms());
}
