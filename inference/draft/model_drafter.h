/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_drafter.h
 *
 * Drafter that is a model of the same shape with smaller weights, for instance
 * the quantized target itself. It has no KV cache of its own: it reads K and V
 * of known tokens as the target wrote them, and writes those of its drafts
 * where the target will write them when it verifies the drafts:
 *
 *     position   0 … n-2      n-1          n … n+k-2      n+k-1
 *     token      known        known, last  drafts         draft k, drawn
 *     K, V       target's     draft model's, then target's      –
 *
 * So there is nothing to prefill, to keep in step, or to hand over to another
 * worker. A draft is drawn as the target would draw the token: with the
 * sequence's processors, sampling parameters and random number of the position.
 *
 * Threads: made and freed by its owner; used by the compute thread alone.
 * Source:  K. Patel et al., "ML-SpecQD", arXiv 2503.13565 (quantized drafts of
 *          the target on CPUs); R. Tiwari et al., "QuantSpec", ICML 2025.
 */
#ifndef BT_INFERENCE_DRAFT_MODEL_DRAFTER_H
#define BT_INFERENCE_DRAFT_MODEL_DRAFTER_H

#include "inference/engine/engine.h"
#include "inference/gguf/gguf.h"

typedef struct bt_model_drafter bt_model_drafter_t;

/** Parameters of a drafter; copied by bt_model_drafter_create(). */
typedef struct bt_model_drafter_config {
    bt_model_t *model; /**< borrowed; max_rows and max_logit_rows of at least
                            max_seqs, on the back end of the target */
    bt_kv_view_t kv;   /**< the target's */
    const bt_kv_groups_t *groups; /**< the target's; borrowed; NULL: one */
    uint32_t max_seqs;            /**< most sequences at a time */
} bt_model_drafter_config_t;

/**
 * Makes a drafter.
 * @param [out] drafter_p  Owned by the caller; free with
 *                         bt_model_drafter_destroy().
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_model_drafter_create(
    const bt_model_drafter_config_t *config, bt_model_drafter_t **drafter_p);
/** Frees the drafter. NULL is allowed. */
void bt_model_drafter_destroy(bt_model_drafter_t *drafter);

/** Returns the hook for bt_engine_config_t.batch_drafter. */
bt_batch_drafter_t bt_model_drafter_hook(bt_model_drafter_t *drafter);

/**
 * Compares what a draft model must have in common with its target: the shape of
 * its KV and its layers, and the ids of its vocabulary.
 *
 * @param [out] why  On failure what differs, for the user.
 * @retval BT_OK
 * @retval BT_ERR_MISMATCH
 * @retval any of bt_hparams_read()
 */
BT_MUST_CHECK bt_status_t bt_model_drafter_check(const bt_gguf_t *target,
                                                 const bt_gguf_t *draft,
                                                 char *why, size_t why_bytes);

#endif
