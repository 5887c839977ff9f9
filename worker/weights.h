/* SPDX-License-Identifier: Apache-2.0 */
/** @file weights.h
 *
 * Replacement of a running worker's weights, by order of a router
 * (bt_msg_weights_t). A worker with other weights is another instance: it
 * finishes its requests, closes all but its process, and starts again from the
 * other file, with an empty KV pool. So no KV of earlier weights can be used,
 * and its results are those of a fresh start.
 *
 *     serving ── order ──▶ due (drains) ── no request is left ──▶ started again
 *        │                                                           │
 *        └── refused: the router is told, nothing changes            ▼
 *                                                         HELLO of a new
 * instance
 *
 * Weights that cannot be loaded after all (the file is gone, or another one)
 * leave the worker with those of its command line. It remembers which, and
 * refuses to load these again, so that it does not fail for ever.
 *
 * Looking at a file may take seconds (a cold disk, a large tokenizer), so a
 * thread does it, one at a time; of orders that come meanwhile, the last one of
 * each kind is kept.
 *
 * Other weights have the model's settings, tokenizer, and names and shapes of
 * tensors; types of tensors may differ.
 *
 * Threads: the control thread; one more for a look.
 */
#ifndef BT_WORKER_WEIGHTS_H
#define BT_WORKER_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/wire/wire.h"
#include "inference/gguf/gguf.h"

typedef struct bt_start bt_start_t;
typedef struct bt_worker bt_worker_t;
typedef struct bt_worker_link bt_worker_link_t;

/** Hashes of what weights must have in common to replace one another. */
typedef struct bt_weights_form {
    bt_hash128_t settings, tokenizer, tensors;
} bt_weights_form_t;

typedef struct bt_weights_look bt_weights_look_t;

/** Order that waits for the look before it. */
typedef struct bt_weights_waiting {
    bool is_set;
    bt_msg_weights_t order;
    bt_worker_link_t *from; /**< NULL: the router is gone */
} bt_weights_waiting_t;

/** Weights of a worker; survives the restart within the process. */
/** Trial of a start with a file in place of the one that serves. */
typedef struct bt_weights_trial_ops {
    /** Prepares one trial, in the control thread. @return NULL: no memory */
    void *(*create)(const bt_worker_t *w);
    /** Tries it; the reason of a failure is logged. In any thread. */
    bt_status_t (*run)(void *trial, const char *path);
    void (*destroy)(void *trial); /**< NULL is allowed. */
} bt_weights_trial_ops_t;

typedef struct bt_worker_weights {
    bool are_replaceable;    /**< set by the owner: an option allows it, and
                                  this instance can */
    bt_weights_form_t form;  /**< form of the weights in use */
    bt_hash128_t model;      /**< identity of the weights in use */
    bt_hash128_t base;       /**< that of the model of --model */
    bt_wire_weights_t now;   /**< update 0: those of --model */
    bt_weights_look_t *look; /**< running; NULL: none */
    bt_weights_waiting_t waiting[2]; /**< by bt_msg_weights_t.loads */
    bool are_due;                    /**< `next` are to be loaded */
    bt_wire_weights_t next;
    const bt_start_t *start; /**< start of the worker; set by the owner */
    const bt_weights_trial_ops_t *trial; /**< set by the owner, too */
    uint64_t failed_update; /**< weights that could not be loaded; 0: none */
    bt_status_t failed_status;
} bt_worker_weights_t;

/** Computes the form of a model. */
bt_weights_form_t bt_weights_form_of(const bt_gguf_t *gguf);
/** Compares two forms.
 *  @return NULL when weights of one may replace those of the other; otherwise
 *    the reason, a sentence about @a other */
const char *bt_weights_form_differs(const bt_weights_form_t *form,
                                    const bt_weights_form_t *other);

/**
 * Resolves the path of weights within a folder.
 * @param [in]  path  Absolute, or relative to @a folder; untrusted.
 * @param [out] out   Path without links.
 * @param [out] why   On failure the reason.
 * @retval BT_ERR_NOT_FOUND      there is no such file
 * @retval BT_ERR_INVALID_PARAM  it is not below the folder
 * @retval BT_ERR_TOO_LARGE
 */
BT_MUST_CHECK bt_status_t bt_weights_resolve(const char *folder,
                                             const char *path,
                                             char out[BT_WIRE_MAX_PATH],
                                             char *why, size_t why_bytes);

/** Carries out a router's order. */
void bt_weights_on_order(bt_worker_t *w, bt_worker_link_t *from,
                         const bt_msg_weights_t *order);
/** Takes the result of a look that is over; call in each turn of the control
 *  loop. */
void bt_weights_step(bt_worker_t *w);
/** Forgets a router that is gone. */
void bt_weights_router_gone(bt_worker_t *w, const bt_worker_link_t *from);
/** Waits for the end of a look and forgets it. */
void bt_weights_close(bt_worker_t *w);
/** Records the weights that were just opened.
 *  @retval BT_ERR_MISMATCH  they may not replace those before: the file is not
 *    the one that was looked at; logged */
BT_MUST_CHECK bt_status_t bt_weights_opened(bt_worker_t *w,
                                            const bt_gguf_t *gguf);
/** Records that the weights in use could not be loaded; orders to load them are
 *  refused from now on. The next weights are those of --model.
 *  @return false: these are in use, or the worker was stopped */
BT_MUST_CHECK bool bt_weights_failed(bt_worker_t *w, bt_status_t status);

#endif
