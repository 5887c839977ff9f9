/* SPDX-License-Identifier: Apache-2.0 */
/** @file prediction.h
 *
 * Counts how much of an answer its client predicted: OpenAI's
 * accepted_prediction_tokens and rejected_prediction_tokens.
 *
 * Threads: pure.
 */
#ifndef BT_ROUTER_TEXT_PREDICTION_H
#define BT_ROUTER_TEXT_PREDICTION_H

#include <stdint.h>

/**
 * Counts the tokens of an answer that stand in the prediction where the answer
 * has come to. The answer may differ: a token may stand in place of another,
 * and after that the next two equal tokens are found again, in limited time.
 *
 * @param [in] given  [n_given] token ids of the prediction
 * @param [in] ids    [n] token ids of the answer
 * @return at most n_given and n
 */
uint32_t bt_prediction_accepted(const uint32_t *given, uint32_t n_given,
                                const uint32_t *ids, uint32_t n);

#endif
