/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_midstep_join.h
 *
 * Decides whether a sequence whose KV has just arrived may join the iteration
 * in flight. The sequence is then computed alone through the layers that are
 * done, and from there on with the others, so that its next token does not wait
 * for the end of two iterations:
 *
 *     layers   0 ────────────▶ l ────────────────▶ L
 *     others   ████████████████┊    wait   ┊███████
 *     joining                  ┊0 ──▶ l    ┊███████   a token for all
 *
 * The cost is a pass of few rows through l layers, for which the others wait.
 * So a sequence joins only while much of the iteration is left, and such passes
 * take at most a sixteenth of the time of iterations: at most two whole passes
 * in a row.
 *
 * Threads: pure; one thread owns it.
 */
#ifndef BT_COMMON_SCHED_MIDSTEP_JOIN_H
#define BT_COMMON_SCHED_MIDSTEP_JOIN_H

#include <stdbool.h>
#include <stdint.h>

/** Layers computed for each layer that may be spent on joining sequences. */
#define BT_SCHED_MIDSTEP_JOIN_SHARE 16u

/** Budget of mid-iteration joins. */
typedef struct bt_sched_midstep_join {
    uint32_t n_layers; /**< layers of the model */
    uint32_t credit;   /**< in layers / BT_SCHED_MIDSTEP_JOIN_SHARE */
} bt_sched_midstep_join_t;

/**
 * Initialises a full budget.
 * @param [in] n_layers  of the model, below 2^24
 */
void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers);
/** Adds an iteration's layers to the budget. Call when an iteration begins. */
void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late);
/** True when sequences may join after @a n_done layers. */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done);
/** Spends the budget of one join, of one or several sequences. */
void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late,
                                 uint32_t n_done);

#endif
