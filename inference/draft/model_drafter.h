/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_drafter.h
 *
 * Drafter that is a smaller model of the same vocabulary. A draft is drawn as
 * the target would draw the token: with the sequence's processors, sampling
 * parameters and random number of the position.
 *
 * Where its KV has the shape of the target's, for instance because it is the
 * quantized target itself, it needs no KV cache: it reads K and V of known
 * tokens as the target wrote them, and writes those of its drafts where the
 * target will write them when it verifies the drafts:
 *
 *     position   0 … n-2      n-1          n … n+k-2      n+k-1
 *     token      known        known, last  drafts         draft k, drawn
 *     K, V       target's     draft model's, then target's      –
 *
 * So there is nothing to prefill, to keep in step, or to hand over to another
 * worker.
 *
 * Any other model has a KV cache of its own (draft_cache.h), which it fills
 * from the tokens, at the worker that decodes: with the next draft where few
 * are missing, such as the last of drafts that were all right, and otherwise in
 * pieces between iterations (bt_batch_drafter_t.catch_up).
 *
 * Threads: made and freed by its owner; used by the compute thread alone.
 * Source:  K. Patel et al., "ML-SpecQD", arXiv 2503.13565 (quantized drafts of
 *          the target on CPUs); R. Tiwari et al., "QuantSpec", ICML 2025.
 */
#ifndef BT_INFERENCE_DRAFT_MODEL_DRAFTER_H
#define BT_INFERENCE_DRAFT_MODEL_DRAFTER_H

#include "inference/draft/draft_cache.h"
#include "inference/engine/engine.h"
#include "inference/gguf/gguf.h"

typedef struct bt_model_drafter bt_model_drafter_t;

/** Parameters of a drafter; copied by bt_model_drafter_create(). */
typedef struct bt_model_drafter_config {
    bt_model_t *model; /**< borrowed; max_rows of bt_model_drafter_max_rows(),
                            max_logit_rows of max_seqs, on the back end of the
                            target */
    bt_kv_view_t kv;   /**< the target's */
    const bt_kv_groups_t *groups; /**< the target's; borrowed; NULL: one */
    uint32_t max_seqs;            /**< most sequences at a time */
    /** KV cache of its own, of max_seqs slots; borrowed for the call. NULL: it
     *  uses the target's. */
    const bt_draft_cache_config_t *cache;
} bt_model_drafter_config_t;

/** Returns the most rows of a call of the draft model. */
uint32_t bt_model_drafter_max_rows(uint32_t max_seqs, bool has_cache);

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

/** Returns the probability of an id at this temperature; of greedy draws at 1.
 *  An estimate: it decides how many drafts are made, not which.
 *  @param [in] logits  [n], that of id above -infinity */
float bt_draft_probability(const float *logits, uint32_t n, uint32_t id,
                           float temperature);

/** Compares the first n tokens that two files list, one by one.
 *  @param [out] why  On failure what differs, for the user.
 *  @retval BT_OK
 *  @retval BT_ERR_MISMATCH */
BT_MUST_CHECK bt_status_t bt_draft_check_tokens(const bt_gguf_t *target,
                                                const bt_gguf_t *draft,
                                                uint32_t n, char *why,
                                                size_t why_bytes);

/** Returns the hook for bt_engine_config_t.batch_drafter. */
bt_batch_drafter_t bt_model_drafter_hook(bt_model_drafter_t *drafter);

/**
 * Compares a draft model with its target. The ids of their vocabularies must be
 * equal; where all else is, too, that K and V depend on, and its context is
 * long enough, it uses the target's KV cache.
 *
 * @param [in]  context_tokens  most tokens of a sequence
 * @param [out] shares_kv_p  false: it needs a KV cache of its own
 * @param [out] why  On failure what differs, for the user.
 * @retval BT_OK
 * @retval BT_ERR_MISMATCH  other tokens
 * @retval any of bt_hparams_read()
 */
BT_MUST_CHECK bt_status_t bt_model_drafter_check(const bt_gguf_t *target,
                                                 const bt_gguf_t *draft,
                                                 uint32_t context_tokens,
                                                 bool *shares_kv_p, char *why,
                                                 size_t why_bytes);

#endif
