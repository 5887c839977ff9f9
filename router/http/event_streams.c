/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/event_streams.h"

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/http/cluster_state.h"
#include "router/http/door_priv.h"

#define STATE_US     1000000u
#define HANDOVERS_US 250000u
#define STALL_US     10000000u /* without reading anything */

struct bt_watcher {
    bt_list_t link;
    bt_watchers_t *watchers;
    bt_http_request_t *r;
    uint64_t next_event;  /* number of the next event */
    uint64_t n_handovers; /* hand-overs sent */
    uint64_t n_points;    /* points of the history sent */
    size_t unsent;        /* at the last tick */
    uint64_t moved_us;    /* time of the last progress */
};

void bt_watchers_init(bt_watchers_t *watchers, bt_door_t *door)
{
    *watchers = (bt_watchers_t){.door = door};
    bt_list_init(&watchers->all);
    bt_strbuf_init(&watchers->state, BT_ANSWER_LIMIT);
    bt_strbuf_init(&watchers->handovers, BT_ANSWER_LIMIT);
    bt_strbuf_init(&watchers->out, BT_ANSWER_LIMIT);
}

void bt_watchers_fini(bt_watchers_t *watchers)
{
    bt_strbuf_fini(&watchers->state);
    bt_strbuf_fini(&watchers->handovers);
    bt_strbuf_fini(&watchers->out);
    *watchers = (bt_watchers_t){0};
}

void bt_watcher_leave(bt_watcher_t *watcher)
{
    bt_list_remove(&watcher->link);
    watcher->watchers->n--;
    bt_free(watcher);
}

/* ---- events ---- */

static void begin_data(bt_strbuf_t *out, const char *event, bt_json_t *json)
{
    bt_strbuf_printf(out, "event: %s\ndata: ", event);
    bt_json_init(json, out);
    bt_json_object(json, NULL);
}

static void end_data(bt_strbuf_t *out, bt_json_t *json)
{
    bt_json_end_object(json);
    bt_strbuf_puts(out, "\n\n");
}

/* Shared buffers: readers miss what did not fit in memory. */
static void check_shared(bt_strbuf_t *out)
{
    if (bt_strbuf_status(out) != BT_OK) {
        BT_LOG_WARN("out of memory for readers of cluster events");
        bt_strbuf_reset(out);
    }
}

static void put_state(const bt_door_t *door, bt_strbuf_t *out)
{
    bt_json_t json;

    begin_data(out, "state", &json);
    bt_cluster_write_state(door, &json);
    end_data(out, &json);
}

static void put_events(bt_watcher_t *w, const bt_events_t *events,
                       bt_strbuf_t *out)
{
    const uint64_t oldest = bt_events_oldest(events);
    char id[BT_EVENT_ID_BYTES];
    bt_json_t json;

    w->next_event = (w->next_event > oldest) ? w->next_event : oldest;
    for (; w->next_event <= events->n_ever; w->next_event++) {
        bt_events_print_id(events, w->next_event, id);
        bt_strbuf_printf(out, "event: event\nid: %s\ndata: ", id);
        bt_json_init(&json, out);
        bt_events_write_one(events, bt_events_at(events, w->next_event), &json);
        bt_strbuf_puts(out, "\n\n");
    }
}

static void put_points(bt_watcher_t *w, const bt_history_t *history,
                       bt_strbuf_t *out)
{
    bt_json_t json;

    if (w->n_points < history->n_points) {
        begin_data(out, "point", &json);
        bt_history_write(history, history->n_points - w->n_points, &json);
        end_data(out, &json);
        w->n_points = history->n_points;
    }
}

static void put_handovers(const bt_kv_transfer_log_t *handovers,
                          uint64_t n_seen, bt_strbuf_t *out)
{
    bt_json_t json;

    if (n_seen < handovers->n_ever) {
        begin_data(out, "handover", &json);
        bt_kv_transfer_log_write(handovers, n_seen, &json);
        end_data(out, &json);
    }
}

/* Written once for all readers that are up to date: nearly all. */
static void add_handovers(bt_watcher_t *w,
                          const bt_kv_transfer_log_t *handovers,
                          bt_strbuf_t *out)
{
    const bt_watchers_t *watchers = w->watchers;

    if (w->n_handovers == watchers->n_handovers) {
        bt_strbuf_append(out, watchers->handovers.data,
                         watchers->handovers.len);
    } else {
        put_handovers(handovers, w->n_handovers, out);
    }
    w->n_handovers = handovers->n_ever;
}

/* ---- one of them ---- */

/* @return false: it is gone */
static bool send_out(bt_watcher_t *w, const bt_strbuf_t *out)
{
    if (bt_strbuf_status(out) != BT_OK) {
        BT_LOG_WARN("out of memory for a reader of cluster events");
        bt_exchange_cut_off(w->r->ex);
        return false;
    }
    return (out->len == 0) ||
           bt_exchange_stream_append(w->r->ex, out->data, out->len);
}

/* True when the reader has received everything sent. One that stalls is
 * disconnected. */
