/* SPDX-License-Identifier: Apache-2.0 */
#include "router/worker_links.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define LINK_QUEUE_BYTES (64u << 20)
/* Requests wait in the router while this many bytes are queued on a worker's
 * link: they delay heartbeats, and are lost with the link. */
#define LINK_BEHIND_BYTES ((size_t)2 << 20)
#define WAKE_US           500 /* us of control events before others */

/* A link whose file matches no model yet. */
typedef struct waiting {
    bt_list_t link; /* in bt_worker_links_t.waiting */
    bt_link_t *worker;
    void *hello; /* owned */
    size_t bytes;
} waiting_t;

/* Returns the model for the user pointer of a link. */
static bt_served_t *model_of(bt_worker_links_t *links,
                             const bt_instance_t *worker)
{
    return bt_registry_of_file(&links->front->models,
                               bt_hello_base(&worker->hello));
}

void bt_worker_links_send(void *ctx, bt_instance_t *worker, const bt_msg_t *msg)
{
    bt_worker_links_t *links = ctx;
    bt_link_t *link = worker->link_user;
    bt_status_t status;

    bt_strbuf_reset(&links->frame);
    bt_wire_encode(msg, &links->frame);
    status = bt_strbuf_status(&links->frame);
    if (status == BT_OK) {
        status = bt_link_post(link, links->frame.data, links->frame.len);
    }
    /* BUSY: the link is being closed already. A message that cannot be sent
     * must not be lost silently, so the link is closed. */
    if ((status != BT_OK) && (status != BT_ERR_BUSY)) {
        BT_LOG_ERROR("worker %s: a message of type %d cannot be sent: %s",
                     worker->hello.name, (int)msg->type, bt_status_str(status));
        bt_link_close(link, "the router cannot send a message");
    }
    if ((msg->type == BT_MSG_REQUEST) && !worker->sched.is_behind &&
        (bt_link_queued(link) > LINK_BEHIND_BYTES)) {
        bt_core_worker_behind(model_of(links, worker)->core, worker, true,
                              bt_now_us());
        bt_link_want_writable(link, LINK_BEHIND_BYTES / 2);
    }
    bt_turn_put_off(&links->front->turn, &links->flush, bt_now_us());
}

static void flush(bt_turn_work_t *work)
{
    const bt_worker_links_t *links =
        BT_CONTAINER_OF(work, bt_worker_links_t, flush);

    if (links->control != NULL) {
        bt_control_flush(links->control);
    }
}

/* ---- events of a link ---- */

/* @param [in] name worker that sent the hello, "" if unreadable */
static void refuse_link(const bt_worker_links_t *links, bt_link_t *link,
                        const char *name, const char *why)
{
    const bt_rejection_t who = {
        .name = name, .address = "", .why = why, .proven = true};

    BT_LOG_WARN("worker refused: %s", why);
    bt_members_reject(&links->front->members, &who, (uint64_t)bt_walltime_ms());
    bt_link_close(link, why);
}

/* Handles a peer that failed before its hello. */
static void on_refused(void *ctx, const bt_control_refused_t *refused)
{
    const bt_worker_links_t *links = ctx;
    const bt_rejection_t who = {.name = refused->name,
                                .address = refused->url,
                                .why = refused->why,
                                .proven = refused->proven};

    bt_members_reject(&links->front->members, &who, (uint64_t)bt_walltime_ms());
}

/* A worker that lost its link may reconnect before the router noticed. */
static void drop_former(bt_core_t *core, uint64_t instance)
{
    bt_instance_t *worker = bt_table_find(bt_core_table(core), instance);

    if (worker != NULL) {
        bt_link_t *old = worker->link_user;

        bt_core_worker_down(core, worker, "it linked itself anew", bt_now_us());
        bt_link_set_user(old, NULL);
        bt_link_close(old, "replaced by a new link");
    }
}

/* Disconnects the present workers, which are the wrong ones. */
static void drop_all(bt_core_t *core, const char *why)
{
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &bt_core_table(core)->workers,
                           link) {
        bt_link_t *link = worker->link_user;

        BT_LOG_WARN(
            "worker %s is disconnected in favour of compatible workers: %s",
            worker->hello.name, why);
        bt_core_worker_down(core, worker, "others can serve", bt_now_us());
        bt_link_set_user(link, NULL);
        bt_link_close(link, why);
    }
}

