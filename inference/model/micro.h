/* SPDX-License-Identifier: Apache-2.0 */
/** @file micro.h
 *
 * A batch cut into micro-batches for a pipeline of stages: while one is in a
 * stage the next one is in the stage before it.
 *
 *     batch    [ sequence 0: rows 0 … 9 ][ 1 ][ 2 ][ 3: rows 12 … 19 ]
 *     micro    [ 0: 0 … 6 ][ 0: 7 … 9, 1, 2, 3: 12, 13 ][ 3: 14 … 19 ]
 *
 * Rows keep their order, so that those of a sequence find K and V of all before
 * them; as no row's result depends on the rows beside it, none depends on where
 * the batch is cut.
 *
 * Threads: pure functions.
 * Source: Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks
 *         using Pipeline Parallelism", 2019, section 2.
 */
#ifndef BT_INFERENCE_MODEL_MICRO_H
#define BT_INFERENCE_MODEL_MICRO_H

#include <stdbool.h>

#include "kernels/kernels.h"

/** Rows below which a micro-batch is not worth its weights being read once
 *  more: up to some 16 rows it is their bytes that a product waits for. */
#define BT_MICRO_ROWS 16u

/** What 0 stands for. */
static inline uint32_t bt_micro_least(uint32_t min_rows)
{
    return (min_rows != 0) ? min_rows : BT_MICRO_ROWS;
}

typedef struct bt_micro {
    const bt_batch_t *whole; /**< borrowed; logit_rows ascend */
    uint32_t n;              /**< micro-batches */
    uint32_t next;           /**< of them */
    uint32_t seq;            /**< of the batch, with the next row */
    uint32_t first_logit;    /**< of the latest micro-batch, in logit_rows */
    uint32_t end_logit;
    bt_ragged_seq_t *seqs; /**< scratch, as many as the batch's */
    uint32_t *logit_rows;  /**< likewise */
} bt_micro_t;

/** How many micro-batches of @a min_rows or more (0: BT_MICRO_ROWS): two for
 *  each stage, where there are so many rows. */
uint32_t bt_micro_count(uint32_t n_rows, uint32_t n_stages, uint32_t min_rows);

/** The next one; its arrays are good until the next call.
 *  @return false: all were there */
bool bt_micro_next(bt_micro_t *micro, bt_batch_t *batch_p);

#endif
