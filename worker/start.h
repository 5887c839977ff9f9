/* SPDX-License-Identifier: Apache-2.0 */
/** @file start.h
 *
 * Start-up of a worker. Private to the worker's files. The steps are ordered
 * so that errors are found as cheaply as possible; start.c runs them one by
 * one. A step that fails has logged the reason. Its results are in the worker
 * or in bt_start_t, and start.c frees them, complete or not.
 *
 *     start_model.c   file → options → memory → back end and weights, engine
 *     start_draft.c   draft model: weights, memory, drafter
 *     start_trial.c   the steps that take no memory, for another file
 *     start_links.c   router's address and key; hello → joins
 *     start.c         KV pool, which needs the key; prefix cache
 *     standby.c       name and role of the worker that a standby replaces
 */
#ifndef BT_WORKER_START_H
#define BT_WORKER_START_H

#include <limits.h>
#include <signal.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/cluster/cluster.h"
#include "common/coll/coll.h"
#include "common/config/config.h"
#include "common/crypt/key.h"
#include "common/kv/kv_groups.h"
#include "inference/draft/draft_cache.h"
#include "inference/gguf/gguf.h"
#include "inference/model/model.h"
#include "kernels/kernels.h"
#include "kvtransfer/kvt.h"
#include "worker/cores.h"
#include "worker/instance_ranks.h"
#include "worker/weights.h"
#include "worker/worker.h"

#define BT_START_URL_BYTES 4096

/** Start-up state beside the worker itself. */
typedef struct bt_start {
    bt_config_store_t *store;
    const char *model;      /**< --model */
    bool is_again;          /**< started again in its process */
    bt_config_t own_config; /**< with is_again; borrows of store */
    bt_cluster_t *cluster;
    bt_instance_ranks_t team; /**< ranks of this instance */
    bt_gguf_t *gguf;
    bt_hparams_t hp;
    struct {                 /* start_draft.c */
        bt_gguf_t *gguf;     /**< NULL: there is no draft model; with
                                  BT_HEAD_NEXTN that of the model */
        bt_head_kind_t head; /**< BT_HEAD_NONE: a model, not a head */
        const char *type; /**< type of the model's own weights; NULL: a file */
        size_t scratch_bytes; /**< most that making one of its tensors takes */
        bool has_cache; /**< has a KV cache of its own; false: uses the model's
                         */
        bt_draft_cache_config_t cache; /**< n_blocks is set with pool_bytes */
        size_t block_bytes;            /**< bytes of one of its blocks */
        bt_hparams_t hp;               /**< with has_cache */
    } draft;
    bt_kv_shape_t shape;
    bt_kv_type_t kv_type;
    uint32_t cores[BT_MAX_CORES];
    uint32_t n_cores;
    uint32_t n_threads;
    uint32_t lent_cores[BT_MAX_CORES]; /**< cores of other workers, borrowed */
    uint32_t n_lent;
    uint8_t key[BT_KEY_BYTES];
    char url[BT_START_URL_BYTES];
    uint32_t memory_node; /**< NUMA node of the cores; 0 also without NUMA */
    char weight_dir[PATH_MAX]; /**< "": none */
    bt_limit_t memory_limit; /**< set by bt_start_memory_look(), as is memory */
    bt_model_memory_t memory; /**< memory of the model; set with pool_bytes */
    uint64_t pool_bytes;      /**< KV of the model, and of a draft model */
    /** Memory that counts as free though it is not yet: of a start that will
     *  be given back before. */
    uint64_t held_bytes, held_device_bytes;
    uint8_t export[BT_KVT_MAX_EXPORT];
} bt_start_t;

/* start_model.c */

/** Opens the model file, reads its hyper-parameters and settles the longest
 *  sequence.
 *  @retval BT_ERR_INVALID_PARAM  no model named, or max-seq-len is larger
 *                                than the model's maximum
 *  @retval  any of bt_gguf_open(), bt_hparams_read() */
BT_MUST_CHECK bt_status_t bt_start_file_open(bt_worker_t *w, bt_start_t *s);
/** Begins to make what structured output needs of the file's vocabulary, while
 *  the weights are loaded; nothing where the file has none.
 *  @retval any of bt_grammars_create() */
