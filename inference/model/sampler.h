/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampler.h
 *
 * Sampling: penalties, banned words, temperature, top-k, top-p, and a draw from
 * a counter-based generator keyed by (seed, position), so that a sequence can
 * move to another worker without any sampler state.
 *
 * Order of the steps: repetition / presence / frequency penalty, bad words,
 * min_tokens (end tokens banned), then greedy if temperature == 0 or top_k == 1
 * (lowest id wins a tie), else min_p and top_k, the smallest prefix with mass
 * >= top_p (at least one), draw: by the specification that kernels/draw.h has
 * for all back ends. Weights are whole numbers, so a token depends neither on
 * the order in which weights are summed nor on whether host or back end draws
 * it (docs/adr/0020-whole-number-weights.md).
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (Philox
 *         4x32-10); Holtzman et al. (top-p).
 */
#ifndef BT_INFERENCE_MODEL_SAMPLER_H
#define BT_INFERENCE_MODEL_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/request.h"
#include "inference/model/processors.h"

typedef struct bt_sampler bt_sampler_t; /**< scratch of one thread */

BT_MUST_CHECK bt_status_t bt_sampler_create(uint32_t n_vocab,
                                            bt_sampler_t **sampler_p);
void bt_sampler_destroy(bt_sampler_t *sampler);

/**
 * Draws a token.
 *
 * @param [in]     params    Checked with bt_sampling_check() before.
 * @param [in,out] logits    n_vocab; overwritten (penalties, bans).
 * @param [in]     tokens    Prompt and generated tokens so far, n_tokens.
 * @param [in]     n_prompt  Number of tokens that are the client's prompt.
 * @param [in]     position  Absolute position of the token to draw (=
 *         n_tokens); the generator's counter.
 * @return the token id. Allocates nothing; O(n_vocab + n_tokens), whatever the
 *         parameters (logits.h).
 */
uint32_t bt_sampler_draw(bt_sampler_t *sampler, const bt_sampling_t *params,
                         float *logits, const uint32_t *tokens,
                         uint32_t n_tokens, uint32_t n_prompt,
                         uint32_t position);

/** Returns memory for a mask of all tokens, scratch of the caller. */
uint64_t *bt_sampler_mask(bt_sampler_t *sampler);

/** Draws a token as bt_sampler_draw(), but one of those that a mask has, which
 *  are above what the request allows and bans (processors.h).
 *  @param [in] mask  has a token of the vocabulary */
uint32_t bt_sampler_draw_masked(bt_sampler_t *sampler,
                                const bt_sampling_t *params, float *logits,
                                const bt_history_t *history, uint32_t position,
                                bt_token_mask_t mask);

/** Makes the changes that bt_sampler_draw_masked() makes to logits first:
 *  penalties, the mask, bad words, and end tokens that come too early.
 *  Parameters as there. */
void bt_sampler_change(bt_sampler_t *sampler, const bt_sampling_t *params,
                       float *logits, const bt_history_t *history,
                       bt_token_mask_t mask);

#define BT_SAMPLER_MAX_NEEDS 512

/**
 * Returns how many of the first candidates of the unmodified logits suffice for
 * bt_sampler_draw() to give an unchanged token, with all others at -infinity.
 * 0: all are needed. 1: the token is bt_sampler_best(), when nothing penalizes
 * or bans, and nothing is random. At most BT_SAMPLER_MAX_NEEDS.
 *
 * Penalties that lower logits are covered by as many more candidates as tokens
 * may have been seen; where a penalty raises logits, a token of any rank may
 * become the first.
 *
 * @param [in] n_prompt  tokens of the prompt
 * @param [in] n_drawn   tokens generated so far
 */
uint32_t bt_sampler_needs(const bt_sampling_t *params, uint32_t n_prompt,
                          uint32_t n_drawn);

/** True when a draw depends on which tokens came before, and not only on their
 *  number. */
bool bt_sampling_reads_tokens(const bt_sampling_t *params);

/** Returns the id of the largest logit, the lowest of several; NaN is never the
 *  largest; 0 when nothing is above -infinity. Equals argmax() of kernels.h. */
uint32_t bt_sampler_best(const float *logits, uint32_t n_vocab);

/*
 * Changes that a draw makes to logits first, for the sampler and for draws on a
 * back end (drawing.h); within this folder.
 */

/** True when there is any penalty. */
static inline bool bt_sampler_penalizes(const bt_sampling_t *params)
{
    return (params->repetition_penalty != 1.0f) ||
           (params->presence_penalty != 0.0f) ||
           (params->frequency_penalty != 0.0f);
}

/** Returns the position from which tokens count for the presence and the
 *  frequency penalty. */
uint32_t bt_sampler_counts_from(const bt_sampling_t *params, uint32_t n_prompt);

/** Calls @a ban for each token that cannot be drawn now, perhaps more than
 *  once: tokens that complete repeated n-grams or bad words, and end tokens
 *  that come too early. */
void bt_sampler_bans(const bt_sampling_t *params, uint32_t n_vocab,
                     const bt_history_t *history,
                     void (*ban)(void *ctx, uint32_t id), void *ctx);

#endif
