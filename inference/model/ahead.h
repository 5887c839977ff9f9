/* SPDX-License-Identifier: Apache-2.0 */
/** @file ahead.h
 *
 * Overlapped calls: a call begins while the device executes the previous one,
 * and takes tokens that the host does not know yet; within this folder.
 *
 *     host      start A ─ start B ─ finish A ─ start C ─ finish B …
 *     device            A ─────────────▶ B ─────────────▶ C
 *                       │ ids ──▶ B's tokens, where B wants them
 *                       └ ids ──▶ the host (returns.h)
 *
 * Where a call needs only ids, drawn or the best of each row, nothing else is
 * copied to the host, and the next call can begin behind it. A call whose
 * logits or scores are needed has to be finished first: the next one overwrites
 * them.
 */
#ifndef BT_INFERENCE_MODEL_AHEAD_H
#define BT_INFERENCE_MODEL_AHEAD_H

#include <stdbool.h>

#include "inference/model/model.h"
#include "kernels/kernels.h"

#define BT_AHEAD_MAX 2u /**< most calls that are started, and not finished */

typedef struct bt_ahead {
    bt_returns_t returns; /**< one slot per call; user NULL: no overlap */
    uint32_t first, n;    /**< started calls, from the oldest on */
    bool only_ids[BT_AHEAD_MAX];
    uint32_t n_ids[BT_AHEAD_MAX];
    const uint32_t *ids; /**< back end: ids of the call that was started last */
} bt_ahead_t;

/** Returns the host memory in bytes that bt_ahead_open() takes on this back
 *  end. */
size_t bt_ahead_bytes(const bt_backend_t *be, const bt_model_config_t *config);
/** Prepares overlapped calls where the model's back end supports them
 *  (bt_model_chains()), else does nothing.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_ahead_open(bt_model_t *model);
void bt_ahead_close(bt_model_t *model);

/** True when this call may begin behind the started ones. */
bool bt_ahead_fits(const bt_model_t *model, const bt_forward_t *fwd);

/** Starts a call: bt_model_start() of a model that chains. bt_ahead_finish() is
 *  its bt_model_finish(). */
BT_MUST_CHECK bt_status_t bt_ahead_start(bt_model_t *model,
                                         const bt_forward_t *fwd);
BT_MUST_CHECK bt_status_t bt_ahead_finish(bt_model_t *model,
                                          const bt_forward_t *fwd);

/*
 * Splits a batch into microbatches for pipeline parallelism: while one is in a
 * stage the next one is in the stage before it.
 *
 *     batch    [ sequence 0: rows 0 … 9 ][ 1 ][ 2 ][ 3: rows 12 … 19 ]
 *     micro    [ 0: 0 … 6 ][ 0: 7 … 9, 1, 2, 3: 12, 13 ][ 3: 14 … 19 ]
 *
 * Rows keep their order, so that the rows of a sequence find K and V of all
 * earlier ones; as no row's result depends on the rows beside it, none depends
 * on where the batch is split.
 *
 * Threads: pure functions.
 * Source: Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks
 *         using Pipeline Parallelism", 2019, section 2.
 */

/** Fewest rows for which a microbatch is worth reading the weights once more:
 *  up to some 16 rows a product is bound by reading its weights. */
#define BT_MICRO_ROWS 16u

/** Returns @a min_rows, or the default for 0. */
static inline uint32_t bt_micro_least(uint32_t min_rows)
{
    return (min_rows != 0) ? min_rows : BT_MICRO_ROWS;
}

typedef struct bt_micro {
    const bt_batch_t *whole; /**< borrowed; logit_rows ascend */
    uint32_t n;              /**< number of microbatches */
    uint32_t next;           /**< index of the next microbatch */
    uint32_t seq;            /**< sequence of the batch that has the next row */
    uint32_t first_logit;    /**< first entry of logit_rows in the latest
                                  microbatch */
    uint32_t end_logit;
    bt_ragged_seq_t *seqs; /**< scratch, capacity of the batch's sequences */
    uint32_t *logit_rows;  /**< scratch, capacity of the batch's logit rows */
} bt_micro_t;

/** Returns the number of microbatches of @a min_rows or more (0:
 *  BT_MICRO_ROWS): two for each stage, where there are enough rows. */
uint32_t bt_micro_count(uint32_t n_rows, uint32_t n_stages, uint32_t min_rows);

/** Makes the next microbatch; its arrays are valid until the next call.
 *  @return false: there are no more */
bool bt_micro_next(bt_micro_t *micro, bt_batch_t *batch_p);

#endif
