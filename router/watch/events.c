/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "router/watch/watch.h"

const char *bt_event_kind_name(bt_event_kind_t kind)
{
    static const char *const names[BT_EVENT_N_KINDS] = {
        [BT_EVENT_WORKER_JOINED] = "worker_joined",
        [BT_EVENT_WORKER_LOST] = "worker_lost",
        [BT_EVENT_WORKER_SILENT] = "worker_silent",
        [BT_EVENT_WORKER_STARVED] = "worker_starved",
        [BT_EVENT_WORKER_BACK] = "worker_back",
        [BT_EVENT_WORKER_DRAINING] = "worker_draining",
        [BT_EVENT_WORKER_DRAINED] = "worker_drained",
        [BT_EVENT_WORKER_ON] = "worker_on",
        [BT_EVENT_WORKER_ROLE] = "worker_role",
        [BT_EVENT_REQUEST_RERUN] = "request_rerun",
        [BT_EVENT_MODEL_LOADED] = "model_loaded",
        [BT_EVENT_MODEL_UNLOADED] = "model_unloaded",
        [BT_EVENT_MODEL_READY] = "model_ready",
        [BT_EVENT_MODEL_NOT_READY] = "model_not_ready",
        [BT_EVENT_ROUTER_READY] = "router_ready",
        [BT_EVENT_ROUTER_NOT_READY] = "router_not_ready",
        [BT_EVENT_ROUTER_LEAVING] = "router_leaving",
    };

    return names[kind];
}

void bt_events_add(bt_events_t *events, const bt_event_t *event)
{
    bt_event_t *entry = &events->ring[events->n_ever % BT_EVENTS_KEPT];

    *entry = *event;
    entry->n = ++events->n_ever;
}

uint64_t bt_events_oldest(const bt_events_t *events)
{
    return (events->n_ever > BT_EVENTS_KEPT)
               ? events->n_ever - BT_EVENTS_KEPT + 1
               : 1;
}

const bt_event_t *bt_events_at(const bt_events_t *events, uint64_t n)
{
    return &events->ring[(n - 1) % BT_EVENTS_KEPT];
}

/* @return false: not an id of this run */
static bool read_id(const bt_events_t *events, const char *id, uint64_t *n_p)
{
    char life[16];
    const size_t n_life =
        (size_t)snprintf(life, sizeof(life), "%08" PRIx32 "-", events->life);

    return (strncmp(id, life, n_life) == 0) && bt_parse_u64(id + n_life, n_p) &&
           (*n_p <= events->n_ever);
}

uint64_t bt_events_after(const bt_events_t *events, const char *id)
{
    const uint64_t oldest = bt_events_oldest(events);
    uint64_t seen = 0;

    if (!read_id(events, id, &seen)) {
        return oldest;
    }
    return (seen + 1 > oldest) ? seen + 1 : oldest;
}

void bt_events_print_id(const bt_events_t *events, uint64_t n,
                        char id[BT_EVENT_ID_BYTES])
{
    snprintf(id, BT_EVENT_ID_BYTES, "%08" PRIx32 "-%" PRIu64, events->life, n);
}

void bt_events_write_one(const bt_events_t *events, const bt_event_t *event,
                         bt_json_t *json)
{
    char id[BT_EVENT_ID_BYTES];

    bt_events_print_id(events, event->n, id);
    bt_json_object(json, NULL);
    bt_json_str(json, "id", id);
    bt_json_u64(json, "unix_ms", event->unix_ms);
    bt_json_str(json, "kind", bt_event_kind_name(event->kind));
    bt_write_some_text(json, "model", event->model);
    bt_write_some_text(json, "worker", event->worker);
    bt_write_id(json, "request", event->request);
    bt_json_str(json, "text", event->text);
    bt_json_end_object(json);
}

void bt_events_write(const bt_events_t *events, bt_json_t *json)
{
    bt_json_array(json, "events");
    for (uint64_t n = bt_events_oldest(events); n <= events->n_ever; n++) {
        bt_events_write_one(events, bt_events_at(events, n), json);
    }
    bt_json_end_array(json);
}

/* ---- KV hand-overs ---- */

void bt_kv_transfer_log_add(bt_kv_transfer_log_t *handovers,
                            const bt_handover_t *one)
{
    handovers->ring[handovers->n_ever++ % BT_HANDOVERS_KEPT] = *one;
}

static void write_handover(const bt_handover_t *one, bt_json_t *json)
{
    static const char *const phases[] = {
        [BT_HANDOVER_BEGUN] = "begun",
        [BT_HANDOVER_ENDED] = "ended",
        [BT_HANDOVER_GIVEN_UP] = "failed",
    };

    bt_json_object(json, NULL);
    bt_json_u64(json, "unix_ms", one->unix_ms);
    bt_json_str(json, "phase", phases[one->phase]);
    bt_write_id(json, "request", one->request);
    bt_json_str(json, "model", one->model);
    bt_json_str(json, "from", one->from);
    bt_json_str(json, "to", one->to);
    if (one->phase == BT_HANDOVER_ENDED) {
        bt_json_u64(json, "bytes", one->bytes);
        bt_write_ms(json, "length_ms", one->length_us);
    } else {
        bt_json_null(json, "bytes");
        bt_json_null(json, "length_ms");
    }
    bt_json_end_object(json);
}

void bt_kv_transfer_log_write(const bt_kv_transfer_log_t *handovers,
                              uint64_t n_seen, bt_json_t *json)
{
    uint64_t first = (handovers->n_ever > BT_HANDOVERS_KEPT)
                         ? handovers->n_ever - BT_HANDOVERS_KEPT
                         : 0;

    first = (n_seen > first) ? n_seen : first;
    bt_json_u64(json, "left_out", first - n_seen);
    bt_json_array(json, "list");
    for (uint64_t i = first; i < handovers->n_ever; i++) {
        write_handover(&handovers->ring[i % BT_HANDOVERS_KEPT], json);
    }
    bt_json_end_array(json);
}