static void waiting_free(waiting_t *waiting)
{
    bt_list_remove(&waiting->link);
    bt_free(waiting->hello);
    bt_free(waiting);
}

/* The worker may compute the model that is being read: reading takes no longer
 * than a worker's start. @return false if memory is short */
static bool wait_for_model(bt_worker_links_t *links,
                           const bt_link_event_t *event)
{
    waiting_t *waiting = bt_calloc(1, sizeof(*waiting));

    if (waiting == NULL) {
        return false;
    }
    waiting->hello = bt_memdup(event->data, event->bytes);
    if (waiting->hello == NULL) {
        bt_free(waiting);
        return false;
    }
    waiting->bytes = event->bytes;
    waiting->worker = event->link;
    bt_list_push_back(&links->waiting, &waiting->link);
    return true;
}

static void link_up(bt_worker_links_t *links, const bt_link_event_t *event)
{
    char why[BT_TABLE_WHY_BYTES] = "";
    bt_instance_t *worker = NULL;
    bt_served_t *served;
    bt_status_t status;
    bt_msg_t msg;

    if ((bt_wire_decode(links->decoder, event->data, event->bytes, &msg) !=
         BT_OK) ||
        (msg.type != BT_MSG_HELLO)) {
        refuse_link(links, event->link, "", "its hello is malformed");
        return;
    }
    /* A file that matches no model: the default model's core refuses the
     * worker, for its protocol if that differs, else for its model. */
    served =
        bt_registry_of_file(&links->front->models, bt_hello_base(&msg.u.hello));
    if ((served == NULL) && bt_loads_any(&links->front->loads) &&
        wait_for_model(links, event)) {
        return;
    }
    if (served == NULL) {
        served = bt_registry_find(&links->front->models, NULL);
    }
    BT_REGISTRY_FOR_EACH(other, &links->front->models)
    {
        drop_former(other->core, msg.u.hello.instance);
    }
    status = bt_core_worker_up(served->core, &msg.u.hello, event->link,
                               bt_now_us(), why, &worker);
    if (status == BT_ERR_STALE) {
        drop_all(served->core, why);
        status = bt_core_worker_up(served->core, &msg.u.hello, event->link,
                                   bt_now_us(), why, &worker);
    }
    if (status != BT_OK) {
        refuse_link(links, event->link, msg.u.hello.name, why);
        return;
    }
    bt_members_join(&links->front->members, worker->hello.name);
    bt_link_set_user(event->link, worker);
}

static void link_message(bt_worker_links_t *links, bt_instance_t *worker,
                         const bt_link_event_t *event)
{
    const bt_served_t *served = model_of(links, worker);
    bt_msg_t msg;
    bt_status_t status =
        bt_wire_decode(links->decoder, event->data, event->bytes, &msg);

    if (status == BT_OK) {
        if (msg.type == BT_MSG_STATS) {
            bt_router_metrics_stats(served->metrics, &worker->stats,
                                    &msg.u.stats);
        }
        status = bt_core_message(served->core, worker, &msg, bt_now_us());
    }
    if (status == BT_ERR_UNSUPPORTED) { /* from a newer worker */
        const bt_wire_skip_t skipped = bt_wire_skipped(links->decoder);

        if (skipped.say) {
            BT_LOG_WARN(
                "worker %s sends messages of type %u, unknown to this router: skipped, %" PRIu64
                " so far",
                worker->hello.name, skipped.type, skipped.n);
        }
        return;
    }
    if (status != BT_OK) {
        BT_LOG_WARN("worker %s sent an invalid message: %s", worker->hello.name,
                    bt_status_str(status));
        bt_link_close(event->link, bt_status_str(status));
    }
}

static void link_down(bt_worker_links_t *links, bt_instance_t *worker,
                      const bt_link_event_t *event)
{
    char reason[256];

    snprintf(reason, sizeof(reason), "%.*s",
             (event->bytes < 255) ? (int)event->bytes : 255,
             (event->data != NULL) ? (const char *)event->data : "");
    bt_link_set_user(event->link, NULL);
    bt_core_worker_down(model_of(links, worker)->core, worker,
                        (reason[0] != '\0') ? reason : "link lost",
                        bt_now_us());
}

