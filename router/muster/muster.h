/* SPDX-License-Identifier: Apache-2.0 */
/** @file muster.h
 *
 * The workers that are not here, and why: whom the launcher means to run, and
 * who came and was refused. What GET /cluster, and so ./baton status, says of
 * them.
 *
 *     refused ─▶ noted by its name ─▶ it joins, or is not heard for
 *                                     BT_MUSTER_KEEP_MS ─▶ forgotten
 *
 * Whoever reaches the control port can be refused under any names. So those
 * that do not know the cluster key have half of the places and no more: they
 * take none from workers that do.
 *
 * Pure: the time comes in. Threads: the event loop's.
 */
#ifndef BT_ROUTER_MUSTER_MUSTER_H
#define BT_ROUTER_MUSTER_MUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/orders/orders.h"
#include "common/wire/wire.h"

#define BT_MUSTER_PLACES        32
#define BT_MUSTER_STRANGERS     16 /**< of them */
#define BT_MUSTER_KEEP_MS       600000u
#define BT_MUSTER_ADDRESS_BYTES 256
#define BT_MUSTER_WHY_BYTES     512

/** One refusal, as it is noted. What is longer than its place is cut. */
typedef struct bt_refused {
    const char *name;    /**< as it calls itself; "": unknown */
    const char *address; /**< of its control link; "": as it was, or unknown */
    const char *why;
    bool proven; /**< it knows the cluster key, so its name is its own */
} bt_refused_t;

typedef struct bt_muster_place {
    char name[BT_WIRE_MAX_NAME];
    char address[BT_MUSTER_ADDRESS_BYTES];
    char why[BT_MUSTER_WHY_BYTES]; /**< the last time */
    bool proven;
    uint64_t first_ms, last_ms; /**< Unix time */
    uint64_t n;                 /**< times */
} bt_muster_place_t;

/** All zero: nobody is missed. */
typedef struct bt_muster {
    bt_muster_place_t places[BT_MUSTER_PLACES];
    uint32_t n;
    const bt_orders_process_t *expected; /**< borrowed */
    uint32_t n_expected;
} bt_muster_t;

/** A worker was refused. O(BT_MUSTER_PLACES). @param [in] now_ms  Unix time */
void bt_muster_refuse(bt_muster_t *muster, const bt_refused_t *who,
                      uint64_t now_ms);

/** A worker of that name has joined: what kept it is over. */
void bt_muster_join(bt_muster_t *muster, const char *name);

/** What the launcher runs. @param [in] processes  Borrowed until the next
 *  call. */
void bt_muster_expect(bt_muster_t *muster, const bt_orders_process_t *processes,
                      uint32_t n);

/** What the launcher says of the one of this name; NULL: nothing. */
const bt_orders_process_t *bt_muster_process(const bt_muster_t *muster,
                                             const char *name);
/** Is it a worker that is meant to be here? */
bool bt_muster_expects(const bt_orders_process_t *process);
/** What it is meant to be: bt_orders_role_t. */
uint32_t bt_muster_role(const bt_orders_process_t *process);

/**
 * Two fields of an object: "missing", workers that a launcher means to run and
 * that are not here, and "refused", the last one first.
 *
 * @param [in] now_ms   Unix time.
 * @param [in] is_here  Has a worker of that name joined?
 */
void bt_muster_write(const bt_muster_t *muster, uint64_t now_ms,
                     bool (*is_here)(void *ctx, const char *name), void *ctx,
                     bt_json_t *json);

#endif
