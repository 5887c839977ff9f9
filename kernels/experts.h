/* SPDX-License-Identifier: Apache-2.0 */
/** @file experts.h
 *
 * Arguments of the operations of mixtures of experts (bt_kernels_ops_t.route,
 * matmul_experts, add_expert_bias, combine).
 *
 * A layer has E experts, feed-forwards of equal shape, and
 * each row goes through k of them. A *slot* is one row at one expert. Slots are
 * numbered by expert and, for one expert, by row, so that the rows of an expert
 * are adjacent:
 *
 *     row 0: experts 1 and 4      slot 0 1 │ 2 │ 3
 *     row 1: experts 1 and 2      row  0 1 │ 1 │ 0
 *                                 exp. 1   │ 2 │ 4
 */
#ifndef BT_KERNELS_EXPERTS_H
#define BT_KERNELS_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#define BT_MAX_EXPERTS      1024u /**< most experts of a layer */
#define BT_MAX_EXPERTS_USED 32u   /**< most experts of a row */
/** Leaves of the sum over experts: combine(). */
#define BT_EXPERT_LEAVES 16u

/** Rule by which the scores z of a row become gate values g. */
typedef enum bt_gating {
    BT_GATING_SOFTMAX, /**< g = softmax(z) over all experts */
    BT_GATING_SIGMOID, /**< g_e = 1 / (1 + exp(-z_e)) */
    /** g = z; the weights of the chosen experts are the softmax of their z */
    BT_GATING_CHOSEN,
} bt_gating_t;

/** Router of a mixture of experts, equal for all rows of a call. */
typedef struct bt_routing {
    uint32_t n_experts; /**< E, 1 .. BT_MAX_EXPERTS */
    uint32_t n_used;    /**< k, 1 .. BT_MAX_EXPERTS_USED, at most E */
    bt_gating_t gating;
    bool normed;       /**< weights are divided by their sum */
    float least;       /**< added to that sum */
    float scale;       /**< factor on the weights */
    const float *bias; /**< back end (E), added to g for the choice alone;
                            NULL: none */
} bt_routing_t;

/** Slot of a row at an expert of another rank. */
#define BT_NO_SLOT UINT32_MAX

/** Experts of the rows of a step, written by route(). All arrays are back-end
 *  memory of the caller. A rank has the experts of some adjacent leaves of the
 *  sum, its *own* ones; slots are numbered among those. */
typedef struct bt_expert_rows {
    uint32_t n_experts;
    uint32_t n_used;
    uint32_t first_leaf; /**< p, a multiple of n_leaves; the first own expert
                              is floor(p E / 16) */
    uint32_t n_leaves;   /**< a power of two; 0: all, BT_EXPERT_LEAVES */
    uint32_t *ids;       /**< (R, k): experts of each row, ascending */
    float *weights;      /**< (R, k): their weights */
    uint32_t *slots;     /**< (R, k): their slots; BT_NO_SLOT: not own */
    uint32_t *first;     /**< (own experts + 1): first slot of each own expert;
                              number of slots behind it, R k with all experts */
    uint32_t *rows;      /**< (R k): row of each slot */
} bt_expert_rows_t;

/** Returns how many leaves the own experts are. */
static inline uint32_t bt_expert_leaves(const bt_expert_rows_t *rows)
{
    return (rows->n_leaves == 0) ? BT_EXPERT_LEAVES : rows->n_leaves;
}

/** Returns the number of the first own expert. */
static inline uint32_t bt_own_experts_first(const bt_expert_rows_t *rows)
{
    return rows->first_leaf * rows->n_experts / BT_EXPERT_LEAVES;
}

/** Returns how many own experts there are; 0 only with fewer experts than
 *  ranks. */
static inline uint32_t bt_own_experts(const bt_expert_rows_t *rows)
{
    const uint32_t end = rows->first_leaf + bt_expert_leaves(rows);

    return end * rows->n_experts / BT_EXPERT_LEAVES -
           bt_own_experts_first(rows);
}

#endif
