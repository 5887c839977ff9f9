/* SPDX-License-Identifier: Apache-2.0 */
/** @file events.h
 *
 * Log of cluster events: the latest 256, numbered in ascending order. An id
 * also names the router's run, so that a reader who reconnects to a restarted
 * router gets all of its events.
 *
 *     id  5f0c6d0b-17      life 5f0c6d0b, number 17
 *
 * And a log of KV hand-overs between workers: the latest 64 begins and ends,
 * for live views. Entries overwritten before a reader's next visit are counted.
 *
 * Pure. Threads: one owns them.
 */
#ifndef BT_ROUTER_WATCH_EVENTS_H
#define BT_ROUTER_WATCH_EVENTS_H

#include <stdint.h>

#include "common/base/json.h"
#include "common/config/config.h"
#include "common/wire/wire.h"
#include "router/observe/record.h"

#define BT_EVENTS_KEPT    256u
#define BT_EVENT_TEXT     256u
#define BT_EVENT_ID_BYTES 32u

typedef enum bt_event_kind {
    BT_EVENT_WORKER_JOINED,
    BT_EVENT_WORKER_LOST,
    BT_EVENT_WORKER_SILENT,
    BT_EVENT_WORKER_STARVED,
    BT_EVENT_WORKER_BACK,
    BT_EVENT_WORKER_DRAINING,
    BT_EVENT_WORKER_DRAINED,
    BT_EVENT_WORKER_ON,
    BT_EVENT_WORKER_ROLE,
    BT_EVENT_REQUEST_RERUN,
    BT_EVENT_MODEL_LOADED,
    BT_EVENT_MODEL_UNLOADED,
    BT_EVENT_MODEL_READY,
    BT_EVENT_MODEL_NOT_READY,
    BT_EVENT_ROUTER_READY,
    BT_EVENT_ROUTER_NOT_READY,
    BT_EVENT_ROUTER_LEAVING,
    BT_EVENT_N_KINDS,
} bt_event_kind_t;

/** Returns the name of an event kind: "worker_joined" … */
const char *bt_event_kind_name(bt_event_kind_t kind);

typedef struct bt_event {
    uint64_t n; /**< number, from 1 on */
    uint64_t unix_ms;
    bt_event_kind_t kind;
    char model[BT_CONFIG_MODEL_NAME_BYTES]; /**< "": none */
    char worker[BT_WIRE_MAX_NAME];          /**< "": none */
    uint64_t request;                       /**< 0: none */
    char text[BT_EVENT_TEXT];
} bt_event_t;

typedef struct bt_events {
    uint32_t life;
    uint64_t n_ever;
    bt_event_t ring[BT_EVENTS_KEPT];
} bt_events_t;

/** Appends a copy of an event; the event's number is assigned. */
void bt_events_add(bt_events_t *events, const bt_event_t *event);
/** Returns the number of the oldest event kept; n_ever + 1 when there is
 *  none. */
uint64_t bt_events_oldest(const bt_events_t *events);
/** Returns the event of a number.
 *  @param n  from bt_events_oldest() to n_ever */
const bt_event_t *bt_events_at(const bt_events_t *events, uint64_t n);
/** Returns the number of the next event for a reader that has seen this id. An
 *  id of another run counts as no event seen. */
uint64_t bt_events_after(const bt_events_t *events, const char *id);
void bt_events_print_id(const bt_events_t *events, uint64_t n,
                        char id[BT_EVENT_ID_BYTES]);
/** Writes one event as an object. */
void bt_events_write_one(const bt_events_t *events, const bt_event_t *event,
                         bt_json_t *json);
/** Writes all events kept, as an array. */
void bt_events_write(const bt_events_t *events, bt_json_t *json);

/* ---- KV hand-overs ---- */

#define BT_HANDOVERS_KEPT 64u

typedef struct bt_handover {
    bt_handover_phase_t phase;
    uint64_t unix_ms;
    uint64_t request;
    char model[BT_CONFIG_MODEL_NAME_BYTES];
    char from[BT_WIRE_MAX_NAME], to[BT_WIRE_MAX_NAME];
    uint64_t bytes, length_us; /**< set for an ENDED one */
} bt_handover_t;

typedef struct bt_kv_transfer_log {
    uint64_t n_ever;
    bt_handover_t ring[BT_HANDOVERS_KEPT];
} bt_kv_transfer_log_t;

/** Appends a copy of an entry. */
void bt_kv_transfer_log_add(bt_kv_transfer_log_t *handovers,
                            const bt_handover_t *one);
/** Writes the entries after the first n_seen, as the fields left_out and
 *  list. */
void bt_kv_transfer_log_write(const bt_kv_transfer_log_t *handovers,
                              uint64_t n_seen, bt_json_t *json);

#endif
