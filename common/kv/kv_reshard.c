/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_reshard.h"

#include <string.h>

#include "common/base/alloc.h"

/** Returns the first of the @a n things that share @a i of @a of has:
 *  floor(i n / of). */
static uint32_t share_begin(uint32_t i, uint32_t n, uint32_t of)
{
    return (uint32_t)((uint64_t)i * n / of);
}

bt_status_t bt_kv_part_of(const bt_kv_shape_t *whole,
                          const bt_kv_split_t *split, uint32_t rank,
                          bt_kv_part_t *part_p)
{
    bt_kv_part_t part;
    uint32_t stage, slice;

    if ((split->tp == 0) || (split->pp == 0) ||
        (split->tp > whole->n_kv_heads) || (split->pp > whole->n_layers) ||
        (rank >= (uint64_t)split->tp * split->pp)) {
        return BT_ERR_INVALID_PARAM;
    }
    stage = rank / split->tp;
    slice = rank % split->tp;
    part.first_layer = share_begin(stage, whole->n_layers, split->pp);
    part.n_layers =
        share_begin(stage + 1, whole->n_layers, split->pp) - part.first_layer;
    part.first_head = share_begin(slice, whole->n_kv_heads, split->tp);
    part.n_heads =
        share_begin(slice + 1, whole->n_kv_heads, split->tp) - part.first_head;
    *part_p = part;
    return BT_OK;
}

static bool part_ok(const bt_kv_shape_t *whole, const bt_kv_part_t *part)
{
    return (part->n_layers > 0) && (part->n_heads > 0) &&
           (part->n_layers <= whole->n_layers) &&
           (part->first_layer <= whole->n_layers - part->n_layers) &&
           (part->n_heads <= whole->n_kv_heads) &&
           (part->first_head <= whole->n_kv_heads - part->n_heads);
}

/** Computes the bytes of a block of @a part; those of its elements in
 *  *elem_bytes_p. */
static bt_status_t block_bytes(const bt_kv_shape_t *whole,
                               const bt_kv_part_t *part, uint64_t *elem_bytes_p,
                               uint64_t *bytes_p)
{
    bt_kv_shape_t shape = *whole;
    size_t elem_bytes = 0;
    size_t bytes = 0;
    bt_status_t status;

    shape.n_layers = part->n_layers;
    shape.n_kv_heads = part->n_heads;
    status = bt_kv_block_bytes(&shape, &bytes);
    if (status == BT_OK) {
        shape.scale_bytes = 0;
        status = bt_kv_block_bytes(&shape, &elem_bytes);
    }
    if (status != BT_OK) {
        return status;
    }
    *elem_bytes_p = elem_bytes;
    *bytes_p = bytes;
    return BT_OK;
}

static void move_add(bt_kv_reshard_t *plan, uint64_t src, uint64_t dst,
                     uint64_t bytes)
{
    bt_kv_move_t *last =
        (plan->n_moves == 0) ? NULL : plan->moves + plan->n_moves - 1;

    if ((last != NULL) && (last->src + last->bytes == src) &&
        (last->dst + last->bytes == dst)) {
        last->bytes += bytes;
    } else {
        plan->moves[plan->n_moves++] = (bt_kv_move_t){
            .start = plan->bytes, .src = src, .dst = dst, .bytes = bytes};
    }
    plan->bytes += bytes;
}

/** Adds the moves of one array of both blocks,
 *  [layer][kv][head][head_bytes], from src_base and dst_base on: the heads
 *  and layers of @a both. */
static void array_add(bt_kv_reshard_t *plan, const bt_kv_part_t *src,
                      const bt_kv_part_t *dst, const bt_kv_part_t *both,
                      uint64_t head_bytes, uint64_t src_base, uint64_t dst_base)
{
    const uint64_t src_head = both->first_head - src->first_head;
    const uint64_t dst_head = both->first_head - dst->first_head;

    for (uint32_t i = 0; i < both->n_layers; i++) {
        const uint64_t layer = (uint64_t)both->first_layer + i;

        for (uint32_t kv = 0; kv < 2; kv++) {
            const uint64_t src_row = 2 * (layer - src->first_layer) + kv;
            const uint64_t dst_row = 2 * (layer - dst->first_layer) + kv;

            move_add(
                plan,
                src_base + (src_row * src->n_heads + src_head) * head_bytes,
                dst_base + (dst_row * dst->n_heads + dst_head) * head_bytes,
                both->n_heads * head_bytes);
        }
    }
}

