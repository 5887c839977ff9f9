/* SPDX-License-Identifier: Apache-2.0 */
/** @file head_drafter.h
 *
 * Drafter that is a head of the target (inference/model/head.h): EAGLE-3,
 * or the target's own layer of multi-token prediction. It reads hidden states
 * that the target left when it computed a token, and the token behind it:
 *
 * With n known tokens:
 *
 *     position           n-3      n-2      n-1      n
 *     token behind it    known    known    draft 1  draft 2
 *     hidden state       target   target   head's   head's
 *     gives              -        draft 1  draft 2  draft 3
 *
 * A head drafter has a KV cache of its own of one layer (draft_cache.h), whose
 * tokens are those of the sequence from the second one on. What it computed
 * from its own output is computed anew when the target's hidden states are
 * there.
 *
 * The cache begins where the first hidden state is: hidden states are not sent
 * with KV, nor computed for tokens of a prompt. So a sequence has drafts from
 * the second token on that is drawn at this worker. A few hidden states of a
 * sequence that has no drafts now are kept; where more came the cache begins
 * anew, with those that were kept.
 *
 * A draft is drawn as the target would draw the token: with the sequence's
 * processors, sampling parameters and random number of the position. Ids that
 * the head's vocabulary lacks are never drafted.
 *
 * Threads: made and freed by its owner; used by the compute thread alone.
 * Source:  Y. Li et al., "EAGLE-3", arXiv 2503.01840, section 3. That entries
 *          from the head's own output are replaced: vLLM, issue 14649 (8 to 15
 *          % fewer drafts are right otherwise).
 */
#ifndef BT_INFERENCE_DRAFT_HEAD_DRAFTER_H
#define BT_INFERENCE_DRAFT_HEAD_DRAFTER_H

#include "inference/draft/draft_cache.h"
#include "inference/engine/engine.h"

typedef struct bt_head_drafter bt_head_drafter_t;

/** Parameters of a drafter; copied by bt_head_drafter_create(). */
typedef struct bt_head_drafter_config {
    bt_model_t *model; /**< head; borrowed; max_rows of
                            bt_head_drafter_max_rows(), max_seqs and
                            max_logit_rows of max_seqs */
    uint32_t n_vocab;  /**< vocabulary of the target */
    uint32_t max_seqs; /**< most sequences at a time */
    float read_share;  /**< bt_batch_drafter_t.read_share */
    /** Cache of max_seqs slots; borrowed for the call. */
    const bt_draft_cache_config_t *cache;
} bt_head_drafter_config_t;

/** Returns the most rows of a call of the head. */
uint32_t bt_head_drafter_max_rows(uint32_t max_seqs);

/** Returns the memory that bt_head_drafter_create() takes beside its cache and
 *  its sampler, in bytes.
 *  @param [in] hp  of the head */
size_t bt_head_drafter_bytes(const bt_hparams_t *hp, uint32_t max_seqs);

/**
 * Makes a drafter.
 * @param [out] drafter_p  Owned by the caller; free with
 *                         bt_head_drafter_destroy().
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY
 * @retval any of bt_draft_cache_create()
 */
BT_MUST_CHECK bt_status_t bt_head_drafter_create(
    const bt_head_drafter_config_t *config, bt_head_drafter_t **drafter_p);
/** Frees the drafter. NULL is allowed. */
void bt_head_drafter_destroy(bt_head_drafter_t *drafter);

/** Returns the hook for bt_engine_config_t.batch_drafter. */
bt_batch_drafter_t bt_head_drafter_hook(bt_head_drafter_t *drafter);

#endif
