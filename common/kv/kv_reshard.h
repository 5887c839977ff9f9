/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_reshard.h
 *
 * Which bytes go where when the two ends of a transfer split one model's KV in
 * different ways: tp slices of heads, pp stages of layers.
 *
 *     rank r of tp x pp:  stage r / tp, slice r % tp
 *     stage s             layers floor(sL/pp) .. floor((s+1)L/pp) - 1
 *     slice t             KV heads floor(tH/tp) .. floor((t+1)H/tp) - 1
 *
 * A rank's block holds its part alone (kv_layout.h), with its scales behind:
 *
 *     elem[layer][kv][head][slots and dims]  scale[layer][kv][head][slot]
 *
 * A *plan* is for one pair of ranks, and for one block: all blocks of a rank
 * are alike. For layers 0..1, heads 0..3, from rank 0 of 1 to rank 1 of 2
 * (heads 2 and 3), h the bytes of a head:
 *
 *     source        | 0k: 0 1 2 3 | 0v: 0 1 2 3 | 1k: 0 1 2 3 | 1v: 0 1 2 3 |
 *     destination   | 0k: 2 3 | 0v: 2 3 | 1k: 2 3 | 1v: 2 3 |
 *     moves         2h bytes from 2h to 0, from 6h to 2h, from 10h to 4h, from
 *                   14h to 6h
 *
 * The plans of all source ranks to one destination rank cover its block exactly
 * once. A sender's window at that rank is, for each block in turn, the
 * destination ranges of the plan in order; what it posts there lies at the
 * source ranges.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_RESHARD_H
#define BT_COMMON_KV_KV_RESHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_layout.h"

/** How an instance divides its model. Both at least 1. */
typedef struct bt_kv_split {
    uint32_t tp;
    uint32_t pp;
} bt_kv_split_t;

/** What one rank holds. */
typedef struct bt_kv_part {
    uint32_t first_layer, n_layers;
    uint32_t first_head, n_heads; /**< KV heads */
} bt_kv_part_t;

/** Bytes that lie together in both blocks. */
typedef struct bt_kv_move {
    uint64_t start; /**< in the moves of this block laid end to end, bytes */
    uint64_t src;   /**< in the source rank's block, bytes */
    uint64_t dst;   /**< in the destination rank's block, bytes */
    uint64_t bytes; /**< at least 1 */
} bt_kv_move_t;

typedef struct bt_kv_reshard {
    bt_kv_move_t *moves; /**< owned; by dst, and so by layer; NULL when none */
    uint32_t n_moves;
    uint64_t bytes;           /**< of all moves of a block */
    uint64_t src_block_bytes; /**< of a block of the source rank */
    uint64_t dst_block_bytes;
} bt_kv_reshard_t;

/**
 * The part of a model that one rank holds.
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
 * What @a src has of what @a dst holds.
 *
 * @param [in]  whole   All of the model's layers and KV heads.
 * @param [out] plan_p  Owned by the caller: bt_kv_reshard_fini(). Without
 *                      moves when the parts have nothing in common.
 * @retval BT_ERR_INVALID_PARAM  the shape, or a part outside of it
 * @retval BT_ERR_OVERFLOW       a block of that shape
 * @retval BT_ERR_NO_MEMORY
 * Cost O(layers). Moves that touch on both sides are one: equal parts need a
 * single move, all heads of some layers one (and one for their scales).
 */
BT_MUST_CHECK bt_status_t bt_kv_reshard_plan(const bt_kv_shape_t *whole,
                                             const bt_kv_part_t *src,
                                             const bt_kv_part_t *dst,
                                             bt_kv_reshard_t *plan_p);
void bt_kv_reshard_fini(bt_kv_reshard_t *plan);

/** Bytes of a window that lie together in the pool of one end. */
typedef struct bt_kv_piece {
    uint64_t window; /**< offset in the window, bytes */
    uint64_t pool;   /**< offset in that end's pool, bytes */
    uint64_t bytes;
} bt_kv_piece_t;

typedef enum bt_kv_end {
    BT_KV_SRC, /**< the pieces to post */
    BT_KV_DST, /**< the window's extents */
} bt_kv_end_t;

/** Where a walk through a window is. */
typedef struct bt_kv_walk {
    const bt_kv_reshard_t *plan; /**< borrowed */
    const uint32_t *ids;         /**< borrowed */
    bt_kv_end_t end;
    uint32_t block, n_blocks;
    uint32_t move;         /**< next one of that block */
    uint64_t begin, until; /**< of each source block, bytes */
    uint32_t step;         /**< from an id to the next one */
    uint64_t page_bytes;   /**< from a block of that pool to the next one */
    uint64_t base;         /**< offset in the window of block 0, bytes */
} bt_kv_walk_t;

/**
 * Walk through the window for blocks @a ids, or a part of it: [first, n).
 *
 *     bt_kv_walk_t walk = bt_kv_walk_begin(&plan, BT_KV_SRC, ids, 0, n);
 *     while (bt_kv_walk_next(&walk, &piece)) {
 *         bt_kvt_post(xfer, pool + piece.pool, piece.window, piece.bytes);
 *     }
 *
 * @param [in] plan  Outlives the walk.
 * @param [in] end   Whose pool.
 * @param [in] ids   [n] blocks of that pool, in the window's order: block i of
 *                   the one end becomes block i of the other. Outlive the walk.
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

/** Of each source block only the bytes [begin, until): those layers of it that
 *  are finished. Before the first step. */
static inline void bt_kv_walk_clip(bt_kv_walk_t *walk, uint64_t begin,
                                   uint64_t until)
{
    walk->begin = begin;
    walk->until = until;
}

/** Where blocks of several groups share tables, pages and a window
 *  (kv_groups.h, kv_route.h). Before the first step.
 *  @param [in] step        ids[i * step] is block i
 *  @param [in] page_bytes  of that end's pool, at least its block's
 *  @param [in] base        where the group begins in the window, bytes */
static inline void bt_kv_walk_among(bt_kv_walk_t *walk, uint32_t step,
                                    uint64_t page_bytes, uint64_t base)
{
    walk->step = step;
    walk->page_bytes = page_bytes;
    walk->base = base;
}

/**
 * The next piece, as long as that pool allows: neighbouring blocks too are one
 * piece where the plan leaves nothing out between them.
 *
 * @return false at the end (at once when the plan has no moves). All pieces
 *         together are at most (n - first) * n_moves, in the window's order,
 *         and without gaps unless the walk is clipped.
 */
bool bt_kv_walk_next(bt_kv_walk_t *walk, bt_kv_piece_t *piece_p);

#endif
