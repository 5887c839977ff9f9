/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_midstep_join.h
 *
 * May a sequence whose KV has just come enter the iteration that is under way?
 * It is then computed alone through the layers that are done, and from there on
 * with the others, so that its next token does not wait for two ends of
 * iterations:
 *
 *     layers   0 ────────────▶ l ────────────────▶ L
 *     others   ████████████████┊    wait   ┊███████
 *     late                     ┊0 ──▶ l    ┊███████   a token for all
 *
 * What it costs is a pass of few rows through l layers, for which the others
 * wait. So it comes in only while much of the iteration is left, and such
 * passes take no more than a sixteenth of what iterations take: of two whole
 * ones at most in a row.
 *
 * Threads: pure; one thread owns it.
 */
#ifndef BT_COMMON_SCHED_LATE_H
#define BT_COMMON_SCHED_LATE_H

#include <stdbool.h>
#include <stdint.h>

/** Of the layers computed, one in so many may be for late ones. */
#define BT_SCHED_MIDSTEP_JOIN_SHARE 16u

typedef struct bt_sched_midstep_join {
    uint32_t n_layers; /**< of the model */
    uint32_t credit;   /**< in layers / BT_SCHED_MIDSTEP_JOIN_SHARE */
} bt_sched_midstep_join_t;

/** @param [in] n_layers  of the model, below 2^24 */
void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers);
/** An iteration begins. */
void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late);
/** May somebody come in when so many layers are done? */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done);
/** They do, one or several together. */
void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late,
                                 uint32_t n_done);

#endif
