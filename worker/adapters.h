/* SPDX-License-Identifier: Apache-2.0 */
/** @file adapters.h
 *
 * LoRA adapters of a worker: those of --lora, and those that routers have it
 * load while it runs, from --lora-dir or of what they send. A request names one
 * by the digest of its content, so that it gets what its router read, whatever
 * the names and files here are.
 *
 *     order of a router ─▶ queue ─▶ a thread reads and packs ─▶ here ─▶ READY
 *              content, WANT ⇄ PART ──▲                         │
 *                                                                │
 *     dropped by all routers, no job has it ──────────────▶ freed ◀┘
 *
 * One adapter is read at a time. An adapter is loaded once, however many
 * routers and names it has.
 *
 * Threads: the control thread; one more for reading.
 */
#ifndef BT_WORKER_ADAPTERS_H
#define BT_WORKER_ADAPTERS_H

#include "common/base/containers.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/wire/wire.h"
#include "inference/hf/peft_modules.h"
#include "inference/model/lora.h"

typedef struct bt_start bt_start_t;
typedef struct bt_worker bt_worker_t;
typedef struct bt_worker_link bt_worker_link_t;

typedef struct bt_worker_adapter {
    bt_list_t link;
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    bt_hash128_t digest;
    bt_lora_t *lora; /**< owned */
    uint32_t n_jobs; /**< jobs that have it */
    bool is_named;   /**< by --lora: never dropped */
    /** Routers that ordered it, n_routers of them. */
    const bt_worker_link_t *routers[BT_CONFIG_MAX_ROUTERS];
    uint32_t n_routers;
} bt_worker_adapter_t;

typedef struct bt_adapter_load bt_adapter_load_t;

/** Adapters of a worker; all zeros before bt_adapters_open(). */
typedef struct bt_worker_adapters {
    bt_list_t list;  /**< owned */
    bt_list_t loads; /**< orders; the first is being carried out */
    uint32_t n;
    bt_hf_modules_t model; /**< sizes of the model */
    uint64_t bytes;        /**< memory of those that were loaded at run time */
    bool is_open;
} bt_worker_adapters_t;

/** Returns the largest rank of adapters; 0: there are none. */
uint32_t bt_adapters_max_rank(const bt_config_t *config);
/** True when routers may have adapters loaded. */
bool bt_adapters_are_loaded_later(const bt_config_t *config);
/** True when they may send the content, too. */
bool bt_adapters_are_sent(const bt_config_t *config);
/** Returns the most memory that adapters will take: those of --lora, by the
 *  headers of their files, with the largest while it is read; and --lora-memory
 *  where more are loaded later. 0: there are none, or they cannot be read. */
uint64_t bt_adapters_estimate(const bt_config_t *config, const bt_gguf_t *gguf);
/** Reads the adapters of --lora and prepares them for the model, which is
 *  loaded. A failure is logged.
 *  @retval any of bt_adapter_open(), bt_lora_load() */
BT_MUST_CHECK bt_status_t bt_adapters_open(bt_worker_t *w, const bt_start_t *s);
/** Frees the adapters, before the model. Waits for one that is being read:
 * while the files' system hangs (NFS), so does the worker's end, which the
 * launcher bounds by SIGKILL. */
void bt_adapters_close(bt_worker_t *w);
/** Finds an adapter. @return NULL: it is not here */
bt_worker_adapter_t *bt_adapters_find(const bt_worker_t *w,
                                      bt_hash128_t digest);

/** Carries out a router's order. */
void bt_adapters_on_order(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_adapter_t *order);
/** Takes a part of the content of the adapter that is being loaded. */
void bt_adapters_on_part(bt_worker_t *w, bt_worker_link_t *from,
                         const bt_msg_adapter_part_t *part);
/** Takes an adapter that was read, and frees those that nobody has; call in
 *  each turn of the control loop. */
void bt_adapters_step(bt_worker_t *w);
/** Forgets a router that is gone. */
void bt_adapters_router_gone(bt_worker_t *w, const bt_worker_link_t *from);

#endif
