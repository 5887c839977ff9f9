/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_route.h
 *
 * Routes of KV transfers between two instances of one model that may be split
 * over different numbers of ranks, in three parts:
 *
 *     plan    which bytes of a block one rank sends to another rank
 *     walk    the plan of one pair of ranks, applied to many blocks
 *     route   with which remote ranks one rank exchanges KV
 */
#ifndef BT_COMMON_KV_KV_ROUTE_H
#define BT_COMMON_KV_KV_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/*
 * Plan: which bytes move from a block of a source rank to a block of a
 * destination rank. An instance splits its model into pp pipeline stages of
 * layers and tp tensor-parallel slices of KV heads; the two instances may split
 * it differently. For L layers and H KV heads:
 *
 *     rank r of tp x pp:  stage r / tp, slice r % tp
 *     stage s             layers floor(sL/pp) .. floor((s+1)L/pp) - 1
 *     slice t             KV heads floor(tH/tp) .. floor((t+1)H/tp) - 1
 *
 * The block of a rank holds only the rank's layers and heads (kv_groups.h):
 * first all elements, then all scales:
 *
 *     elem[layer][kv][head][slots and dims]  scale[layer][kv][head][slot]
 *
 * All blocks of a rank have one layout, so one *plan* for one block serves
 * every block of a pair of ranks. Example: layers 0 and 1, heads 0 to 3, from
 * rank 0 of 1 to rank 1 of 2, which holds heads 2 and 3; a head of one layer
 * has h bytes of keys and h of values; 0k are the keys of layer 0:
 *
 *     source        | 0k: 0 1 2 3 | 0v: 0 1 2 3 | 1k: 0 1 2 3 | 1v: 0 1 2 3 |
 *     destination   | 0k: 2 3 | 0v: 2 3 | 1k: 2 3 | 1v: 2 3 |
 *     moves         2h bytes from 2h to 0, from 6h to 2h, from 10h to 4h, from
 *                   14h to 6h
 *
 * The plans of all source ranks to one destination rank cover its block exactly
 * once. The receive region of one sender lists, block after block, the
 * destination ranges of the plan; the sender posts the source ranges in this
 * order.
 *
 * Threads: pure functions.
 */

/** How an instance splits its model over ranks. Both at least 1. */
typedef struct bt_kv_split {
    uint32_t tp; /**< tensor parallelism: slices of KV heads */
    uint32_t pp; /**< pipeline parallelism: stages of layers */
} bt_kv_split_t;

/** Part of a model that one rank holds: some layers, some KV heads. */
typedef struct bt_kv_part {
    uint32_t first_layer, n_layers;
    uint32_t first_head, n_heads; /**< KV heads */
} bt_kv_part_t;

/** Range of bytes of a plan, contiguous in the source and destination block. */
typedef struct bt_kv_move {
    uint64_t start; /**< sum of the bytes of the moves before this one: offset
                         in the part of the receive region for one block */
    uint64_t src;   /**< offset in the source rank's block, bytes */
    uint64_t dst;   /**< offset in the destination rank's block, bytes */
    uint64_t bytes; /**< length, at least 1 */
} bt_kv_move_t;

/** Plan of one pair of ranks: the moves for one block. */
typedef struct bt_kv_reshard {
    bt_kv_move_t *moves; /**< owned; in ascending order of dst, so layer by
                              layer; NULL when there are none */
    uint32_t n_moves;
    uint64_t bytes;           /**< sum over all moves */
    uint64_t src_block_bytes; /**< size of a block of the source rank */
    uint64_t dst_block_bytes; /**< size of a block of the destination rank */
} bt_kv_reshard_t;

/**
 * Computes the layers and KV heads that one rank holds.
 *
 * @param [in]  whole   Shape with all layers and KV heads of the model.
 * @param [in]  rank    Number of the rank, below tp * pp.
 * @param [out] part_p  Never empty. Written only on success.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  tp or pp is 0; tp exceeds the KV heads; pp
 *                               exceeds the layers; or there is no such rank
 */
BT_MUST_CHECK bt_status_t bt_kv_part_of(const bt_kv_shape_t *whole,
                                        const bt_kv_split_t *split,
                                        uint32_t rank, bt_kv_part_t *part_p);