static void stop_waiting(bt_worker_links_t *links, const bt_link_t *link)
{
    BT_LIST_FOR_EACH_ENTRY(waiting_t, waiting, &links->waiting, link) {
        if (waiting->worker == link) {
            waiting_free(waiting);
        }
    }
}

/* When a model was read, or could not be, checks which waiting workers belong
 * to it. Others may wait for the next model. */
static void retry_waiting(bt_worker_links_t *links)
{
    const uint32_t n_ended = links->front->loads.n_ended;
    bt_list_t waiting;

    if (n_ended == links->n_loads_seen) {
        return;
    }
    links->n_loads_seen = n_ended;
    bt_list_init(&waiting);
    while (!bt_list_empty(&links->waiting)) {
        bt_list_t *link = links->waiting.next;

        bt_list_remove(link);
        bt_list_push_back(&waiting, link);
    }
    while (!bt_list_empty(&waiting)) {
        waiting_t *first = BT_CONTAINER_OF(waiting.next, waiting_t, link);
        const bt_link_event_t event = {.type = BT_LINK_UP,
                                       .link = first->worker,
                                       .data = first->hello,
                                       .bytes = first->bytes};

        link_up(links, &event);
        waiting_free(first);
    }
}

static void link_event(bt_worker_links_t *links, const bt_link_event_t *event)
{
    bt_instance_t *worker = bt_link_user(event->link);

    if (event->type == BT_LINK_UP) {
        link_up(links, event);
        return;
    }
    if (worker == NULL) { /* refused, replaced, or still waiting */
        if (event->type == BT_LINK_DOWN) {
            stop_waiting(links, event->link);
        }
        return;
    }
    switch (event->type) {
    case BT_LINK_SUSPECT:
    case BT_LINK_HEALTHY:
        bt_core_worker_suspect(model_of(links, worker)->core, worker,
                               event->type == BT_LINK_SUSPECT, bt_now_us());
        break;
    case BT_LINK_STARVED:
        bt_core_worker_starved(model_of(links, worker)->core, worker,
                               bt_now_us());
        break;
    case BT_LINK_DOWN:
        link_down(links, worker, event);
        break;
    case BT_LINK_MESSAGE:
        link_message(links, worker, event);
        break;
    case BT_LINK_WRITABLE:
        bt_core_worker_behind(model_of(links, worker)->core, worker, false,
                              bt_now_us());
        break;
    case BT_LINK_UP:
        break;
    }
}

