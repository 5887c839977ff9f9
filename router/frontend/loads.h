/* SPDX-License-Identifier: Apache-2.0 */
/** @file loads.h
 *
 * Models that are loaded and unloaded while others are served. Reading a file
 * and its tokenizer takes long, so the frontend's pool does it; what was wanted
 * last counts when it is done:
 *
 *     want(loaded) ─▶ read ─▶ in the registry ◀─▶ unloaded
 *                    (pool)
 *
 * Threads: everything on the event loop's thread, but for what the pool runs.
 */
#ifndef BT_ROUTER_FRONTEND_LOADS_H
#define BT_ROUTER_FRONTEND_LOADS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

typedef struct bt_frontend bt_frontend_t;

typedef struct bt_loads {
    bt_frontend_t *front;
    bt_list_t under_way;
    uint32_t n_ended; /**< read, or not to be read */
} bt_loads_t;

void bt_loads_init(bt_loads_t *loads, bt_frontend_t *front);
/** A model of this name is to be served, or not any more. One that is new is
 *  read; that it cannot be read is logged, and calls for it find no such model.
 *  @param [in] path  used for a new one alone */
void bt_loads_want(bt_loads_t *loads, const char *name, const char *path,
                   bool unloaded);
/** Is one being read? Whose workers are known when it is done. */
bool bt_loads_any(const bt_loads_t *loads);

#endif