/** @return how many are in both a .. a + n_a - 1 and b .. b + n_b - 1. */
static uint32_t overlap(uint32_t a, uint32_t n_a, uint32_t b, uint32_t n_b,
                        uint32_t *first_p)
{
    const uint32_t first = (a > b) ? a : b;
    const uint32_t end = (a + n_a < b + n_b) ? a + n_a : b + n_b;

    *first_p = first;
    return (end > first) ? end - first : 0;
}

bt_status_t bt_kv_reshard_plan(const bt_kv_shape_t *whole,
                               const bt_kv_part_t *src, const bt_kv_part_t *dst,
                               bt_kv_reshard_t *plan_p)
{
    bt_kv_reshard_t plan = {0};
    uint64_t src_elems = 0;
    uint64_t dst_elems = 0;
    bt_kv_part_t both;
    bt_status_t status;

    if (!part_ok(whole, src) || !part_ok(whole, dst)) {
        return BT_ERR_INVALID_PARAM;
    }
    status = block_bytes(whole, src, &src_elems, &plan.src_block_bytes);
    if (status == BT_OK) {
        status = block_bytes(whole, dst, &dst_elems, &plan.dst_block_bytes);
    }
    if (status != BT_OK) {
        return status;
    }
    both.n_layers = overlap(src->first_layer, src->n_layers, dst->first_layer,
                            dst->n_layers, &both.first_layer);
    both.n_heads = overlap(src->first_head, src->n_heads, dst->first_head,
                           dst->n_heads, &both.first_head);
    if ((both.n_layers > 0) && (both.n_heads > 0)) {
        /* Elements and scales, key and value. A layer has at least a byte, so
         * the product cannot overflow: block_bytes() did not. */
        plan.moves = bt_calloc((size_t)both.n_layers * 4, sizeof(*plan.moves));
        if (plan.moves == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        array_add(&plan, src, dst, &both,
                  (uint64_t)whole->tokens_per_block * whole->head_dim *
                      whole->elem_bytes,
                  0, 0);
        if (whole->scale_bytes > 0) {
            array_add(&plan, src, dst, &both,
                      (uint64_t)whole->tokens_per_block * whole->scale_bytes,
                      src_elems, dst_elems);
        }
    }
    *plan_p = plan;
    return BT_OK;
}

void bt_kv_reshard_fini(bt_kv_reshard_t *plan)
{
    bt_free(plan->moves);
    memset(plan, 0, sizeof(*plan));
}

bool bt_kv_walk_next(bt_kv_walk_t *walk, bt_kv_piece_t *piece_p)
{
    const bt_kv_reshard_t *plan = walk->plan;
    const bool src = (walk->end == BT_KV_SRC);
    bt_kv_piece_t piece = {0};

    while ((plan->n_moves > 0) && (walk->block < walk->n_blocks)) {
        const bt_kv_move_t *move = &plan->moves[walk->move];
        const uint64_t end = move->src + move->bytes;
        const uint64_t until = (end < walk->until) ? end : walk->until;
        const uint64_t skip =
            (move->src < walk->begin) ? walk->begin - move->src : 0;

        if (move->src + skip < until) {
            const uint64_t pool =
                walk->ids[(uint64_t)walk->block * walk->step] *
                    walk->page_bytes +
                (src ? move->src : move->dst) + skip;

            if (piece.bytes == 0) {
                piece.window =
                    walk->base + walk->block * plan->bytes + move->start + skip;
                piece.pool = pool;
            } else if (piece.pool + piece.bytes != pool) {
                break;
            } /* else they are adjacent in the window too: moves are in the
                 order of both blocks, and what is left out between them lies
                 between */
            piece.bytes += until - move->src - skip;
        }
        walk->move++;
        if (walk->move == plan->n_moves) {
            walk->move = 0;
            walk->block++;
        }
    }
    if (piece.bytes == 0) {
        return false;
    }
    *piece_p = piece;
    return true;
}
