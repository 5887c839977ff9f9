/* SPDX-License-Identifier: Apache-2.0 */
/** @file rivals.h
 *
 * Workers that were refused because they differ from those that are here: in
 * numeric profile, KV type, block size or layout. Whoever came first is the
 * measure, and may be the wrong one. So: where those that are here cannot serve
 * as well as one kind of those that were refused could together, for a while,
 * and have nothing to do, the refused ones are right.
 *
 *     kind          nothing < serves alone (a decode worker that prefills)
 *                           < has both roles
 *     refused ─▶ noted ─▶ better for BT_RIVALS_WAIT_US ─▶ win
 *                  └──▶ not heard again for BT_RIVALS_KEEP_US ─▶ forgotten
 *
 * Refused workers come again every two seconds or so. Pure.
 * Threads: the core's.
 */
#ifndef BT_ROUTER_CORE_RIVALS_H
#define BT_ROUTER_CORE_RIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "router/core/table.h"

#define BT_RIVALS_MAX     16
#define BT_RIVALS_WAIT_US 10000000u /**< longer than a worker's restart */
#define BT_RIVALS_KEEP_US 10000000u

typedef struct bt_rival {
    bt_msg_hello_t hello; /**< without ranks */
    uint64_t seen_us;
} bt_rival_t;

/** All zero: none. */
typedef struct bt_rivals {
    bt_rival_t list[BT_RIVALS_MAX];
    uint32_t n;
    uint64_t better_since_us; /**< 0: they are not */
} bt_rivals_t;

/** A worker was refused by @a table, which has others.
 *  @return whether it and those of its kind are right: the others should go */
bool bt_rivals_come(bt_rivals_t *rivals, const bt_table_t *table,
                    const bt_msg_hello_t *hello, uint64_t now_us);

#endif
