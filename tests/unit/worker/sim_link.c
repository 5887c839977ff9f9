/* SPDX-License-Identifier: Apache-2.0 */
/* Control links: queues of encoded messages. */
#include "tests/unit/worker/sim.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

void sim_queue(bt_link_t *link, bt_link_event_type_t type, const void *data,
               size_t bytes)
{
    sim_event_t *event;

    bt_alloc_fail_at(0); /* from here on it is our own memory */
    event = bt_calloc(1, sizeof(*event));
    assert_non_null(event);
    event->type = type;
    event->link_link = link;
    event->data = bt_memdup(data, bytes);
    assert_non_null(event->data);
    event->bytes = bytes;
    bt_list_push_back(&link->node->control.events, &event->link);
}

static void sim_event_free(sim_event_t *event)
{
    if (event->type == BT_LINK_DOWN) {
        bt_free(event->link_link); /* "gone after" */
    }
    bt_free(event->data);
    bt_free(event);
}

bool bt_control_next(bt_control_t *control, uint64_t now_ms,
                     bt_link_event_t *event_p)
{
    sim_event_t *event;

    (void)now_ms;
    if (control->given != NULL) {
        sim_event_free(control->given);
        control->given = NULL;
    }
    do {
        if (bt_list_empty(&control->events)) {
            return false;
        }
        event = BT_CONTAINER_OF(control->events.next, sim_event_t, link);
        bt_list_remove(&event->link);
        control->given = event;
        if (event->link_link->open || (event->type != BT_LINK_MESSAGE)) {
            break;
        }
        sim_event_free(event); /* closed: nothing but DOWN comes */
        control->given = NULL;
    } while (true);
    *event_p = (bt_link_event_t){.type = event->type,
                                 .link = event->link_link,
                                 .data = event->data,
                                 .bytes = event->bytes};
    return true;
}

void sim_link_over(bt_link_t *link, const char *reason)
{
    if (!link->open) {
        return;
    }
    link->open = false;
    link->node->links[link->router] = NULL;
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            if (sim.reqs[i].legs[k].link == link) {
                sim.reqs[i].legs[k].link = NULL;
            }
        }
    }
    sim_queue(link, BT_LINK_DOWN, reason, strlen(reason));
}

void bt_link_close(bt_link_t *link, const char *reason)
{
    snprintf(link->node->closed_why, sizeof(link->node->closed_why), "%s",
             reason);
    sim_link_over(link, reason);
}

void bt_link_set_user(bt_link_t *link, void *user)
{
    link->user = user;
}

void *bt_link_user(const bt_link_t *link)
{
    return link->user;
}

int bt_control_fd(const bt_control_t *control)
{
    (void)control;
    return -1;
}

void bt_control_tick(bt_control_t *control, uint64_t now_ms)
{
    (void)control;
    (void)now_ms;
}

size_t bt_link_queued(const bt_link_t *link)
{
    return link->full ? SIZE_MAX : 0;
}

void bt_link_want_writable(bt_link_t *link, size_t bytes)
{
    (void)bytes;
    link->asked_for_room = true;
}

void bt_control_flush(bt_control_t *control)
{
    (void)control;
}

/* No test of these looks into a directory. */
/* Nobody reads the readiness descriptor here. */
uint32_t bt_control_routers(const bt_control_t *control,
                            bt_control_router_t *list, uint32_t most)
{
    (void)control;
    (void)list;
    (void)most;
    return 0;
}

bt_status_t bt_control_join(bt_control_t *control, const char *url)
{
    (void)control;
    (void)url;
    return BT_ERR_UNSUPPORTED;
}

bool bt_control_leave(bt_control_t *control, const char *url)
{
    (void)control;
    (void)url;
    return true;
}

bool bt_control_rekey(bt_control_t *control, const uint8_t *key,
                      size_t key_bytes, uint64_t now_ms)
{
    (void)control;
    (void)key;
    (void)key_bytes;
    (void)now_ms;
    return false; /* nobody sends a signal here */
}

void sim_link_close(sim_node_t *node)
{
    bt_control_t *control = &node->control;

    for (uint32_t r = 0; r < SIM_ROUTERS; r++) {
        if (node->links[r] != NULL) {
            bt_link_close(node->links[r], "closed");
        }
    }
    if (control->given != NULL) {
        sim_event_free(control->given);
    }
    while (!bt_list_empty(&control->events)) {
        sim_event_t *event =
            BT_CONTAINER_OF(control->events.next, sim_event_t, link);

        bt_list_remove(&event->link);
        sim_event_free(event);
    }
}