BT_MUST_CHECK bt_status_t bt_start_grammars_begin(bt_worker_t *w,
                                                  const bt_start_t *s);
/** Waits for it. A vocabulary that cannot be used is no failure.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_start_grammars_end(bt_worker_t *w);
/** Settles the shape of a block. @retval BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_start_options_check(bt_worker_t *w, bt_start_t *s);
/** Decides where packed weights are kept and the size of the pool; fails,
 *  before any memory is taken, if this machine has too little.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_INVALID_PARAM  fewer than 2 blocks
 *  @retval  any of bt_packed_dir(), bt_model_memory() */
BT_MUST_CHECK bt_status_t bt_start_memory_plan(bt_worker_t *w, bt_start_t *s);
/** Does the work of bt_start_memory_plan() for this rank alone, without the
 *  others. Its results are in @a s also after BT_ERR_NO_MEMORY. */
BT_MUST_CHECK bt_status_t bt_start_memory_look(bt_worker_t *w, bt_start_t *s);
/** Returns the pool as this rank's kernels see it. */
bt_kv_view_t bt_start_kv_view(const bt_worker_t *w, const bt_start_t *s);
/** Opens the back end and loads the weights into it. n_threads is set.
 *  @retval BT_ERR_UNSUPPORTED  the back end cannot read KV blocks of this shape
 *  @retval  any of bt_backend_open(), bt_model_load() */
BT_MUST_CHECK bt_status_t bt_start_model_load(bt_worker_t *w,
                                              const bt_start_t *s);
/** Starts the compute thread. Model and pool are ready.
 *  @retval BT_ERR_UNSUPPORTED  the back end cannot read the pool where it lies
 *  @retval  any of bt_engine_create() */
BT_MUST_CHECK bt_status_t bt_start_engine_open(bt_worker_t *w,
                                               const bt_start_t *s);

/* start_draft.c */

/** Opens the draft model of the options, if there is one. The model's file is
 *  open, its KV groups are planned, n_threads is set.
 *  @retval BT_ERR_UNSUPPORTED  not with these ranks or this model
 *  @retval BT_ERR_INVALID_PARAM  its weights are not smaller; no such type
 *  @retval any of bt_modelfile_open(), bt_requantize_open(),
 *          bt_model_drafter_check() */
BT_MUST_CHECK bt_status_t bt_start_draft_open(const bt_worker_t *w,
                                              bt_start_t *s);
/** Closes the file of the draft model, before that of the model. */
void bt_start_draft_close(bt_start_t *s);
/** Adds the memory of the draft model to that of the model.
 *  @retval BT_ERR_UNSUPPORTED  the back end has memory of its own
 *  @retval any of bt_model_memory(), bt_draft_cache_bytes() */
BT_MUST_CHECK bt_status_t bt_start_draft_memory(const bt_worker_t *w,
                                                const bt_start_t *s,
                                                const bt_model_config_t *target,
                                                bt_model_memory_t *memory);
/** Divides the memory for KV between the pool and the KV cache of a draft
 *  model, which has blocks for as many tokens; for all that all its slots can
 *  hold at most. Sets w->n_blocks. */
void bt_start_draft_divide(bt_worker_t *w, bt_start_t *s, uint64_t pool_bytes);
/** Returns the most rows of a call of the draft model; 0: there is none. */
uint32_t bt_start_draft_rows(const bt_worker_t *w, const bt_start_t *s);
/** Loads the draft model into w->draft_model.
 *  @retval any of bt_model_load(), bt_kernels_check_kv() */
BT_MUST_CHECK bt_status_t bt_start_draft_load(bt_worker_t *w,
                                              const bt_start_t *s,
                                              const bt_model_config_t *target);
/** Opens w->drafter, if there is a draft model. The pool is ready.
 *  @param [in,out] hook_p  set where there is one
 *  @retval any of bt_model_check_groups(), bt_model_drafter_create() */
BT_MUST_CHECK bt_status_t bt_start_drafter_open(bt_worker_t *w,
                                                const bt_start_t *s,
                                                bt_batch_drafter_t *hook_p);

/* start_trial.c */

