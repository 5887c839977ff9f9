/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_route.h
 *
 * KV transfers between instances: which ranks send to which, and the byte
 * ranges of each.
 */
#ifndef BT_COMMON_KV_KV_ROUTE_H
#define BT_COMMON_KV_KV_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/*
 * Plans which bytes go where when the two ends of a KV transfer split one model
 * differently: tp slices of heads, pp stages of layers.
 *
 *     rank r of tp x pp:  stage r / tp, slice r % tp
 *     stage s             layers floor(sL/pp) .. floor((s+1)L/pp) - 1
 *     slice t             KV heads floor(tH/tp) .. floor((t+1)H/tp) - 1
 *
 * A rank's block holds only its part (kv_groups.h), followed by its scales:
 *
 *     elem[layer][kv][head][slots and dims]  scale[layer][kv][head][slot]
 *
 * A *plan* is for one pair of ranks, and for one block: all blocks of a rank
 * have one layout. For layers 0..1, heads 0..3, from rank 0 of 1 to rank 1 of 2
 * (heads 2 and 3), h the bytes of a head:
 *
 *     source        | 0k: 0 1 2 3 | 0v: 0 1 2 3 | 1k: 0 1 2 3 | 1v: 0 1 2 3 |
 *     destination   | 0k: 2 3 | 0v: 2 3 | 1k: 2 3 | 1v: 2 3 |
 *     moves         2h bytes from 2h to 0, from 6h to 2h, from 10h to 4h, from
 *                   14h to 6h
 *
 * The plans of all source ranks to one destination rank cover its block exactly
 * once. A sender's receive window at that rank is, for each block in turn, the
 * destination ranges of the plan in order; the sender posts the source ranges
 * there.
 *
 * Threads: pure functions.
 */

/** Parallelism of an instance: tensor (tp) and pipeline (pp). Both at least
 *  1. */
typedef struct bt_kv_split {
    uint32_t tp;
    uint32_t pp;
} bt_kv_split_t;

/** Part of a model that one rank holds. */
typedef struct bt_kv_part {
    uint32_t first_layer, n_layers;
    uint32_t first_head, n_heads; /**< KV heads */
} bt_kv_part_t;

/** Range of bytes that is contiguous in both blocks. */
typedef struct bt_kv_move {
    uint64_t start; /**< offset in the concatenated moves of this block,
                         bytes */
    uint64_t src;   /**< offset in the source rank's block, bytes */
    uint64_t dst;   /**< offset in the destination rank's block, bytes */
    uint64_t bytes; /**< at least 1 */
} bt_kv_move_t;

/** Plan for one pair of ranks. */
typedef struct bt_kv_reshard {
    bt_kv_move_t *moves; /**< owned; by dst, and so by layer; NULL when none */
    uint32_t n_moves;
    uint64_t bytes;           /**< sum over all moves of a block */
    uint64_t src_block_bytes; /**< size of a block of the source rank */
    uint64_t dst_block_bytes;
} bt_kv_reshard_t;

/**
 * Computes the part of a model that one rank holds.
 *
 * @param [in]  whole   All of the model's layers and KV heads.
 * @param [in]  rank    Below tp * pp.
 * @param [out] part_p  Never empty.
 * @retval BT_ERR_INVALID_PARAM  a zero, no such rank, or more slices than heads
 *                               or stages than layers
 */
BT_MUST_CHECK bt_status_t bt_kv_part_of(const bt_kv_shape_t *whole,
                                        const bt_kv_split_t *split,
                                        uint32_t rank, bt_kv_part_t *part_p);

