/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_microbatch.h
 *
 * In which lots sequences go through the stages of a model, so that no stage
 * waits for the one token of a sequence that another one is at:
 *
 *     stage 0   A1 │ B1 │ A2 │ B2 │ A3 │
 *     stage 1      │ A1 │ B1 │ A2 │ B2 │ …
 *
 * A sequence is in one lot at a time, and in the next one when its token is
 * drawn. A lot costs a reading of the weights, whatever its rows: there are as
 * many lots as stages, where each has rows for that, and else fewer.
 *
 * Threads: pure.
 * Source:  Huang et al., "GPipe", NeurIPS 2019 (micro-batches); Agrawal et al.,
 *          "Sarathi-Serve", OSDI 2024 (bubbles of unequal ones).
 */
#ifndef BT_COMMON_SCHED_LOTS_H
#define BT_COMMON_SCHED_LOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_plan.h"

/** What there is to compute, of sequences that are under way too. */
typedef struct bt_sched_ready {
    uint32_t n_generating; /**< sequences */
    uint32_t n_rows;       /**< theirs, and of chunks that are next */
} bt_sched_ready_t;

typedef struct bt_sched_microbatches {
    uint32_t n;            /**< lots that may be under way at a time */
    uint32_t n_generating; /**< of one, at most; at least 1 */
} bt_sched_microbatches_t;

/** @param [in] n_stages   at least 1
 *  @param [in] least_rows that a lot is worth beginning for; at least 1 */
bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows);

/** Is it time for another lot, where so many are under way and so many rows
 *  would be in it? Few rows wait for those of the lot that ends next. */
bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *lots,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows);

/**
 * Cut a plan to a lot's sequences that generate. Those that are cut off stand
 * behind what is left, in their order: they are in a later plan.
 *
 * @param [in,out] items  Of bt_sched_plan(), n_items of them.
 * @return how many are left
 */
uint32_t bt_sched_microbatch_cut(bt_sched_item_t *items, uint32_t n_items,
                                 uint32_t n_generating);

#endif
