/* SPDX-License-Identifier: Apache-2.0 */
/** @file served_adapters.h
 *
 * LoRA adapters that this router offers (--lora), each a model name of its own
 * for clients:
 *
 *     model: NAME ──▶ base model, digest of the adapter ──▶ REQUEST to workers
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_SERVED_ADAPTERS_H
#define BT_ROUTER_FRONTEND_SERVED_ADAPTERS_H

#include "router/frontend/registry.h"
#include "router/tenants/tenants.h"

/** Adapter of a model. */
typedef struct bt_served_adapter {
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    char *path; /**< owned */
    bt_hash128_t digest;
    int64_t created; /**< file time, seconds since 1970 */
    /** Tenant that alone sees it; "": all do. */
    char tenant[BT_TENANT_NAME_BYTES];
    bool is_loaded;                /**< at run time, not by --lora */
    bt_adapter_metrics_t *metrics; /**< by bt_served_adapter_add(); or NULL */
} bt_served_adapter_t;

/** Reads the adapters of --lora for the default model. A failure is logged.
 *  @retval BT_ERR_EXISTS  a model has an adapter's name
 *  @retval any of bt_adapter_open() */
BT_MUST_CHECK bt_status_t bt_served_adapters_open(bt_registry_t *registry,
                                                  const bt_config_t *config);
/** Frees a model's adapters. */
void bt_served_adapters_free(bt_served_t *served);

/** Adds an adapter that the workers have loaded.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_served_adapter_add(
    bt_served_t *served, const bt_served_adapter_t *adapter, const char *path);
/** Removes an adapter of this name. @return its digest, if no other name has
 *  it; else {0, 0} */
bt_hash128_t bt_served_adapter_remove(bt_served_t *served, const char *name);

/** True when a tenant may see and use the adapter.
 *  @param [in] tenant  NULL: an operator */
bool bt_served_adapter_is_for(const bt_served_adapter_t *adapter,
                              const bt_tenant_t *tenant);
/** Model for clients: one that is served, or an adapter of it. */
typedef struct bt_served_entry {
    bt_served_t *served;
    const bt_served_adapter_t *adapter; /**< NULL: the model itself */
} bt_served_entry_t;

/** Finds what a client's model name stands for: a model, also by one of
 *  Triton's names, or an adapter.
 *  @param [in]  name       NULL: the default model
 *  @param [in]  tenant     as for bt_served_adapter_is_for()
 *  @param [in]  is_tagged  a name of Ollama's: NAME:latest is NAME, too, if
 *                          nothing has the whole name
 *  @param [out] entry_p    set if there is one; borrowed, to the next turn
 *  @return false: there is none */
bool bt_served_find(const bt_registry_t *registry, const char *name,
                    const bt_tenant_t *tenant, bool is_tagged,
                    bt_served_entry_t *entry_p);
/** Lists the models, those that are unloaded too, each with the adapters that
 *  a tenant sees behind it.
 *  @param [out] list_p  owned: bt_free(); borrows, to the next turn
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_served_list(const bt_registry_t *registry,
                                         const bt_tenant_t *tenant,
                                         bt_served_entry_t **list_p,
                                         size_t *n_p);
/** Returns the name by which clients know it. */
const char *bt_served_entry_name(const bt_served_entry_t *entry);

#endif
