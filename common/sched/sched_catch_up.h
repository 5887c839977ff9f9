/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_catch_up.h
 *
 * Catch-up of a draft model with a KV cache of its own: how many rows of known
 * tokens it computes in an iteration, so that sequences that lag may have
 * drafts. These rows are work for later iterations and delay everyone in this
 * one, so they are bounded:
 *
 *     at once     by half the time of an iteration, or by
 *                 BT_SCHED_CATCH_UP_LEAST rows, fewer of which would cost
 *                 nearly as much; and by BT_SCHED_CATCH_UP_ROWS
 *     by others   no ITL target is missed by it. Where sequences wait that gain
 *                 nothing by it, the part is a twentieth of the time of all
 *                 iterations so far: each gives credit, and nothing is begun
 *                 that the credit does not suffice to complete, since answers
 *                 may end before
 *
 * Decides times and never tokens (I1).
 *
 * Threads: pure; the holder owns the state.
 */
#ifndef BT_COMMON_SCHED_SCHED_CATCH_UP_H
#define BT_COMMON_SCHED_SCHED_CATCH_UP_H

#include <stdbool.h>
#include <stdint.h>

/** Most rows of an iteration. */
#define BT_SCHED_CATCH_UP_ROWS 128u
/** Rows that are worth a call of the model. */
#define BT_SCHED_CATCH_UP_LEAST 16u

/** Cost and credit. All zero at first. */
typedef struct bt_sched_catch_up {
    double row_us;    /**< learned time of a row; 0: not measured */
    double credit_us; /**< time that may be spent */
    uint32_t n_calls; /**< learned from so far, saturating */
} bt_sched_catch_up_t;

/** Iteration in which a draft model may catch up. */
typedef struct bt_sched_catch_up_step {
    double alone_us; /**< expected time of the iteration */
    double most_us;  /**< longest time allowed, unless it takes longer already;
                          0: no bound */
    bool delays_others; /**< sequences that gain nothing by it wait */
} bt_sched_catch_up_step_t;

/**
 * Gains an iteration's credit, and decides how many rows are computed in it.
 * @param [in] n_missing  rows that are wanted; where others are delayed, of one
 *         sequence; 0: only gain credit
 * @return at most n_missing and BT_SCHED_CATCH_UP_ROWS
 */
uint32_t bt_sched_catch_up_rows(bt_sched_catch_up_t *state,
                                const bt_sched_catch_up_step_t *step,
                                uint32_t n_missing);
/** Learns that rows were computed in so much time, and spends the credit. */
void bt_sched_catch_up_learn(bt_sched_catch_up_t *state, uint32_t n_rows,
                             double us);

/**
 * Returns whether a sequence is expected to gain more by drafts than its
 * missing rows cost.
 * @param [in] token_us  time that a token of it takes without drafts
 * @param [in] n_left    tokens that it may still generate
 */
bool bt_sched_catch_up_pays(const bt_sched_catch_up_t *state, double token_us,
                            uint32_t n_missing, uint32_t n_left);

#endif
