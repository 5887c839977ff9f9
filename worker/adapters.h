/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapters.h
 *
 * LoRA adapters of a worker (--lora). A request names one by the digest of its
 * content, so that it gets what its router read, whatever the names and files
 * here are.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_ADAPTERS_H
#define BT_WORKER_ADAPTERS_H

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "inference/model/lora.h"

typedef struct bt_start bt_start_t;
typedef struct bt_worker bt_worker_t;

typedef struct bt_worker_adapter {
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    bt_hash128_t digest;
    bt_lora_t *lora; /**< owned */
} bt_worker_adapter_t;

typedef struct bt_worker_adapters {
    bt_worker_adapter_t *list; /**< owned */
    uint32_t n;
} bt_worker_adapters_t;

/** Returns the largest rank of adapters; 0: the options name none. */
uint32_t bt_adapters_max_rank(const bt_config_t *config);
/** Returns the memory that the adapters of --lora will take, by the sizes of
 *  their files. */
uint64_t bt_adapters_estimate(const bt_config_t *config);
/** Reads the adapters of --lora and prepares them for the model, which is
 *  loaded. A failure is logged.
 *  @retval any of bt_adapter_open(), bt_lora_load() */
BT_MUST_CHECK bt_status_t bt_adapters_open(bt_worker_t *w, const bt_start_t *s);
/** Frees the adapters, before the model. */
void bt_adapters_close(bt_worker_t *w);
/** Finds an adapter. @return NULL: it is not here */
const bt_lora_t *bt_adapters_find(const bt_worker_t *w, bt_hash128_t digest);

#endif