/**
 * Plans the transfer of what @a src has of the part that @a dst holds.
 *
 * @param [in]  whole   All of the model's layers and KV heads.
 * @param [out] plan_p  Owned by the caller: bt_kv_reshard_fini(). Without moves
 *                      when the parts do not intersect.
 * @retval BT_ERR_INVALID_PARAM  the shape, or a part outside of it
 * @retval BT_ERR_OVERFLOW       a block of that shape
 * @retval BT_ERR_NO_MEMORY
 * Cost O(layers). Moves that are adjacent on both sides are merged: equal parts
 * need a single move, all heads of some layers one (and one for their scales).
 */
BT_MUST_CHECK bt_status_t bt_kv_reshard_plan(const bt_kv_shape_t *whole,
                                             const bt_kv_part_t *src,
                                             const bt_kv_part_t *dst,
                                             bt_kv_reshard_t *plan_p);
void bt_kv_reshard_fini(bt_kv_reshard_t *plan);

/** Range of a receive window that is contiguous in the pool of one end. */
typedef struct bt_kv_piece {
    uint64_t window; /**< offset in the receive window, bytes */
    uint64_t pool;   /**< offset in that end's pool, bytes */
    uint64_t bytes;
} bt_kv_piece_t;

typedef enum bt_kv_end {
    BT_KV_SRC, /**< the pieces to post */
    BT_KV_DST, /**< the receive window's extents */
} bt_kv_end_t;

/** Iterator over a receive window. */
typedef struct bt_kv_walk {
    const bt_kv_reshard_t *plan; /**< borrowed */
    const uint32_t *ids;         /**< borrowed */
    bt_kv_end_t end;
    uint32_t block, n_blocks;
    uint32_t move;         /**< next move of that block */
    uint64_t begin, until; /**< range of each source block, bytes */
    uint32_t step;         /**< distance from an id to the next one */
    uint64_t page_bytes;   /**< distance between blocks of that pool */
    uint64_t base;         /**< offset in the receive window of block 0,
                                bytes */
} bt_kv_walk_t;

/**
 * Begins a walk through the receive window for blocks @a ids, or a part of it:
 * [first, n).
 *
 *     bt_kv_walk_t walk = bt_kv_walk_begin(&plan, BT_KV_SRC, ids, 0, n);
 *     while (bt_kv_walk_next(&walk, &piece)) {
 *         bt_kvt_post(xfer, pool + piece.pool, piece.window, piece.bytes);
 *     }
 *
 * @param [in] plan  Outlives the walk.
 * @param [in] end   End whose pool is walked.
 * @param [in] ids   [n] blocks of that pool, in the window's order: block i of
 *                   one end becomes block i of the other. Outlive the walk.
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

/** Restricts a walk to the bytes [begin, until) of each source block: its
 *  finished layers. Call before the first step. */
static inline void bt_kv_walk_clip(bt_kv_walk_t *walk, uint64_t begin,
                                   uint64_t until)
{
    walk->begin = begin;
    walk->until = until;
}

/**
 * Adapts a walk to blocks of several groups that share tables, pages and a
 * receive window (kv_groups.h). Call before the first step.
 * @param [in] step        ids[i * step] is block i
 * @param [in] page_bytes  of that end's pool, at least its block's
 * @param [in] base        where the group begins in the window, bytes
 */
static inline void bt_kv_walk_among(bt_kv_walk_t *walk, uint32_t step,
                                    uint64_t page_bytes, uint64_t base)
{
    walk->step = step;
    walk->page_bytes = page_bytes;
    walk->base = base;
}

/**
 * Returns the next piece, as long as that pool allows: neighbouring blocks are
 * merged into one piece if the plan leaves nothing out between them.
 *
 * @return false at the end (at once when the plan has no moves). All pieces
 *     together are at most (n - first) * n_moves, in the window's order, and
 *     without gaps unless the walk is clipped.
 */
bool bt_kv_walk_next(bt_kv_walk_t *walk, bt_kv_piece_t *piece_p);

