/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapter_loads.h
 *
 * Loading of LoRA adapters while their model is served:
 *
 *     READING ── the pool reads the files below --lora-dir, for the digest
 *        │
 *     LOADING ── each worker loads them, too ──▶ a model name for clients
 *        └── one cannot: dropped everywhere, nothing has changed
 *
 * Threads: everything on the event loop's thread, but for reading.
 * Source:  vLLM, POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
 */
#ifndef BT_ROUTER_FRONTEND_ADAPTER_LOADS_H
#define BT_ROUTER_FRONTEND_ADAPTER_LOADS_H

#include "router/frontend/served_adapters.h"

#define BT_ADAPTER_LOAD_US 120000000u /**< most time for all workers */

/** Receives the outcome; @a error has http_status 0 where it is loaded. */
typedef void bt_adapter_load_done_t(void *ctx, const bt_api_error_t *error);

/** An adapter to load. Borrowed for the call. */
typedef struct bt_adapter_load_spec {
    const char *name;   /**< new model name */
    const char *path;   /**< below --lora-dir, absolute or relative to it */
    const char *tenant; /**< tenant that alone sees it; NULL: all do */
    bool in_place;      /**< may replace one of this name */
} bt_adapter_load_spec_t;

/**
 * Begins to load an adapter; the outcome comes later.
 *
 * @param [out] error_p  filled on failure
 * @retval BT_ERR_EXISTS         the name is taken
 * @retval BT_ERR_INVALID_PARAM  it is no name, the path is not below the
 *         folder, or no request can be of the tenant
 * @retval BT_ERR_BUSY           another one is being loaded
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_adapter_load_begin(
    bt_served_t *served, const bt_adapter_load_spec_t *spec,
    bt_adapter_load_done_t *done, void *ctx, bt_api_error_t *error_p);
/** Does what is due. */
void bt_adapter_load_tick(bt_served_t *served, uint64_t now_us);
/** Calls done() with this ctx no more; the loading goes on. */
void bt_adapter_load_leave(bt_served_t *served, const void *ctx);
/** Forgets a loading; the pool is stopped, the process ends. */
void bt_adapter_load_drop(bt_served_t *served);

/** Takes an adapter that was loaded from clients. Requests that have it go on.
 *  @retval BT_ERR_NOT_FOUND  there is none of this name */
BT_MUST_CHECK bt_status_t bt_adapter_unload(bt_served_t *served,
                                            const char *name);

/** Has the workers drop content that nobody offers or loads. Of content that
 *  another name has the workers that come later read the path of that one. */
void bt_adapter_drop_unused(bt_served_t *served, bt_hash128_t digest);

#endif
