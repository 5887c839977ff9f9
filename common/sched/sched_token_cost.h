/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_token_cost.h
 *
 * What a request costs, for who is charged for it (sched_fair.h): microseconds
 * of workers, by what their steps were measured to take (sched_cost.h).
 *
 *     prompt      its chunks, tokens and pairs, less those of what was cached
 *     each token  a part of an iteration of as many sequences as generate on
 *                 average, and its reads
 *
 * So a token of a long context costs more than one of a short one, a generated
 * one more than one of a prompt, and neither has a factor that somebody set.
 * Until workers have measured both phases a token is a token: 1 each.
 *
 * A price is of a moment. What was charged at one and is corrected at another
 * is corrected in proportion: bt_sched_token_cost_settled().
 *
 * Threads: pure; whoever has one owns it.
 * Source:  Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI
 *          2024, section 3 (service as a cost function of both phases).
 */
#ifndef BT_COMMON_SCHED_PRICE_H
#define BT_COMMON_SCHED_PRICE_H

#include <stdint.h>

#include "common/sched/sched_cost.h"

/** What a request is. */
typedef struct bt_sched_charge {
    uint32_t n_cached; /**< of the prompt: costs nothing; up to n_prompt */
    uint32_t n_prompt;
    uint32_t n_context; /**< before what it generates; n_prompt, or more where
                             another computes the prompt */
    uint32_t n_new;
} bt_sched_charge_t;

typedef struct bt_sched_token_cost {
    bt_sched_rates_t rates; /**< of each phase those measured last */
    double n_seqs;          /**< of an iteration, a mean; 0: none was seen */
} bt_sched_token_cost_t;

/** A token is a token. */
void bt_sched_token_cost_init(bt_sched_token_cost_t *price);
/** What a worker measured; a phase that it has not is not learned.
 *  @param [in] n_seqs  that generate there now */
void bt_sched_token_cost_learn(bt_sched_token_cost_t *price,
                               const bt_sched_rates_t *rates, uint32_t n_seqs);
/** @return at least 1 */
uint64_t bt_sched_token_cost_of(const bt_sched_token_cost_t *price,
                                const bt_sched_charge_t *piece);
/** It was charged so much for what it was thought to be, and was something
 *  else: what it should have been charged.
 *  @return at least 1 */
uint64_t bt_sched_token_cost_settled(const bt_sched_token_cost_t *price,
                                     uint64_t charged,
                                     const bt_sched_charge_t *thought,
                                     const bt_sched_charge_t *was);

#endif
