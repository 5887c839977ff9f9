/* SPDX-License-Identifier: Apache-2.0 */
/** @file loads.h
 *
 * Loads and unloads models while others are served. Reading a file and its
 * tokenizer takes long, so the frontend's pool does it; the last command
 * received in the meantime takes effect when reading is done:
 *
 *     want(loaded) ─▶ read ─▶ in the registry ◀─▶ unloaded
 *                    (pool)
 *
 * Threads: everything on the event loop's thread, except the pool's jobs.
 */
#ifndef BT_ROUTER_FRONTEND_LOADS_H
#define BT_ROUTER_FRONTEND_LOADS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"

typedef struct bt_frontend bt_frontend_t;

typedef struct bt_loads {
    bt_frontend_t *front;
    bt_list_t under_way;
    uint32_t n_ended; /**< loads that ended or were abandoned */
} bt_loads_t;

void bt_loads_init(bt_loads_t *loads, bt_frontend_t *front);
/** Starts or stops serving a model of this name. A new model is read; a failure
 *  is logged, and calls for that name find no model.
 *  @param [in] path  used for a new model only */
void bt_loads_want(bt_loads_t *loads, const char *name, const char *path,
                   bool unloaded);
/** True while a model is being read; its workers are known when reading is
 *  done. */
bool bt_loads_any(const bt_loads_t *loads);

#endif