/** Tries whether a worker that serves could start from another file, as far as
 *  can be told without its memory. */
extern const bt_weights_trial_ops_t bt_start_trial_ops;

/* start.c */

/** Settles the cores and threads of this rank.
 *  @retval BT_ERR_INVALID_PARAM  a bad list of cores, or fewer cores than ranks
 *  @retval BT_ERR_NO_MEMORY  fewer threads are available than this rank needs
 */
BT_MUST_CHECK bt_status_t bt_start_cores_settle(bt_worker_t *w, bt_start_t *s);

/* start.c */

/** Opens KV transfer with the pool, in the memory that the back end wants,
 *  under the cluster key, and the prefix cache over the pool. Waits for the
 *  interface's link.
 *  @retval BT_ERR_CANCELED  stopped while waiting
 *  @retval  any of bt_kvt_open(), of the back end's buffer_alloc() and
 *           copier_open(), BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_start_pool_open(bt_worker_t *w,
                                             const bt_start_t *s);
/** Closes the pool, complete or not. Call after closing the engine and before
 *  closing the back end. */
void bt_start_pool_close(bt_worker_t *w);

/* start.c */

/** Sets w->name to the instance's name; for a rank other than 0 with its number
 *  appended. */
void bt_start_name_rank(bt_worker_t *w, const char *name, uint32_t rank);
/** Labels log lines with w->name from now on. */
void bt_start_log_as_named(const bt_worker_t *w);

/* start_links.c */

/** Finds the router's address (for rank 0) and the cluster key: from the
 *  launcher's MPI world, or from the options. Collective in a world with
 *  routers.
 *  @retval BT_ERR_INVALID_PARAM  neither source has them
 *  @retval  any of bt_key_read(), bt_cluster_exchange() */
BT_MUST_CHECK bt_status_t bt_start_router_find(bt_worker_t *w, bt_start_t *s);
/** Introduces this worker to every router found. Modifies s->url.
 *  @retval  any of bt_kvt_export(), bt_control_open(), bt_control_join() */
BT_MUST_CHECK bt_status_t bt_start_links_open(bt_worker_t *w, bt_start_t *s);

/* standby.c
 *
 * Standby process: has its model loaded and its weights mapped, but no KV
 * pool, no name and no role, until the launcher gives it the name and role of
 * a worker to replace:
 *
 *     launcher ──"decode-0 decode\n"──▶ --assignment-fd
 *              ◀──"ready\n"── first as a standby; again when it serves
 */

/**
 * Rank 0: waits for the name and role of the worker to replace, sets w->name
 * and w->roles, and passes them to the other ranks. Closes the descriptor of
 * --assignment-fd.
 *
 * @param [in] coll       Collectives of the instance; NULL: it is one rank.
 * @param [in] signal_fd  See bt_stop_open().
 * @retval BT_ERR_CANCELED     stopped, or the launcher is gone
 * @retval BT_ERR_BAD_MESSAGE  the line is malformed; logged
 * @retval BT_ERR_IO           logged
 */
BT_MUST_CHECK bt_status_t bt_worker_stand_by(bt_worker_t *w,
                                             const bt_collectives_t *coll,
                                             int signal_fd);

/** Another rank: waits for the name and role from rank 0; w->name becomes that
 *  name with this rank's number.
 *  @retval BT_ERR_CANCELED  rank 0 has none, and ends
 *  @retval any error of the collective; logged */
BT_MUST_CHECK bt_status_t bt_worker_stand_by_rank(bt_worker_t *w,
                                                  const bt_collectives_t *coll);

/** Parses a line "NAME ROLE" without its newline.
 *  @param [out] name  [BT_WIRE_MAX_NAME] */
BT_MUST_CHECK bt_status_t bt_standby_read_assignment(const char *line,
                                                     char *name,
                                                     uint32_t *roles_p);

/* A rank other than 0 of an instance: runs its share of the
 *  model and of the KV pool, and serves the requests of rank 0
 * (instance_ranks.h).
 */

/** Runs a rank other than 0 to its end, in place of the worker's own main loop.
 *  @return the exit code */
int bt_rank_main_run(bt_worker_t *w, bt_start_t *s);

#endif
