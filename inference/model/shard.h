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

typedef struct bt_shard {
    uint32_t rank;
    uint32_t size; /**< 1: all of it */
    bt_share_t kv_heads;
    bt_share_t heads;
    bt_share_t ffn; /**< of ffn_dim */
    bt_share_t words;
} bt_shard_t;

/** Share of rank r of size in n things that are taken by @a unit, which divides
 *  n. */
bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size);

/**
 * @param [in]  ffn_unit  Columns of the feed-forward's second matrix in one
 *                        block; divides ffn_dim.
 * @param [out] why       On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  more ranks than KV heads, or than there are units
 */
BT_MUST_CHECK bt_status_t bt_shard_of(const bt_hparams_t *hp, uint32_t ffn_unit,
                                      uint32_t rank, uint32_t size, char *why,
                                      size_t why_bytes, bt_shard_t *shard_p);

/** What the rank computes with: the model's, less heads, feed-forward and
 *  words. */
bt_hparams_t bt_shard_hparams(const bt_hparams_t *hp, const bt_shard_t *shard);

#endif
