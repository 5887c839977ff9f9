/* SPDX-License-Identifier: Apache-2.0 */
/** @file logits.h
 *
 * Rows of logits: search for the best, log-probabilities, and biases.
 */
#ifndef BT_INFERENCE_MODEL_LOGITS_H
#define BT_INFERENCE_MODEL_LOGITS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/draw.h"

/*
 * Finds candidates for the next token by rank, and the rank at which a running
 * sum is reached, without sorting all of them; within this folder.
 *
 * A client may ask for a distribution in which every token counts. Sorting
 * 150,000 candidates for each draw takes 15 ms and more, for which the rest of
 * the batch waits; this reads each a few times.
 *
 * Candidates are spread over buckets by the distance of their logit from the
 * best, the sums of the buckets tell which one contains the rank, and that
 * bucket is split again, until few are left (Hoare's quickselect, with many
 * partitions at a time).
 */

typedef struct bt_candidate {
    float logit; /**< not NaN, not infinite */
    uint32_t id;
} bt_candidate_t;

/** True when a comes before b: the better logit first, of equal ones the lower
 *  id. */
static inline bool bt_candidate_precedes(bt_candidate_t a, bt_candidate_t b)
{
    return (a.logit > b.logit) || ((a.logit == b.logit) && (a.id < b.id));
}

/**
 * Returns the candidate at which the running sum of weights, in candidate
 * order, reaches @a need; the total of all weights must reach it. O(n) for
 * logits distributed as those of models are; each round removes at least one.
 *
 * @param [in,out] list     n of them, at least 1, by ascending id; overwritten
 * @param [in]     weights  by id, and below 2^64 together; NULL: 1 each
 * @param [in]     need     at least 1
 */
bt_candidate_t bt_select(bt_candidate_t *list, uint32_t n,
                         const uint64_t *weights, uint64_t need);

/**
 * Selects the first k candidates of a row of logits, unsorted; tokens that
 * cannot be drawn (banned, NaN) are skipped. O(n) where few candidates enter
 * once k are found.
 *
 * @param [in]  n         logits
 * @param [in]  k         at least 1
 * @param [out] list      k; a heap whose root is the last candidate
 * @return number of candidates, at most k
 */
uint32_t bt_select_first(const float *logits, uint32_t n, uint32_t k,
                         bt_candidate_t *list);
/** Removes and returns the root, the last candidate, from a heap of *n_p, at
 *  least 1. */
bt_candidate_t bt_select_pop_last(bt_candidate_t *heap, uint32_t *n_p);

/*
 * Log probabilities of tokens: log softmax of the model's logits (before
 * penalties and bans).
 *
 *     log p(id) = logits[id] - bt_logprob_sum(logits)
 */

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