/*
 * KV routes: what one rank of an instance exchanges with another instance of
 * one model. A *lane* pairs the rank with each remote rank that has heads and
 * layers in common with it, and has the plan of what moves.
 *
 *     this rank, 1 x 1      rank 0 ── heads 0, 1 ──▶ rank 0 of 2 x 1
 *     (BT_KV_SRC)              └───── heads 2, 3 ──▶ rank 1
 *
 * A lane is a receive window in the receiver's pool and one transfer into it.
 * Between two instances of one rank there is one lane, and a group's plan is a
 * single move: a whole block.
 *
 * For a sequence of n tokens whose first spans the receiver already has, a lane
 * moves what each group needs (kv_groups.h), group after group:
 *
 *     window   [ group 0: spans 2 … 7 ][ group 1, windowed: spans 5 … 7 ]
 *
 * Both ends know the groups, n and what is cached, so both compute one layout.
 *
 * Rank 0 communicates with the routers for its instance. The other ranks of a
 * receiver open the windows of their lanes and give their descriptors to rank
 * 0, which puts all into one grant, each with its pair of ranks; rank 0 of a
 * sender gives each rank its own. How ranks follow rank 0 inside an instance is
 * not here yet: docs/adr/0007-ranks-in-the-protocol.md.
 *
 * Threads: pure functions.
 */

/** Pair of this rank with one rank of the other instance. */
typedef struct bt_kv_lane {
    uint32_t rank;
    bt_kv_reshard_t plan[BT_KV_MAX_GROUPS]; /**< plan of each group */
    uint64_t src_page_bytes,
        dst_page_bytes; /**< page sizes of the pools at both ends */
} bt_kv_lane_t;

/** Lanes of one rank. */
typedef struct bt_kv_route {
    uint32_t n_lanes;    /**< at least 1 */
    bt_kv_lane_t *lanes; /**< owned; by rank */
} bt_kv_route_t;

/**
 * Plans the lanes of one rank.
 *
 * @param [in]  groups   Of the whole model.
 * @param [in]  end      The end that this rank is.
 * @param [in]  mine     Split of the model in its instance.
 * @param [in]  rank     Below tp * pp of @a mine.
 * @param [in]  theirs   Split of the model in the other instance.
 * @param [out] route_p  Owned by the caller: bt_kv_route_fini().
 * @retval BT_ERR_INVALID_PARAM  a split that this model does not allow: more
 *                               slices than heads, more stages than layers
 * @retval BT_ERR_UNSUPPORTED    slices of a state
 * @retval BT_ERR_OVERFLOW       a block of that shape
 * @retval BT_ERR_NO_MEMORY
 * Cost O(layers x ranks of the other instance).
 */
BT_MUST_CHECK bt_status_t bt_kv_route_make(
    const bt_kv_groups_t *groups, bt_kv_end_t end, const bt_kv_split_t *mine,
    uint32_t rank, const bt_kv_split_t *theirs, bt_kv_route_t *route_p);
void bt_kv_route_fini(bt_kv_route_t *route);

/** Transfer of one sequence's KV through one lane. */
typedef struct bt_kv_handover {
    const bt_kv_groups_t *groups; /**< borrowed */
    const bt_kv_lane_t *lane;     /**< borrowed */
    uint32_t n_tokens;            /**< tokens that have K and V */
    uint32_t n_cached; /**< leading spans that the receiver has in all groups */
} bt_kv_handover_t;

/** Returns the bytes of a transfer's receive window. */
uint64_t bt_kv_handover_bytes(const bt_kv_handover_t *handover);

/**
 * Begins a walk through a group's part of the receive window, or some of it:
 * those of the spans [first, until) that the transfer moves.
 *
 * @param [in] end    End whose pool and table are walked.
 * @param [in] table  Table of the sequence there; outlives the walk.
 */
bt_kv_walk_t bt_kv_handover_walk(const bt_kv_handover_t *handover,
                                 uint32_t group, bt_kv_end_t end,
                                 const uint32_t *table, uint32_t first,
                                 uint32_t until);

#endif
