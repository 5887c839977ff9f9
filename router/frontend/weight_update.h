/* SPDX-License-Identifier: Apache-2.0 */
/** @file weight_update.h
 *
 * Replacement of a model's weights while it is served:
 *
 *     CHECKING ── each worker can load them ──▶ ENDING ── no request of before
 *        │                                        │        is left ──▶ LOADING
 *        └── one cannot: nothing has changed      └── requests that come wait
 *
 *     LOADING ── as many workers are back as were there ──▶ done
 *
 * From LOADING on they are in force (bt_core_set_weights()): workers that die
 * meanwhile and come back load them, too.
 *
 * Threads: everything on the event loop's thread.
 * Source:  SGLang, POST /update_weights_from_disk.
 */
#ifndef BT_ROUTER_FRONTEND_WEIGHT_UPDATE_H
#define BT_ROUTER_FRONTEND_WEIGHT_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "router/frontend/registry.h"

#define BT_WEIGHT_CHECK_US 60000000u /**< most time for all checks */
#define BT_WEIGHT_MISSING_US                                                   \
    60000000u                         /**< most time to wait for workers while \
                                           others serve */
#define BT_WEIGHT_LOAD_US 1800000000u /**< most time without any worker */

/** Outcome of a replacement. */
typedef struct bt_weight_result {
    bt_api_error_t error; /**< http_status 0: it is done */
    const char *version;
    uint32_t n_workers; /**< workers that have the weights */
    uint32_t n_missing; /**< workers that were there and are not back */
} bt_weight_result_t;

typedef void bt_weight_done_t(void *ctx, const bt_weight_result_t *result);

/**
 * Begins a replacement; the result comes from bt_weight_update_tick().
 *
 * @param [in]  path     below --allow-weight-updates; the workers check it
 * @param [in]  version  its name; 1 to BT_WIRE_MAX_NAME - 1 bytes, without
 *   control characters
 * @param [in]  aborts   end the requests that are here
 * @param [out] error_p  filled on failure
 * @retval BT_ERR_BUSY       another one is being carried out, or the workers
 * sleep
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_weight_update_begin(bt_served_t *served, const char *path,
                       const char *version, bool aborts, bt_weight_done_t *done,
                       void *ctx, uint64_t now_us, bt_api_error_t *error_p);
/** Does what is due. */
void bt_weight_update_tick(bt_served_t *served, uint64_t now_us);
/** Calls done() with this ctx no more; the replacement goes on. */
void bt_weight_update_leave(bt_served_t *served, const void *ctx);
/** Forgets a replacement; the process ends. */
void bt_weight_update_drop(bt_served_t *served);

#endif
