/* SPDX-License-Identifier: Apache-2.0 */
/** @file waterfall.h
 *
 * A timing record as consecutive phases that add up to its total time. The
 * record's own parts already do; the part between the first two tokens is
 * split further by the durations that workers report:
 *
 *     ledger   parse tokenize queue prefill_queue prefill first_token
 *     phases   parse tokenize queue prefill_queue prefill first_token
 *
 *     ledger   handover                                     decode
 *     phases   grant_wait kv_transfer join_wait second_token decode
 *
 * Reported durations are capped at the time that there was. Without a first or
 * second token, its phase is called "rest".
 *
 * Pure.
 */
#ifndef BT_ROUTER_WATCH_WATERFALL_H
#define BT_ROUTER_WATCH_WATERFALL_H

#include <stdint.h>

#include "router/observe/ledger.h"

#define BT_WATERFALL_PHASES 11u

typedef enum bt_place {
    BT_AT_ROUTER,
    BT_AT_PREFILL, /**< where the prefill runs */
    BT_AT_DECODE,  /**< where the decode runs */
} bt_place_t;

/** Returns the name of a place: "router", "prefill" or "decode". */
const char *bt_place_name(bt_place_t at);

typedef struct bt_phase {
    const char *name; /**< static */
    bt_place_t at;
    uint64_t start_us; /**< since the beginning */
    uint64_t length_us;
    uint32_t n_chunks; /**< chunks of the prefill; else 0 */
} bt_phase_t;

typedef struct bt_waterfall {
    uint32_t n; /**< phases that took any time */
    bt_phase_t phases[BT_WATERFALL_PHASES];
} bt_waterfall_t;

/** Splits the timing record of a finished generation into phases. */
void bt_waterfall_of(const bt_ledger_t *ledger, bt_waterfall_t *waterfall_p);

#endif