static void pump(bt_worker_links_t *links)
{
    const uint64_t end_us = bt_now_us() + WAKE_US;
    bt_link_event_t event;
    uint64_t now_us;

    while (((now_us = bt_now_us()) < end_us) &&
           bt_control_next(links->control, now_us / 1000, &event)) {
        link_event(links, &event);
    }
    if (now_us >= end_us) {
        event_active(links->more, EV_TIMEOUT, 0);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    const bt_worker_links_t *links = ctx;

    (void)fd;
    (void)what;
    pump(ctx);
    bt_frontend_turn(links->front);
}

bool bt_worker_links_rekey(bt_worker_links_t *links, const uint8_t *key,
                           size_t key_bytes)
{
    return bt_control_rekey(links->control, key, key_bytes, bt_now_ms());
}

void bt_worker_links_tick(bt_worker_links_t *links, uint64_t now_ms)
{
    bt_control_tick(links->control, now_ms);
    retry_waiting(links);
    pump(links);
}

/* ---- birth and end ---- */

bt_status_t bt_worker_links_open(bt_worker_links_t *links,
                                 struct event_base *base, bt_frontend_t *front)
{
    bt_status_t status;

    *links = (bt_worker_links_t){.front = front};
    bt_list_init(&links->waiting);
    bt_turn_work_init(&links->flush, flush);
    bt_strbuf_init(&links->frame, BT_WIRE_MAX_BYTES);
    status = bt_wire_decoder_create(&links->decoder);
    if (status != BT_OK) {
        BT_LOG_ERROR("control links: %s", bt_status_str(status));
        return status;
    }
    links->more = event_new(base, -1, 0, on_readable, links);
    if ((links->more == NULL) ||
        (event_priority_set(links->more,
                            event_base_get_npriorities(base) - 1) != 0)) {
        BT_LOG_ERROR("cannot create the event sources of the control links");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static bt_status_t open_control(bt_worker_links_t *links, const uint8_t *key,
                                size_t key_bytes)
{
    const bt_config_t *config = links->front->config;
    const bt_served_t *served = bt_registry_find(&links->front->models, NULL);
    bt_msg_t hello = {.type = BT_MSG_HELLO};
    bt_control_config_t control = {
        .key = key,
        .key_bytes = key_bytes,
        .name = hello.u.hello.name,
        .range = bt_wire_range_ours(),
        .heartbeat_ms = config->heartbeat_ms,
        .suspect_ms = config->suspect_ms,
        .dead_ms = config->dead_ms,
        .tells_starved = true,
        .max_queue_bytes = LINK_QUEUE_BYTES,
        .share_memory = strcmp(config->link_transport, "auto") == 0,
        .on_refused = on_refused,
        .refused_ctx = links,
    };
    bt_status_t status;

    hello.u.hello.protocol = BT_WIRE_PROTOCOL;
    hello.u.hello.protocol_min = BT_WIRE_PROTOCOL_MIN;
    snprintf(hello.u.hello.version_text, sizeof(hello.u.hello.version_text),
             "%s", bt_config_version());
    hello.u.hello.role = BT_ROLE_ROUTER;
    hello.u.hello.instance = links->front->id_start;
    hello.u.hello.model = served->identity;
    hello.u.hello.tp = hello.u.hello.pp = 1;
    snprintf(hello.u.hello.name, sizeof(hello.u.hello.name), "%.63s",
             (config->name[0] != '\0') ? config->name : "router");
    bt_strbuf_reset(&links->frame);
    bt_wire_encode(&hello, &links->frame);
    status = bt_strbuf_status(&links->frame);
    if (status == BT_OK) {
        control.hello = links->frame.data;
        control.hello_bytes = links->frame.len;
        status = bt_control_open(&control, &links->control);
    }
    return status;
}

bt_status_t bt_worker_links_listen(bt_worker_links_t *links,
                                   struct event_base *base, const char *url,
                                   const uint8_t *key, size_t key_bytes,
                                   char *bound, size_t bound_bytes)
{
    bt_status_t status = open_control(links, key, key_bytes);

    if (status != BT_OK) {
        BT_LOG_ERROR("cannot listen for workers at %s: %s", url,
                     bt_status_str(status));
        return status;
    }
    status = bt_control_listen(links->control, url, bound, bound_bytes);
    if (status != BT_OK) {
        if (status == BT_ERR_NO_MEMORY) { /* else it was logged there */
            BT_LOG_ERROR("cannot listen for workers at %s: %s", url,
                         bt_status_str(status));
        }
        return status;
    }
    links->readable = event_new(base, bt_control_fd(links->control),
                                EV_READ | EV_PERSIST, on_readable, links);
    if ((links->readable == NULL) ||
        (event_priority_set(links->readable, BT_LINKS_PRIORITY) != 0) ||
        (event_add(links->readable, NULL) != 0)) {
        BT_LOG_ERROR("cannot watch the control links");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

void bt_worker_links_close(bt_worker_links_t *links)
{
    struct event *const events[] = {links->readable, links->more};

    if (links->front == NULL) {
        return; /* not opened */
    }
    flush(&links->flush);
    bt_turn_forget(&links->flush);
    for (size_t i = 0; i < BT_ARRAY_LEN(events); i++) {
        if (events[i] != NULL) {
            event_free(events[i]);
        }
    }
    bt_control_close(links->control);
    while ((links->waiting.next != NULL) && !bt_list_empty(&links->waiting)) {
        waiting_free(BT_CONTAINER_OF(links->waiting.next, waiting_t, link));
    }
    bt_wire_decoder_destroy(links->decoder);
    bt_strbuf_fini(&links->frame);
    *links = (bt_worker_links_t){0};
}
