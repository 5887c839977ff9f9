/* SPDX-License-Identifier: Apache-2.0 */
/** @file start.h
 *
 * Start-up of a worker, between the files of worker only. The steps stand in
 * the order in which things can be refused cheaply; start.c takes them one by
 * one. Why one failed is in the log by then. What it has made is in the worker
 * or in bt_start_t, and start.c ends it, whole or not.
 *
 *     start_model.c   file → options → memory → back end and weights, engine
 *     start_links.c   router's address and key... hello → joins
 *     start_pool.c    ...KV pool, which needs the key; prefix index
 */
#ifndef BT_WORKER_START_H
#define BT_WORKER_START_H

#include <limits.h>
#include <signal.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/cluster/cluster.h"
#include "common/config/config.h"
#include "common/crypt/key.h"
#include "common/kv/kv_layout.h"
#include "inference/gguf/gguf.h"
#include "inference/model/model.h"
#include "kernels/kernels.h"
#include "kvtransfer/kvt.h"
#include "worker/cores.h"
#include "worker/team.h"
#include "worker/worker.h"

#define BT_START_URL_BYTES 4096

/** What start-up needs besides the worker itself. */
typedef struct bt_start {
    bt_config_store_t *store;
    bt_cluster_t *cluster;
    bt_team_t team; /**< ranks of this instance */
    bt_gguf_t *gguf;
    bt_hparams_t hp;
    bt_kv_shape_t shape;
    bt_kv_type_t kv_type;
    uint32_t cores[BT_MAX_CORES];
    uint32_t n_cores;
    uint32_t n_threads;
    uint32_t lent_cores[BT_MAX_CORES]; /**< of other workers */
    uint32_t n_lent;
    uint8_t key[BT_KEY_BYTES];
    char url[BT_START_URL_BYTES];
    uint32_t memory_node;      /**< of its cores; 0 also where it has none */
    char weight_dir[PATH_MAX]; /**< "": none */
    bt_limit_t memory_limit;   /**< of bt_start_memory_look(), as is memory */
    bt_model_memory_t memory;  /**< what the model takes, as pool_bytes */
    uint64_t pool_bytes;
    uint8_t export[BT_KVT_MAX_EXPORT];
} bt_start_t;

/* start_model.c */

/** Open the file, read its hyper-parameters, settle the longest sequence.
 *  @retval BT_ERR_INVALID_PARAM  no model named, or context-tokens exceed it
 *  @retval  any of bt_gguf_open(), bt_hparams_read() */
BT_MUST_CHECK bt_status_t bt_start_file_open(bt_worker_t *w, bt_start_t *s);
/** Settle the shape of a block. @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_start_options_check(bt_worker_t *w, bt_start_t *s);
/** Decide where packed weights are kept and the size of the pool; refuse,
 *  before any memory is taken, what this machine cannot hold.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_INVALID_PARAM  fewer than 2 blocks
 *  @retval  any of bt_packed_dir(), bt_model_memory() */
BT_MUST_CHECK bt_status_t bt_start_memory_plan(bt_worker_t *w, bt_start_t *s);
/** The same by itself, without the other ranks: of what this one would take.
 *  What it found is in @a s also after BT_ERR_NO_MEMORY. */
BT_MUST_CHECK bt_status_t bt_start_memory_look(bt_worker_t *w, bt_start_t *s);
/** The pool as this rank's kernels see it. */
bt_kv_view_t bt_start_kv_view(const bt_worker_t *w, const bt_start_t *s);
/** Open the back end and load the weights into it. n_threads is set.
 *  @retval BT_ERR_UNSUPPORTED  it reads no KV blocks like these
 *  @retval  any of bt_backend_open(), bt_model_load() */
BT_MUST_CHECK bt_status_t bt_start_model_load(bt_worker_t *w,
                                              const bt_start_t *s);
/** Start the compute thread: model and pool are there.
 *  @retval BT_ERR_UNSUPPORTED  the back end cannot read the pool where it lies
 *  @retval  any of bt_engine_create() */
BT_MUST_CHECK bt_status_t bt_start_engine_open(bt_worker_t *w,
                                               const bt_start_t *s);

/* start.c */

/** Cores and threads, this rank's own.
 *  @retval BT_ERR_INVALID_PARAM  a list of cores, or fewer than ranks
 *  @retval BT_ERR_NO_MEMORY  fewer threads are left than it has */
BT_MUST_CHECK bt_status_t bt_start_cores_settle(bt_worker_t *w, bt_start_t *s);

/* start_pool.c */

/** Open the transfers with the pool, in the memory where the back end wants it,
 *  under the cluster key, waiting for the interface's link, and the prefix
 * index over it.
 *  @retval BT_ERR_CANCELED  told to stop while it waited
 *  @retval  any of bt_kvt_open(), of the back end's buffer_alloc() and
 *           copier_open(), BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_start_pool_open(bt_worker_t *w,
                                             const bt_start_t *s);
/** Whole or not; after the engine, before the back end. */
void bt_start_pool_close(bt_worker_t *w);

/* start.c */

/** w->name: the instance's, a rank other than 0 with its number behind it. */
void bt_start_name_rank(bt_worker_t *w, const char *name, uint32_t rank);
/** Log lines from now on are w->name's. */
void bt_start_log_as_named(const bt_worker_t *w);

/* start_links.c */

/** The router's address (for rank 0) and the cluster key: from the launcher's
 * MPI world, or from the options. Collective in a world with routers.
 *  @retval BT_ERR_INVALID_PARAM  neither says one
 *  @retval  any of bt_key_read(), bt_cluster_exchange() */
BT_MUST_CHECK bt_status_t bt_start_router_find(bt_worker_t *w, bt_start_t *s);
/** Say who we are to every router found. Takes s->url apart.
 *  @retval  any of bt_kvt_export(), bt_rpc_open(), bt_rpc_join() */
BT_MUST_CHECK bt_status_t bt_start_links_open(bt_worker_t *w, bt_start_t *s);

#endif