/**
 * Plans the moves of the layers and heads that @a src and @a dst have in
 * common. Cost O(layers).
 *
 * Moves that are adjacent in both blocks are merged: equal parts need a single
 * move; parts with equal heads and different layers need one, and one more for
 * the scales.
 *
 * @param [in]  whole   Shape with all layers and KV heads of the model.
 * @param [out] plan_p  Owned by the caller; free with bt_kv_reshard_fini().
 *                      Has no moves when the parts have nothing in common.
 *                      Written only on success.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  a bad shape, or a part that is empty or outside
 *                               the model
 * @retval BT_ERR_OVERFLOW       The size of a block exceeds SIZE_MAX.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_reshard_plan(const bt_kv_shape_t *whole,
                                             const bt_kv_part_t *src,
                                             const bt_kv_part_t *dst,
                                             bt_kv_reshard_t *plan_p);
void bt_kv_reshard_fini(bt_kv_reshard_t *plan);

/** Range of a receive region that is contiguous in the pool of one end: one
 *  post of a sender, or one extent of a receiver. */
typedef struct bt_kv_piece {
    uint64_t region; /**< offset in the receive region, bytes */
    uint64_t pool;   /**< offset in the pool of the walked end, bytes */
    uint64_t bytes;
} bt_kv_piece_t;

/** End of a KV transfer. */
typedef enum bt_kv_end {
    BT_KV_SRC, /**< sender: a walk gives the pieces to post */
    BT_KV_DST, /**< receiver: a walk gives the extents of the region */
} bt_kv_end_t;

/** Iterator over the pieces of a receive region; see bt_kv_walk_begin(). */
typedef struct bt_kv_walk {
    const bt_kv_reshard_t *plan; /**< borrowed */
    const uint32_t *ids;         /**< block ids; borrowed */
    bt_kv_end_t end;
    uint32_t block, n_blocks; /**< next block, and end of the blocks */
    uint32_t move;            /**< next move of that block */
    uint64_t begin, until; /**< range of each source block to include, bytes */
    uint32_t step;         /**< block i is ids[i * step] */
    uint64_t page_bytes;   /**< distance between blocks of the pool, bytes */
    uint64_t base;         /**< offset in the receive region of block 0,
                                bytes */
} bt_kv_walk_t;

/**
 * Begins a walk through the pieces of a receive region that belong to the
 * blocks [first, n) of @a ids.
 *
 *     bt_kv_walk_t walk = bt_kv_walk_begin(&plan, BT_KV_SRC, ids, 0, n);
 *     while (bt_kv_walk_next(&walk, &piece)) {
 *         bt_kvt_post(xfer, pool + piece.pool, piece.region, piece.bytes);
 *     }
 *
 * @param [in] plan  Plan of this pair of ranks; outlives the walk.
 * @param [in] end   End whose pool is walked.
 * @param [in] ids   [n] block ids of that pool, in the order of the region:
 *                   block i of the sender becomes block i of the receiver.
 *                   Outlive the walk.
 */
static inline bt_kv_walk_t bt_kv_walk_begin(const bt_kv_reshard_t *plan,
                                            bt_kv_end_t end,
                                            const uint32_t *ids, uint32_t first,
                                            uint32_t n)
{
    const bt_kv_walk_t walk = {.plan = plan,
                               .ids = ids,
                               .end = end,
                               .block = first,
                               .n_blocks = n,
                               .until = plan->src_block_bytes,
                               .step = 1,
                               .page_bytes = (end == BT_KV_SRC)
                                                 ? plan->src_block_bytes
                                                 : plan->dst_block_bytes};

    return walk;
}

/** Restricts a walk to the bytes [begin, until) of each source block, such as
 *  the layers that are computed. Call before the first step. */
static inline void bt_kv_walk_clip(bt_kv_walk_t *walk, uint64_t begin,
                                   uint64_t until)
{
    walk->begin = begin;
    walk->until = until;
}

/**
 * Adapts a walk to one of several layer groups, which share block table, pages
 * and receive region (kv_groups.h). Call before the first step.
 * @param [in] step        block i is ids[i * step]
 * @param [in] page_bytes  page size of the walked pool; at least the group's
 *                         block
 * @param [in] base        offset in the receive region of the group's first
 *                         block, bytes
 */
static inline void bt_kv_walk_among(bt_kv_walk_t *walk, uint32_t step,
                                    uint64_t page_bytes, uint64_t base)
{
    walk->step = step;
    walk->page_bytes = page_bytes;
    walk->base = base;
}

