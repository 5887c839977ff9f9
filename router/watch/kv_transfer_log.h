/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_transfer_log.h
 *
 * Log of KV hand-overs between workers: the latest 64 begins and ends, for
 * live views. Entries overwritten before a reader's next visit are counted.
 *
 * Pure. Threads: one owns it.
 */
#ifndef BT_ROUTER_WATCH_KV_TRANSFER_LOG_H
#define BT_ROUTER_WATCH_KV_TRANSFER_LOG_H

#include <stdint.h>

#include "common/base/json.h"
#include "common/config/config.h"
#include "common/wire/wire.h"
#include "router/observe/record.h"

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
