/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/link_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/process.h"
#include "common/rendezvous/rendezvous.h"
#include "worker/worker.h"

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
