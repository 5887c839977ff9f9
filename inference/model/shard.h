/* SPDX-License-Identifier: Apache-2.0 */
/** @file shard.h
 *
 * Part of a model that a rank holds. Tensor parallelism over T ranks:
 *
 *     KV heads    ⌊rH/T⌋ … ⌊(r+1)H/T⌋ − 1, with the query heads that read them
 *     queries, keys, values, gate, up      rows of their matrices
 *     output of attention, down            columns: the products are summed
 *     embedding, output                    rows: words
 *     norms, biases added after sums       replicated
 *     router of experts                    replicated
 *     shared expert                        as a feed-forward
 *
 * Expert parallelism: the ranks of a stage are M x E (moe_tp x moe_ep of
 * TensorRT-LLM), rank r being M-rank t = ⌊r/E⌋ and E-rank e = r mod E:
 *
 *     experts          those of leaves 16e/E … 16(e+1)/E − 1 of their sum
 *                      (bt_kernels_ops_t.combine)
 *     width of each    as of a feed-forward over M ranks
 *
 * so that of H = 3 heads two ranks have 1 and 2. Columns are cut at block
 * boundaries of the matrices' types.
 *
 * Pipeline parallelism over P stages of T ranks each (rank r of the instance is
 * r mod T of stage p = ⌊r/T⌋):
 *
 *     layers    ⌊pL/P⌋ … ⌊(p+1)L/P⌋ − 1
 *     embedding, learned positions         the first stage
 *     output, its norm                     the last one
 *
 * The products of columns are summed in *parts*, S of them, in the order of
 * coll_shm.h: cut as for S ranks, of which each of T has S / T. So S alone
 * determines the sums, to the last bit, and T only which rank computes them.
 * Products of an expert's width are so summed in parts of their own, S' of
 * them, of which a rank has t, M + t, 2M + t …, each with the experts of its
 * leaves: so an all-reduce adds for each i the parts iM … iM + M − 1, and
 * the rank adds those S'/M sums. S' alone determines them, for any M and E.
 *
 * Threads: pure functions.
 * Source: M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter
 *         Language Models Using Model Parallelism", 2019, section 3. D.
 *         Narayanan et al., "Efficient Large-Scale Language Model Training on
 *         GPU Clusters Using Megatron-LM", 2021, section 2.
 */
#ifndef BT_INFERENCE_MODEL_SHARD_H
#define BT_INFERENCE_MODEL_SHARD_H

#include "inference/model/model.h"

/** Range of n items from and including first. */
typedef struct bt_share {
    uint32_t first;
    uint32_t n;
} bt_share_t;

#define BT_MAX_SUM_PARTS 16u

/** Experts of a rank, and columns of each. */
typedef struct bt_expert_shard {
    uint32_t ep;         /**< E; 1: all experts */
    uint32_t first_leaf; /**< bt_expert_rows_t */
    uint32_t n_leaves;
    bt_share_t experts;
    uint32_t n_parts; /**< parts of this rank in which products are summed */
    bt_share_t part_dim[BT_MAX_SUM_PARTS]; /**< per part, range of an expert's
                                                width */
} bt_expert_shard_t;

typedef struct bt_shard {
    uint32_t rank; /**< rank within its stage */
    uint32_t size; /**< ranks of the stage; 1: this one has all of its layers */
    uint32_t stage;
    uint32_t n_stages;
    bt_share_t layers;                       /**< layers of the model in this
                                                  stage */
    uint32_t n_parts;                        /**< parts of this rank in which
                                                  products are summed */
    bt_share_t part_heads[BT_MAX_SUM_PARTS]; /**< per part, range of all
                                                  query heads */
    bt_share_t part_ffn[BT_MAX_SUM_PARTS];
    bt_share_t part_shared[BT_MAX_SUM_PARTS]; /**< per part, range of the
                                                   shared expert's width */
    bt_share_t kv_heads;
    bt_share_t heads;
    bt_share_t ffn;    /**< range of ffn_dim */
    bt_share_t shared; /**< range of the shared expert's width */
    bt_share_t words;
    bt_expert_shard_t experts; /**< all 0 in a model without experts */
} bt_shard_t;

/** Returns the share of rank r of size in n items that are divided in multiples
 *  of @a unit, which divides n. */
bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size);

static inline bool bt_shard_is_first(const bt_shard_t *shard)
{
    return shard->stage == 0;
}

static inline bool bt_shard_is_last(const bt_shard_t *shard)
{
    return shard->stage + 1 == shard->n_stages;
}

/** Number of ranks and stages of an instance, and which rank this is. */
typedef struct bt_shard_position {
    uint32_t rank; /**< rank within the instance */
    uint32_t size; /**< ranks of the instance, a multiple of n_stages */
    uint32_t n_stages;
    uint32_t ep; /**< E; 0 is 1 */
} bt_shard_position_t;

/** Parts in which sums of products are added, and the blocks of columns that
 *  are not cut. */
typedef struct bt_shard_sums {
    uint32_t parts;        /**< S; 0: as many as ranks of a stage */
    uint32_t expert_parts; /**< S'; 0: as many as ranks of an expert, M */
    /** Columns in one block of the second matrix of a feed-forward, of an
     *  expert (and a multiple of 32), of the shared expert: each divides its
     *  width. */
    uint32_t ffn_unit;
    uint32_t expert_unit;
    uint32_t shared_unit;
} bt_shard_sums_t;

/**
 * Computes the shard of a rank.
 *
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  more parts than KV heads, or than there are
 *         units; parts that cannot be divided among the ranks; more stages than
 *         layers; E > 1 without experts, or more than there are
 * @retval BT_ERR_INVALID_PARAM  ranks that are no whole number of stages, or of
 *         E, which is a power of two
 */
BT_MUST_CHECK bt_status_t bt_shard_of(const bt_hparams_t *hp,
                                      const bt_shard_sums_t *sums,
                                      const bt_shard_position_t *position,
                                      char *why, size_t why_bytes,
                                      bt_shard_t *shard_p);

/** Returns the hyperparameters of the shard: the model's, less heads,
 *  feed-forward, words and layers of other ranks; layers are counted from 0. */
bt_hparams_t bt_shard_hparams(const bt_hparams_t *hp, const bt_shard_t *shard);

#endif
