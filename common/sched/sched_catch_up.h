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

#include "common/sched/sched_draft.h"

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

/** Sequence that the draft model would draft for. */
typedef struct bt_sched_lag {
    uint32_t n_missing; /**< rows that it lacks; 0: it does not lag, or is left
                             out */
    uint32_t n_left;    /**< tokens that it may still generate */
} bt_sched_lag_t;

/** Iteration in which a draft model may catch up. */
typedef struct bt_sched_catch_up_step {
    double alone_us;  /**< expected time of the iteration */
    double drafts_us; /**< time that drafts add which are taken */
    double most_us;   /**< longest time allowed, unless it takes longer already;
                           0: no bound */
    uint32_t n_seqs;  /**< generating sequences, at least 1 */
    bool others_wait; /**< some sequences gain nothing by it, or a chunk */
} bt_sched_catch_up_step_t;

/** Rows of an iteration that are computed to catch up. */
typedef struct bt_sched_catch_up_plan {
    uint32_t n_rows; /**< most rows, of all sequences */
    bool is_one; /**< only the sequence that lacks the fewest; false: all, in
                      their order */
} bt_sched_catch_up_plan_t;

/**
 * Gains an iteration's credit, and decides what is computed in it.
 *
 * Leaves out sequences that are not expected to gain more by drafts than their
 * rows cost, but where rounds are to be tried.
 *
 * @param [in]     rounds  state after bt_sched_rounds_begin()
 * @param [in,out] lags    [n] sequences; those left out lack 0 rows afterwards
 * @return n_rows is at most BT_SCHED_CATCH_UP_ROWS and what is lacking
 */
bt_sched_catch_up_plan_t bt_sched_catch_up_plan(
    bt_sched_catch_up_t *state, const bt_sched_rounds_t *rounds,
    const bt_sched_catch_up_step_t *step, bt_sched_lag_t *lags, uint32_t n);
/** Returns the next sequence of a plan, n: there is none. Set its n_missing to
 * 0 when it has had its turn. */
uint32_t bt_sched_catch_up_next(const bt_sched_catch_up_plan_t *plan,
                                const bt_sched_lag_t *lags, uint32_t n);
/** Learns that rows were computed in so much time, and spends the credit. */
void bt_sched_catch_up_learn(bt_sched_catch_up_t *state, uint32_t n_rows,
                             double us);

#endif
