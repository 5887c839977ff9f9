/* SPDX-License-Identifier: Apache-2.0 */
/** @file logprob.h
 *
 * Log probabilities of tokens: log softmax of the model's logits (before
 * penalties and bans).
 *
 *     log p(id) = logits[id] - bt_logprob_sum(logits)
 */
#ifndef BT_INFERENCE_MODEL_LOGPROB_H
#define BT_INFERENCE_MODEL_LOGPROB_H

#include <stdint.h>

#include "kernels/draw.h"

/** Returns the log of the sum of exp(logits[i]), the largest factored out
 *  first: exp() in float, within 3 units in the last place, summed in SIMD
 *  lanes of i % 16, in float for 256 logits at a time and then in double, lane
 *  by lane. Within 1e-6 of the true value, far closer than the precision of the
 *  logits. NaN where a logit is NaN or infinite. Bit-identical on every
 *  machine. */
double bt_logprob_sum(const float *logits, uint32_t n);

/** Returns log p of a token that a back end has scored; bit-identical to the
 *  formula above. */
double bt_logprob_of(const bt_scored_t *scored);
/** Returns log p of another token in the row that a back end has scored. */
double bt_logprob_of_logit(const bt_scored_t *scored, float logit);

/** Finds the k best ids, best first, of equal ones the lowest first. O(n + hits
 *  * k).
 *  @param [in]  k    at most n
 *  @param [out] ids  k of them */
void bt_logprob_top(const float *logits, uint32_t n, uint32_t k, uint32_t *ids);

#endif