static bool is_up_to_date(bt_watcher_t *w, uint64_t now_us)
{
    const size_t unsent = bt_exchange_unsent(w->r->ex);
    const bool moved = (unsent == 0) || (unsent < w->unsent);

    w->unsent = unsent;
    w->moved_us = moved ? now_us : w->moved_us;
    if (now_us - w->moved_us >= STALL_US) {
        BT_LOG_INFO(
            "a reader of cluster events has read nothing for %u s: disconnected",
            STALL_US / 1000000u);
        bt_exchange_cut_off(w->r->ex);
        return false; /* and gone */
    }
    return unsent == 0;
}

static void send_due(bt_watcher_t *w, uint64_t now_us, bool with_handovers)
{
    bt_watchers_t *watchers = w->watchers;
    const bt_watch_t *watch = watchers->door->front->watch;
    bt_strbuf_t *out = &watchers->out;

    if (!is_up_to_date(w, now_us)) {
        return;
    }
    bt_strbuf_reset(out);
    put_events(w, &watch->events, out);
    put_points(w, watch->history, out);
    if (with_handovers) {
        add_handovers(w, &watch->handovers, out);
    }
    bt_strbuf_append(out, watchers->state.data, watchers->state.len);
    if (send_out(w, out)) {
        w->unsent = bt_exchange_unsent(w->r->ex);
    }
}

/* ---- all of them ---- */

static bool refuse(const bt_watchers_t *watchers, bt_http_request_t *r)
{
    const uint32_t most = watchers->door->front->config->max_event_streams;
    bt_api_error_t error = {0};

    if (watchers->door->front->draining) {
        bt_api_error_set(&error, 503, NULL, "the server is stopping");
    } else if (most == 0) {
        bt_api_error_set(
            &error, 403, NULL,
            "nobody may read these events (--max-event-streams 0)");
    } else if (watchers->n >= most) {
        bt_api_error_set(&error, 503, NULL,
                         "%u read these events already, which is the limit "
                         "(--max-event-streams): try again later",
                         watchers->n);
    } else {
        return false;
    }
    bt_http_request_fail(r, &error);
    return true;
}

void bt_watchers_add(bt_watchers_t *watchers, bt_http_request_t *r)
{
    const bt_watch_t *watch = watchers->door->front->watch;
    const char *last = bt_exchange_header(r->ex, "Last-Event-ID");
    bt_strbuf_t *out = &watchers->out;
    bt_watcher_t *w;

    if (refuse(watchers, r)) {
        return;
    }
    w = bt_calloc(1, sizeof(*w));
    if (w == NULL) {
        bt_http_request_fail_for_memory(r);
        return;
    }
    w->watchers = watchers;
    w->r = r;
    w->next_event = (last != NULL) ? bt_events_after(&watch->events, last)
                                   : watch->events.n_ever + 1;
    w->n_handovers = watch->handovers.n_ever;
    w->n_points = watch->history->n_points;
    w->moved_us = bt_now_us();
    bt_list_push_back(&watchers->all, &w->link);
    watchers->n++;
    r->watcher = w;
    bt_http_request_begin_stream(r);
    bt_strbuf_reset(out);
    bt_strbuf_puts(out, "retry: 2000\n\n");
    put_events(w, &watch->events, out);
    put_state(watchers->door, out);
    (void)send_out(w, out);
}

static void end_all(bt_watchers_t *watchers)
{
    while (!bt_list_empty(&watchers->all)) {
        bt_watcher_t *w =
            BT_CONTAINER_OF(watchers->all.next, bt_watcher_t, link);
        bt_http_request_t *r = w->r;
        bt_strbuf_t *out = &watchers->out;

        bt_strbuf_reset(out);
        put_events(w, &watchers->door->front->watch->events, out);
        r->watcher = NULL;
        bt_watcher_leave(w);
        bt_http_request_end_stream(r, out);
    }
}

void bt_watchers_tick(bt_watchers_t *watchers, uint64_t now_us)
{
    const bt_kv_transfer_log_t *handovers =
        &watchers->door->front->watch->handovers;
    const uint32_t n = watchers->n;
    bool with_handovers = false;

    if (n == 0) {
        return;
    }
    if (watchers->door->front->draining) {
        end_all(watchers);
        return;
    }
    bt_strbuf_reset(&watchers->state);
    if (now_us >= watchers->state_us) {
        watchers->state_us = now_us + STATE_US;
        put_state(watchers->door, &watchers->state);
        check_shared(&watchers->state);
    }
    if (now_us >= watchers->handovers_us) {
        watchers->handovers_us = now_us + HANDOVERS_US;
        with_handovers = true;
        bt_strbuf_reset(&watchers->handovers);
        put_handovers(handovers, watchers->n_handovers, &watchers->handovers);
        check_shared(&watchers->handovers);
    }
    /* Sending to one reader may remove others: begin at the front each time. */
    for (uint32_t i = 0; (i < n) && !bt_list_empty(&watchers->all); i++) {
        bt_watcher_t *w =
            BT_CONTAINER_OF(watchers->all.next, bt_watcher_t, link);

        bt_list_remove(&w->link);
        bt_list_push_back(&watchers->all, &w->link);
        send_due(w, now_us, with_handovers);
    }
    watchers->n_handovers =
        with_handovers ? handovers->n_ever : watchers->n_handovers;
}
