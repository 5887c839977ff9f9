/* SPDX-License-Identifier: Apache-2.0 */
/** @file waterfall.h
 *
 * A ledger as stations, one behind another: they add up to its whole time. The
 * ledger's own parts do, and the one between the first two tokens is cut
 * further by what workers say of it:
 *
 *     ledger     parse tokenize wait P queue P compute rest │ handover │ decode
 *     stations   parse tokenize queue prefill_queue context  │    │     │
 * generation first_token       │    │ grant_wait transfer join_wait
 * second_token
 *
 * What they say is cut where it is more than there was. Where no second token
 * came the last one is called "rest".
 *
 * Pure.
 */
#ifndef BT_ROUTER_WATCH_WATERFALL_H
#define BT_ROUTER_WATCH_WATERFALL_H

#include <stdint.h>

#include "router/observe/ledger.h"

#define BT_WATERFALL_STATIONS 11u

typedef enum bt_place {
    BT_AT_ROUTER,
    BT_AT_PREFILL, /**< where its context phase runs */
    BT_AT_DECODE,  /**< where it generates */
} bt_place_t;

/** "router", "prefill", "decode" */
const char *bt_place_name(bt_place_t at);

typedef struct bt_station {
    const char *name; /**< static */
    bt_place_t at;
    uint64_t start_us; /**< since the beginning */
    uint64_t length_us;
    uint32_t n_chunks; /**< of the context phase; else 0 */
} bt_station_t;

typedef struct bt_waterfall {
    uint32_t n; /**< those that took any time */
    bt_station_t stations[BT_WATERFALL_STATIONS];
} bt_waterfall_t;

/** Of one that is over. */
void bt_waterfall_of(const bt_ledger_t *ledger, bt_waterfall_t *waterfall_p);

#endif