/**
 * Returns the next piece of a walk. A piece is as long as possible: neighbours
 * in the pool are merged, across moves and blocks, if the plan includes every
 * byte between them.
 *
 * @return false at the end of the walk; at once when the plan has no moves.
 *     There are at most (n - first) * n_moves pieces, in the order of the
 *     region, and without gaps in it unless bt_kv_walk_clip() was called.
 */
bool bt_kv_walk_next(bt_kv_walk_t *walk, bt_kv_piece_t *piece_p);

/*
 * Route: with which ranks of another instance one rank exchanges KV. A *pair*
 * pairs the rank with a remote rank that has layers and heads in common with
 * it, and has the plan of what moves between the two.
 *
 *     this rank, 1 x 1      rank 0 ── heads 0, 1 ──▶ rank 0 of 2 x 1
 *     (BT_KV_SRC)              └───── heads 2, 3 ──▶ rank 1
 *
 * A transfer of a sequence uses, for each pair, one receive region in the
 * receiver's pool and one kvt transfer into it. Between two instances of one
 * rank each there is one pair, and the plan of a group is a single move: a
 * whole block.
 *
 * For a sequence of n tokens of which the receiver has the first spans, a pair
 * moves the spans that each group needs (kv_groups.h), group after group:
 *
 *     region   [ group 0: spans 2 … 7 ][ group 1, windowed: spans 5 … 7 ]
 *
 * Both ends know the groups, n and the cached spans, so both compute one layout
 * without exchanging it.
 *
 * worker/transfer.h and worker/rank_transfer.h carry the pairs of all ranks
 * out; only rank 0 of an instance talks to routers
 * (docs/adr/0007-ranks-in-the-protocol.md).
 *
 * Threads: pure functions.
 */

/** Pair of this rank and one rank of the other instance. */
typedef struct bt_kv_rank_pair {
    uint32_t rank;                          /**< rank of the other instance */
    bt_kv_reshard_t plan[BT_KV_MAX_GROUPS]; /**< plan of each layer group */
    uint64_t src_page_bytes,
        dst_page_bytes; /**< page sizes of the pools of both ranks */
} bt_kv_rank_pair_t;

/** All pairs of one rank with another instance. */
typedef struct bt_kv_route {
    uint32_t n_pairs; /**< at least 1 */
    bt_kv_rank_pair_t
        *pairs; /**< owned; in ascending order of the remote rank */
} bt_kv_route_t;

/**
 * Plans the pairs of one rank. Cost O(layers x ranks of the other instance).
 *
 * @param [in]  groups   Layer groups of the whole model.
 * @param [in]  end      Whether this rank sends or receives.
 * @param [in]  mine     How this rank's instance splits the model.
 * @param [in]  rank     Number of this rank, below tp * pp of @a mine.
 * @param [in]  theirs   How the other instance splits the model.
 * @param [out] route_p  Owned by the caller; free with bt_kv_route_fini().
 *                       Written only on success.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  a split that the model does not allow: more
 *                               slices than KV heads, or more stages than
 *                               layers
 * @retval BT_ERR_UNSUPPORTED    tp above 1 for a model with a STATE group
 * @retval BT_ERR_OVERFLOW       The size of a block exceeds SIZE_MAX.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_kv_route_make(
    const bt_kv_groups_t *groups, bt_kv_end_t end, const bt_kv_split_t *mine,
    uint32_t rank, const bt_kv_split_t *theirs, bt_kv_route_t *route_p);
void bt_kv_route_fini(bt_kv_route_t *route);

/** Transfer of the KV of one sequence through one pair. */
typedef struct bt_kv_handover {
    const bt_kv_groups_t *groups;  /**< groups of the whole model; borrowed */
    const bt_kv_rank_pair_t *pair; /**< borrowed */
    uint32_t n_tokens;             /**< tokens that have K and V */
    uint32_t n_cached; /**< leading spans that the receiver has in all groups */
} bt_kv_handover_t;

/** Returns the size in bytes of the receive region of a transfer. */
uint64_t bt_kv_handover_bytes(const bt_kv_handover_t *handover);

/**
 * Begins a walk through one group's part of the receive region, limited to the
 * spans [first, until). Spans that the transfer does not move are left out.
 *
 * @param [in] end    End whose pool and block table are walked.
 * @param [in] table  Block table of the sequence at that end, from span 0 on;
 *                    outlives the walk.
 */
bt_kv_walk_t bt_kv_handover_walk(const bt_kv_handover_t *handover,
                                 uint32_t group, bt_kv_end_t end,
                                 const uint32_t *table, uint32_t first,
                                 uint32_t until);

#endif
