/* SPDX-License-Identifier: Apache-2.0 */
/** @file muster.h
 *
 * Missing workers, and the reasons: workers that the launcher runs and that
 * have not joined, and workers that were rejected. Source of this part of GET
 * /cluster, and so of ./baton status.
 *
 *     rejected ─▶ recorded by name ─▶ it joins, or does not try again for
 *                                     BT_MUSTER_KEEP_MS ─▶ removed
 *
 * Anyone who can reach the control port can be rejected under any name. So
 * peers that do not know the cluster key get at most half of the slots, and
 * cannot take slots from workers that know it.
 *
 * Pure: the caller passes the time. Threads: the event loop's.
 */
#ifndef BT_ROUTER_MUSTER_MUSTER_H
#define BT_ROUTER_MUSTER_MUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/orders/orders.h"
#include "common/wire/wire.h"

#define BT_MUSTER_PLACES        32
#define BT_MUSTER_STRANGERS     16 /**< slots of peers without the key */
#define BT_MUSTER_KEEP_MS       600000u
#define BT_MUSTER_ADDRESS_BYTES 256
#define BT_MUSTER_WHY_BYTES     512

/** One rejection to record. Text that is too long is truncated. */
typedef struct bt_refused {
    const char *name;    /**< name that the peer reported; "": unknown */
    const char *address; /**< control link's; "": unchanged, or unknown */
    const char *why;
    bool proven; /**< peer has the cluster key: its name is authentic */
} bt_refused_t;

typedef struct bt_muster_place {
    char name[BT_WIRE_MAX_NAME];
    char address[BT_MUSTER_ADDRESS_BYTES];
    char why[BT_MUSTER_WHY_BYTES]; /**< reason of the latest rejection */
    bool proven;
    uint64_t first_ms, last_ms; /**< Unix time */
    uint64_t n;                 /**< number of rejections */
} bt_muster_place_t;

/** Missing and rejected workers. All zero: none. */
typedef struct bt_muster {
    bt_muster_place_t places[BT_MUSTER_PLACES];
    uint32_t n;
    const bt_orders_process_t *expected; /**< borrowed */
    uint32_t n_expected;
} bt_muster_t;

/** Records a rejected worker. O(BT_MUSTER_PLACES).
 *  @param [in] now_ms  Unix time */
void bt_muster_refuse(bt_muster_t *muster, const bt_refused_t *who,
                      uint64_t now_ms);

/** Removes a worker's rejections because it has joined. */
void bt_muster_join(bt_muster_t *muster, const char *name);

/** Sets the processes that the launcher runs.
 *  @param [in] processes  Borrowed until the next call. */
void bt_muster_expect(bt_muster_t *muster, const bt_orders_process_t *processes,
                      uint32_t n);

/** Returns the launcher's entry of this name; NULL: none. */
const bt_orders_process_t *bt_muster_process(const bt_muster_t *muster,
                                             const char *name);
/** True for the entry of a worker that should be present. */
bool bt_muster_expects(const bt_orders_process_t *process);
/** Returns the intended role of a process: bt_orders_role_t. */
uint32_t bt_muster_role(const bt_orders_process_t *process);

/**
 * Writes two fields of an object: "missing", workers that a launcher runs and
 * that have not joined, and "refused", the latest rejection first.
 *
 * @param [in] now_ms   Unix time.
 * @param [in] is_here  True when a worker of that name has joined.
 */
void bt_muster_write(const bt_muster_t *muster, uint64_t now_ms,
                     bool (*is_here)(void *ctx, const char *name), void *ctx,
                     bt_json_t *json);

#endif
