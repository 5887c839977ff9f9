/* SPDX-License-Identifier: Apache-2.0 */
/** @file lora_tasks.h
 *
 * Cache of the LoRA adapters that clients send as tensors (Triton's
 * lora_task_id, lora_weights and lora_config), by tenant and task id:
 *
 *     READING ── the pool makes an adapter of the tensors
 *        │
 *     LOADING ── each worker gets it from here ──▶ READY, for the id alone
 *        └── one cannot: the id is unknown again
 *
 * An adapter belongs to the tenant that sent it: an id of another tenant is
 * another task. --lora-cache-host-memory bounds their bytes; the one that was
 * used longest ago, and is not in use, makes room.
 *
 * Threads: everything on the event loop's thread, but for reading.
 * Source:  TensorRT-LLM, PeftCacheManager::addRequestPeft, LoraCache::put, for
 *          the protocol and error texts.
 */
#ifndef BT_ROUTER_FRONTEND_LORA_TASKS_H
#define BT_ROUTER_FRONTEND_LORA_TASKS_H

#include "router/api/api.h"
#include "router/frontend/registry.h"
#include "router/tenants/tenants.h"

typedef struct bt_lora_waiter bt_lora_waiter_t;

/** One who waits for an adapter; embedded in what waits. */
struct bt_lora_waiter {
    bt_list_t link;
    /** Series of the adapter, once it is there; NULL: not counted. */
    bt_adapter_metrics_t *metrics;
    /** Called once; the waiter is in no list then.
     *  @param digest  of the adapter, which is there during the call
     *  @param error   NULL: it is there */
    void (*done)(bt_lora_waiter_t *waiter, bt_hash128_t digest,
                 const bt_api_error_t *error);
};

/**
 * Finds the adapter of a task, or begins to load it.
 *
 * @param [in,out] lora  its tensors may be taken
 * @param [in,out] waiter  lives until done() was called, with BT_ERR_BUSY
 * @param [out] digest_p with BT_OK: of the adapter, which is there until the
 *                       event loop's next turn, unless a request keeps it
 * @param [out] error_p  filled on failure
 * @retval BT_ERR_BUSY       it is being loaded: done() is called later
 * @retval BT_ERR_NOT_FOUND  the id is unknown, and there are no tensors
 * @retval BT_ERR_EXISTS     it is that of other tensors, which are in use
 * @retval BT_ERR_UNSUPPORTED, BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_lora_task_find(
    bt_served_t *served, const bt_tenant_t *tenant, bt_api_lora_t *lora,
    bt_lora_waiter_t *waiter, bt_hash128_t *digest_p, bt_api_error_t *error_p);
/** Opens the folder of --lora-task-dir, by which routers know the same tasks
 *  (lora_task_files.h), and reads the adapters of --lora-prefetch-dir, which
 * all tenants may use and nothing evicts; workers get them when they come. A
 * failure is logged.
 *  @retval any of bt_adapter_tensors_read(), bt_adapter_open_tensors() */
BT_MUST_CHECK bt_status_t bt_lora_tasks_open(bt_served_t *served);
/** Returns the number of adapters that requests find by an id. */
uint32_t bt_lora_tasks_count(const bt_served_t *served);
/** True when the adapter of a task has this content. */
bool bt_lora_tasks_have(const bt_served_t *served, bt_hash128_t digest);
/** Does what is due. */
void bt_lora_tasks_tick(bt_served_t *served, uint64_t now_us);
/** Forgets all tasks; those who wait are told that the server stops. The pool
 *  is stopped. */
void bt_lora_tasks_drop(bt_served_t *served);

#endif
