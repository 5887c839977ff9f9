/* SPDX-License-Identifier: Apache-2.0 */
/** @file shard.h
 *
 * Which part of a model a rank of T has (tensor parallelism):
 *
 *     KV heads    ⌊rH/T⌋ … ⌊(r+1)H/T⌋ − 1, with the query heads that read them
 *     queries, keys, values, gate, up      rows of their matrices
 *     output of attention, down            columns: the products are summed
 *     embedding, output                    rows: words
 *     norms, what is added after sums      all of it
 *
 * so that of H = 3 heads two ranks have 1 and 2. Columns are cut where blocks
 * of the matrices' types end.
 *
 * The products of columns are summed in *parts*, S of them, in the order of
 * coll_tree.h: cut as for S ranks, of which each of T has S / T. So S says what
 * the sums are, to the last bit, and T only who computes them.
 *
 * Threads: pure functions.
 * Source: M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter
 *         Language Models Using Model Parallelism", 2019, section 3.
 */
#ifndef BT_INFERENCE_MODEL_SHARD_H
#define BT_INFERENCE_MODEL_SHARD_H

#include "inference/model/model.h"

/** From and including first, n of them. */
typedef struct bt_share {
    uint32_t first;
    uint32_t n;
} bt_share_t;

#define BT_MAX_SUM_PARTS 16u

typedef struct bt_shard {
    uint32_t rank;
    uint32_t size;                           /**< 1: all of it */
    uint32_t n_parts;                        /**< of its products of columns */
    bt_share_t part_heads[BT_MAX_SUM_PARTS]; /**< of all query heads */
    bt_share_t part_ffn[BT_MAX_SUM_PARTS];
    bt_share_t kv_heads;
    bt_share_t heads;
    bt_share_t ffn; /**< of ffn_dim */
    bt_share_t words;
} bt_shard_t;

/** Share of rank r of size in n things that are taken by @a unit, which divides
 *  n. */
bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size);

/**
 * @param [in]  sum_parts  S; 0: as many as ranks.
 * @param [in]  ffn_unit  Columns of the feed-forward's second matrix in one
 *                        block; divides ffn_dim.
 * @param [out] why       On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  more parts than KV heads, or than there are
 *                             units; parts that so many ranks cannot have
 */
BT_MUST_CHECK bt_status_t bt_shard_of(const bt_hparams_t *hp,
                                      uint32_t sum_parts, uint32_t ffn_unit,
                                      uint32_t rank, uint32_t size, char *why,
                                      size_t why_bytes, bt_shard_t *shard_p);

/** What the rank computes with: the model's, less heads, feed-forward and
 *  words. */
bt_hparams_t bt_shard_hparams(const bt_hparams_t *hp, const bt_shard_t *shard);

#endif
