/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_token_cost.h
 *
 * Cost of a request for fair queueing (sched_fair.h): microseconds of workers,
 * from their measured step times (sched_cost.h).
 *
 *     prompt      its chunks, tokens and pairs, less those of its cached part
 *     each token  a part of an iteration with the mean number of generating
 *                 sequences, and its reads
 *
 * So a token of a long context costs more than one of a short one, a generated
 * token more than a prompt token, and no factor is configured by hand. Until
 * workers have measured both phases each token costs 1.
 *
 * Costs change over time. A charge made at one time and corrected at another is
 * corrected in proportion: bt_sched_token_cost_settled().
 *
 * Threads: pure; the holder owns it.
 * Source:  Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI
 *          2024, section 3 (service as a cost function of both phases).
 */
#ifndef BT_COMMON_SCHED_TOKEN_COST_H
#define BT_COMMON_SCHED_TOKEN_COST_H

#include <stdint.h>

#include "common/sched/sched_cost.h"

/** Token counts that a request is charged for. */
typedef struct bt_sched_charge {
    uint32_t n_cached; /**< cached tokens of the prompt: cost nothing; up to
                            n_prompt */
    uint32_t n_prompt;
    uint32_t n_context; /**< tokens before the generated ones; n_prompt, or
                             more if another worker computes the prompt */
    uint32_t n_new;
} bt_sched_charge_t;

/** Learned cost of tokens. */
typedef struct bt_sched_token_cost {
    bt_sched_rates_t rates; /**< latest rates of each phase */
    double n_seqs;          /**< mean of an iteration; 0: none was seen */
} bt_sched_token_cost_t;

/** Initialises the costs to 1 for each token. */
void bt_sched_token_cost_init(bt_sched_token_cost_t *price);
/**
 * Learns a worker's measured rates; a phase that it has not measured is
 * ignored.
 * @param [in] n_seqs  sequences that generate there now
 */
void bt_sched_token_cost_learn(bt_sched_token_cost_t *price,
                               const bt_sched_rates_t *rates, uint32_t n_seqs);
/** Returns the cost of a request. @return at least 1 */
uint64_t bt_sched_token_cost_of(const bt_sched_token_cost_t *price,
                                const bt_sched_charge_t *piece);
/**
 * Returns what a request should have been charged, given its charge, its
 * estimated tokens and its actual tokens.
 * @return at least 1
 */
uint64_t bt_sched_token_cost_settled(const bt_sched_token_cost_t *price,
                                     uint64_t charged,
                                     const bt_sched_charge_t *thought,
                                     const bt_sched_charge_t *was);

#endif
