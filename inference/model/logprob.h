/* SPDX-License-Identifier: Apache-2.0 */
/** @file logprob.h
 *
 * What a row of logits says of tokens: log softmax, in double, of the logits as
 * the model left them (before penalties and bans), and the best ids.
 *
 *     log p(id) = logits[id] - bt_logprob_sum(logits)
 */
#ifndef BT_INFERENCE_MODEL_LOGPROB_H
#define BT_INFERENCE_MODEL_LOGPROB_H

#include <stdint.h>

/** log of the sum of exp(logits[i]), the largest taken out first; in lanes of
 *  i % 8, then lane by lane. NaN where one is NaN or infinite. */
double bt_logprob_sum(const float *logits, uint32_t n);

/** The k best ids, best first, of equal ones the lowest first. O(n + hits * k).
 *  @param [in]  k    at most n
 *  @param [out] ids  k of them */
void bt_logprob_top(const float *logits, uint32_t n, uint32_t k, uint32_t *ids);

#endif
