/* SPDX-License-Identifier: Apache-2.0 */
/** @file sampler.h
 *
 * From logits to a token: penalties, banned words, temperature, top-k, top-p,
 * and a draw from a counter-based generator keyed by (seed, position), so that
 * a sequence can move to another worker without any sampler state.
 *
 * Order of the steps: repetition / presence / frequency penalty, bad words,
 * min_tokens (end tokens banned), then greedy if temperature == 0 or
 * top_k == 1 (lowest id wins a tie), else min_p and top_k, the smallest prefix
 * with mass >= top_p (at least one), draw: by the specification that
 * kernels/draw.h has for all back ends. Weights are whole numbers, so a token
 * does not depend on the order in which somebody sums them, and neither does it
 * on who draws it (docs/adr/0020-whole-number-weights.md).
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
 *         (Philox 4x32-10); Holtzman et al. (top-p).
 */
#ifndef BT_INFERENCE_MODEL_SAMPLER_H
#define BT_INFERENCE_MODEL_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/request.h"

typedef struct bt_sampler bt_sampler_t; /**< scratch of one thread */

BT_MUST_CHECK bt_status_t bt_sampler_create(uint32_t n_vocab,
                                            bt_sampler_t **sampler_p);
void bt_sampler_destroy(bt_sampler_t *sampler);

/**
 * @param [in]     params    Checked with bt_sampling_check() before.
 * @param [in,out] logits    n_vocab; overwritten (penalties, bans).
 * @param [in]     history   Prompt and generated tokens so far, n_history.
 * @param [in]     n_prompt  How many of them are the client's prompt.
 * @param [in]     position  Absolute position of the token to draw
 *                           (= n_history); the generator's counter.
 * @return the token id. Allocates nothing; O(n_vocab + n_history), whatever the
 *         parameters (select.h).
 */
uint32_t bt_sampler_draw(bt_sampler_t *sampler, const bt_sampling_t *params,
                         float *logits, const uint32_t *history,
                         uint32_t n_history, uint32_t n_prompt,
                         uint32_t position);

#define BT_SAMPLER_MAX_NEEDS 512

/** How many of the first candidates of the untouched logits are enough for
 *  bt_sampler_draw(), with any others at -infinity: it gives the same token. 0:
 *  it looks at all. 1: it gives bt_sampler_best(), so when nothing penalizes or
 *  bans, and nothing is left to chance. At most BT_SAMPLER_MAX_NEEDS.
 *
 *  Penalties that lower are covered by as many more candidates as tokens may
 *  have been seen; where one raises, a token of any place may come first.
 *  @param [in] n_prompt  tokens of the prompt
 *  @param [in] n_drawn   tokens generated so far */
uint32_t bt_sampler_needs(const bt_sampling_t *params, uint32_t n_prompt,
                          uint32_t n_drawn);

/** Does a draw depend on which tokens there were, and not on how many alone? */
bool bt_sampling_reads_tokens(const bt_sampling_t *params);

/** The largest logit's id, the lowest of several; NaN is never the largest; 0
 *  when nothing is above -infinity. argmax() of kernels.h. */
uint32_t bt_sampler_best(const float *logits, uint32_t n_vocab);

#endif
