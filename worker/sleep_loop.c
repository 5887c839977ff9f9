/* SPDX-License-Identifier: Apache-2.0 */
/* Control loop of a worker that sleeps. */
#include <poll.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "worker/admin.h"
#include "worker/routers.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define POLL_MS 20 /* bounds timers, as in loop.c */

static void send_stats(bt_worker_t *w)
{
    const bt_process_use_t use = bt_process_use();
    const bt_msg_t msg = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = w->roles,
                    .duty = bt_admin_state_of(w),
                    .tokens_per_block = w->sleep.hello.tokens_per_block,
                    .log_lines_dropped = bt_log_dropped(),
                    .open_fds = bt_count_open_fds(),
                    .process_cpu_ms = use.cpu_ms,
                    .resident_bytes = use.resident_bytes,
                    .start_unix_s = w->stats.start_unix_s}};

    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_worker_send(w, w->links[i], &msg);
    }
}

static void on_link_up(bt_worker_t *w, const bt_link_event_t *event)
{
    const bt_msg_t drain = {.type = BT_MSG_DRAIN};
    bt_worker_link_t *link;

    if (!bt_worker_check_router(w, event)) {
        return;
    }
    link = (w->n_links < BT_ARRAY_LEN(w->links)) ? bt_calloc(1, sizeof(*link))
                                                 : NULL;
    if (link == NULL) {
        bt_link_close(event->link, "no memory or place for another router");
        return;
    }
    link->control = event->link;
    bt_link_set_user(event->link, link);
    w->links[w->n_links++] = link;
    bt_worker_send(w, link, &drain); /* a router that knows of no sleep */
    w->stats.next_ms = 0;
}

static void on_link_down(bt_worker_t *w, bt_worker_link_t *link)
{
    for (uint32_t i = 0; i < w->n_links; i++) {
        if (w->links[i] == link) {
            w->links[i] = w->links[--w->n_links];
            break;
        }
    }
    bt_free(link);
}

static void on_role(bt_worker_t *w, const bt_msg_role_t *role)
{
    if (((role->roles & ~BT_ROLES_BOTH) != 0) ||
        (role->duty > BT_ADMIN_STATE_END)) {
        BT_LOG_WARN("router sent roles %u and state %u, unknown to this worker",
                    role->roles, role->duty);
        return;
    }
    if (role->roles != 0) {
        w->roles = role->roles; /* when it wakes */
    }
    if (role->duty == BT_ADMIN_STATE_END) {
        BT_LOG_INFO("exiting by an admin command");
        w->draining = true;
    } else if (role->duty != BT_ADMIN_STATE_AS_IT_IS) {
        w->admin.off_duty = role->duty == BT_ADMIN_STATE_OFF;
    }
    w->stats.next_ms = 0;
}

static void on_message(bt_worker_t *w, bt_worker_link_t *from,
                       const bt_link_event_t *event)
{
    bt_msg_t msg;
    const bt_status_t status =
        bt_wire_decode(w->decoder, event->data, event->bytes, &msg);

    if (status == BT_ERR_UNSUPPORTED) {
        return; /* a newer router's */
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("router sent a message that cannot be read: %s",
                     bt_status_str(status));
        bt_link_close(from->control, "message could not be read");
        return;
    }
    if (msg.type == BT_MSG_SLEEP) {
        bt_sleep_on_order(w, &msg.u.sleep);
    } else if (msg.type == BT_MSG_ROLE) {
        on_role(w, &msg.u.role);
    } else if (msg.type == BT_MSG_REQUEST) {
        bt_worker_refuse(w, from, msg.u.request.key, BT_ERR_BUSY,
                         "the worker sleeps");
    } /* others are about what it does not have */
}

static void take_control(bt_worker_t *w)
{
    bt_link_event_t event;

    while (bt_control_next(w->control, bt_now_ms(), &event)) {
        bt_worker_link_t *const link = bt_link_user(event.link);

        if (event.type == BT_LINK_UP) {
            on_link_up(w, &event);
        } else if ((event.type == BT_LINK_DOWN) && (link != NULL)) {
            on_link_down(w, link);
        } else if ((event.type == BT_LINK_MESSAGE) && (link != NULL)) {
            on_message(w, link, &event);
        }
    }
}

static void take_signals(bt_worker_t *w, int signal_fd)
{
    bool from_parent = false;

    while (bt_stop_next(signal_fd, &from_parent) != 0) {
        if (bt_stop_request(&w->wishes, bt_now_ms(), from_parent) !=
            BT_STOP_SAME) {
            w->draining = true; /* nothing is left to drain */
        }
    }
}

static void tick(bt_worker_t *w)
{
    const uint64_t now_ms = bt_now_ms();

    bt_heartbeat_tick(&w->beat, now_ms);
    bt_log_tick();
    bt_control_tick(w->control, now_ms);
    if (now_ms >= w->stats.next_ms) {
        w->stats.next_ms = now_ms + w->config->heartbeat_ms;
        send_stats(w);
        bt_worker_check_routers(w, now_ms);
        bt_link_status_send(w, now_ms);
    }
    bt_membership_tick(w);
}

static bt_status_t open_links(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = bt_start_router_find(w, s);

    if (status == BT_OK) {
        status = bt_wire_decoder_create(&w->decoder);
    }
    if (status == BT_OK) {
        status = bt_start_links_open(w, s);
    }
    bt_key_wipe(s->key, sizeof(s->key));
    return status;
}

int bt_sleep_run(bt_worker_t *w, bt_start_t *s, int signal_fd)
{
    const bt_status_t status = open_links(w, s);

    if (status != BT_OK) {
        return bt_exit_of_start(status);
    }
    BT_LOG_INFO("asleep: weights and KV pool are given back");
    bt_ready_fd_say(&w->ready_fd, "loaded\n"); /* its loop runs again */
    while (!w->draining && !w->sleep.is_due) {
        struct pollfd fds[] = {
            {.fd = bt_control_fd(w->control), .events = POLLIN},
            {.fd = signal_fd, .events = POLLIN},
            {.fd = w->admin.hangup_fd, .events = POLLIN},
        };

        (void)poll(fds, BT_ARRAY_LEN(fds), POLL_MS);
        take_signals(w, signal_fd);
        bt_sighup_take(w);
        take_control(w);
        tick(w);
        bt_control_flush(w->control);
    }
    return BT_EXIT_OK;
}
