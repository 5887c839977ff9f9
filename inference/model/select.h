/* SPDX-License-Identifier: Apache-2.0 */
/** @file select.h  Candidates for the next token in their order, and the place
 *  in it where a sum is reached, without ordering them all; within this
 *  folder.
 *
 * A client may ask for a distribution in which every token counts. To order
 * 150,000 candidates for each draw takes 15 ms and more, for which everybody
 * else in the batch waits; this looks at each a few times.
 *
 * Candidates are spread over buckets by the distance of their logit from the
 * best, the sums of the buckets say in which one the place is, and the same is
 * done with that one's, until few are left (Hoare's quickselect, with many
 * parts at a time).
 */
#ifndef BT_INFERENCE_MODEL_SELECT_H
#define BT_INFERENCE_MODEL_SELECT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_candidate {
    float logit; /**< a number, not infinite */
    uint32_t id;
} bt_candidate_t;

/** The order: the better logit first, of equal ones the lower id. */
static inline bool bt_candidate_precedes(bt_candidate_t a, bt_candidate_t b)
{
    return (a.logit > b.logit) || ((a.logit == b.logit) && (a.id < b.id));
}

/**
 * The candidate at which the running sum of weights, in their order, reaches
 * @a need, which all of them together do. O(n) where logits lie as those of
 * models do; each round leaves out one at least.
 *
 * @param [in,out] list     n of them, at least 1, by ascending id; spoiled
 * @param [in]     weights  by id, and below 2^64 together; NULL: 1 each
 * @param [in]     need     at least 1
 */
bt_candidate_t bt_select(bt_candidate_t *list, uint32_t n,
                         const uint64_t *weights, uint64_t need);

/**
 * The first candidates of a row of logits, in no order; those that cannot be
 * drawn (banned, NaN) are none. O(n) where few enter once k are there.
 *
 * @param [in]  n         logits
 * @param [in]  k         at least 1
 * @param [out] list      k; a heap whose root is the last of them
 * @return how many there are, at most k
 */
uint32_t bt_select_first(const float *logits, uint32_t n, uint32_t k,
                         bt_candidate_t *list);
/** Take the root, the last one, from a heap of *n_p, at least 1. */
bt_candidate_t bt_select_pop_last(bt_candidate_t *heap, uint32_t *n_p);

#endif
