/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_microbatch.h
 *
 * Splits sequences into microbatches for pipeline parallelism, so that no stage
 * idles while a token is still in another stage:
 *
 *     stage 0   A1 │ B1 │ A2 │ B2 │ A3 │
 *     stage 1      │ A1 │ B1 │ A2 │ B2 │ …
 *
 * A sequence is in one microbatch at a time, and in the next one once its token
 * is sampled. A microbatch costs a read of the weights, whatever its number of
 * rows: there are as many microbatches as stages if each has enough rows for
 * that, and otherwise fewer.
 *
 * Threads: pure.
 * Source:  Huang et al., "GPipe", NeurIPS 2019 (micro-batches); Agrawal et al.,
 *          "Sarathi-Serve", OSDI 2024 (bubbles of unequal ones).
 */
#ifndef BT_COMMON_SCHED_MICROBATCH_H
#define BT_COMMON_SCHED_MICROBATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_plan.h"

/** Work to compute, of in-flight sequences too. */
typedef struct bt_sched_ready {
    uint32_t n_generating; /**< generating sequences */
    uint32_t n_rows;       /**< rows of those and of the next chunks */
} bt_sched_ready_t;

/** Number and size of microbatches. */
typedef struct bt_sched_microbatches {
    uint32_t n;            /**< most microbatches in flight */
    uint32_t n_generating; /**< most generating sequences of one microbatch;
                                at least 1 */
} bt_sched_microbatches_t;

/**
 * Returns how to split the work.
 * @param [in] n_stages    at least 1
 * @param [in] least_rows  smallest number of rows worth a microbatch; at least
 *     1
 */
bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows);

/** True when another microbatch of @a n_rows rows should begin while @a
 *  n_under_way are in flight. A few rows wait for those of the next
 *  microbatch that ends. */
bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *lots,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows);

/**
 * Cuts a plan to the generating sequences of one microbatch. Items that are cut
 * off are moved behind what is left, in their order, for a later plan.
 *
 * @param [in,out] items  Of bt_sched_plan(), n_items of them.
 * @return number of items left
 */
uint32_t bt_sched_microbatch_cut(bt_sched_item_t *items, uint32_t n_items,
                                 uint32_t n_generating);

#endif
