/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_route.h"

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
                piece.region =
                    walk->base + walk->block * plan->bytes + move->start + skip;
                piece.pool = pool;
            } else if (piece.pool + piece.bytes != pool) {
                break;
            } /* else they are adjacent in the region too: moves are in the
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

/* ---- plans ---- */

/* Part of a rank in each group; a group without a part has no layers. */
typedef struct parts {
    bt_kv_part_t of[BT_KV_MAX_GROUPS];
    uint64_t page_bytes;
} parts_t;

/* @return how many layers of the group are below this one of the model */
static uint32_t index_at(const bt_kv_groups_t *groups, uint32_t group,
                         uint32_t layer)
{
    uint32_t n = 0;

    if (groups->layer_slots == NULL) {
        return layer;
    }
    for (uint32_t i = 0; i < layer; i++) {
        n += (groups->layer_slots[i].group == group);
    }
    return n;
}

/* Bytes of a block of this part. */
static bt_status_t part_bytes(const bt_kv_group_t *group,
                              const bt_kv_part_t *part, uint64_t *bytes_p)
{
    bt_kv_shape_t shape = group->shape;
    size_t bytes = 0;
    bt_status_t status = BT_OK;

    if (group->kind == BT_KV_STATE) {
        bytes = part->n_layers * group->state_bytes;
    } else if (part->n_layers > 0) {
        shape.n_layers = part->n_layers;
        shape.n_kv_heads = part->n_heads;
        status = bt_kv_block_bytes(&shape, &bytes);
    }
    *bytes_p = bytes;
    return status;
}

static bt_status_t parts_of(const bt_kv_groups_t *groups,
                            const bt_kv_split_t *split, uint32_t rank,
                            parts_t *parts)
{
    memset(parts, 0, sizeof(*parts));
    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];
        const bool state = (group->kind == BT_KV_STATE);
        bt_kv_part_t *part = &parts->of[g];
        bt_kv_shape_t whole = group->shape;
        uint64_t bytes = 0;
        bt_status_t status;

        whole.n_layers = groups->n_layers;
        whole.n_kv_heads = state ? split->tp : whole.n_kv_heads;
        status = bt_kv_part_of(&whole, split, rank, part);
        if ((status == BT_OK) && state && (split->tp > 1)) {
            status = BT_ERR_UNSUPPORTED;
        }
        if (status == BT_OK) { /* from layers of the model to the group's */
            const uint32_t end =
                index_at(groups, g, part->first_layer + part->n_layers);

            part->first_layer = index_at(groups, g, part->first_layer);
            part->n_layers = end - part->first_layer;
            status = part_bytes(group, part, &bytes);
        }
        if (status != BT_OK) {
            return status;
        }
        if (bytes > parts->page_bytes) {
            parts->page_bytes = bytes;
        }
    }
    return BT_OK;
}

/* A state's layers lie one after the other. */
static bt_status_t plan_state(const bt_kv_group_t *group,
                              const bt_kv_part_t *src, const bt_kv_part_t *dst,
                              bt_kv_reshard_t *plan)
{
    const uint64_t bytes = group->state_bytes;
    uint32_t first;
    const uint32_t n = overlap(src->first_layer, src->n_layers,
                               dst->first_layer, dst->n_layers, &first);

    plan->src_block_bytes = src->n_layers * bytes;
    plan->dst_block_bytes = dst->n_layers * bytes;
    if (n == 0) {
        return BT_OK;
    }
    plan->moves = bt_calloc(1, sizeof(*plan->moves));
    if (plan->moves == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    plan->n_moves = 1;
    plan->bytes = n * bytes;
    plan->moves[0] = (bt_kv_move_t){.src = (first - src->first_layer) * bytes,
                                    .dst = (first - dst->first_layer) * bytes,
                                    .bytes = plan->bytes};
    return BT_OK;
}

static void pair_fini(bt_kv_rank_pair_t *pair)
{
    for (uint32_t g = 0; g < BT_KV_MAX_GROUPS; g++) {
        bt_kv_reshard_fini(&pair->plan[g]);
    }
}

/* @param [out] any_p  do the two have anything in common? */
static bt_status_t plan_pair(const bt_kv_groups_t *groups, const parts_t *src,
                             const parts_t *dst, bt_kv_rank_pair_t *pair,
                             bool *any_p)
{
    bool any = false;

    for (uint32_t g = 0; g < groups->n; g++) {
        const bt_kv_group_t *group = &groups->group[g];
        const bt_kv_part_t *from = &src->of[g];
        const bt_kv_part_t *to = &dst->of[g];
        bt_status_t status = BT_OK;

        if (group->kind == BT_KV_STATE) {
            status = plan_state(group, from, to, &pair->plan[g]);
        } else if ((from->n_layers > 0) && (to->n_layers > 0)) {
            status =
                bt_kv_reshard_plan(&group->shape, from, to, &pair->plan[g]);
        }
        if (status != BT_OK) {
            return status;
        }
        any = any || (pair->plan[g].n_moves > 0);
    }
    pair->src_page_bytes = src->page_bytes;
    pair->dst_page_bytes = dst->page_bytes;
    *any_p = any;
    return BT_OK;
}

bt_status_t bt_kv_route_make(const bt_kv_groups_t *groups, bt_kv_end_t end,
                             const bt_kv_split_t *mine, uint32_t rank,
                             const bt_kv_split_t *theirs,
                             bt_kv_route_t *route_p)
{
    bt_kv_route_t route = {0};
    parts_t here, there;
    uint64_t n_ranks;
    bt_status_t status = parts_of(groups, mine, rank, &here);

    if (status == BT_OK) { /* no more slices and stages than heads and layers */
        status = parts_of(groups, theirs, 0, &there);
    }
    if (status != BT_OK) {
        return status;
    }
    n_ranks = (uint64_t)theirs->tp * theirs->pp;
    route.pairs = bt_calloc(n_ranks, sizeof(*route.pairs));
    if (route.pairs == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; (status == BT_OK) && (r < n_ranks); r++) {
        bt_kv_rank_pair_t *pair = &route.pairs[route.n_pairs];
        bool any = false;

        status = parts_of(groups, theirs, r, &there);
        if (status == BT_OK) {
            status = (end == BT_KV_SRC)
                         ? plan_pair(groups, &here, &there, pair, &any)
                         : plan_pair(groups, &there, &here, pair, &any);
        }
        if ((status != BT_OK) || !any) {
            pair_fini(pair);
            continue;
        }
        pair->rank = r;
        route.n_pairs++;
    }
    if (status != BT_OK) {
        bt_kv_route_fini(&route);
        return status;
    }
    *route_p = route;
    return BT_OK;
}

void bt_kv_route_fini(bt_kv_route_t *route)
{
    for (uint32_t i = 0; i < route->n_pairs; i++) {
        pair_fini(&route->pairs[i]);
    }
    bt_free(route->pairs);
    memset(route, 0, sizeof(*route));
}

/* ---- one sequence ---- */

/* The spans that are moved of a group: [*first_p, returned). */
static uint32_t spans_of(const bt_kv_handover_t *handover, uint32_t group,
                         uint32_t *first_p)
{
    const bt_kv_groups_t *groups = handover->groups;
    const uint32_t needed =
        bt_kv_group_first_span(&groups->group[group], handover->n_tokens);
    const uint32_t end =
        bt_kv_blocks_for(handover->n_tokens, groups->tokens_per_block);
    const uint32_t first =
        (needed > handover->n_cached) ? needed : handover->n_cached;

    *first_p = (first < end) ? first : end;
    return end;
}

static uint64_t group_bytes(const bt_kv_handover_t *handover, uint32_t group)
{
    uint32_t first;
    const uint32_t end = spans_of(handover, group, &first);

    return (end - first) * handover->pair->plan[group].bytes;
}

uint64_t bt_kv_handover_bytes(const bt_kv_handover_t *handover)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < handover->groups->n; g++) {
        bytes += group_bytes(handover, g);
    }
    return bytes;
}

bt_kv_walk_t bt_kv_handover_walk(const bt_kv_handover_t *handover,
                                 uint32_t group, bt_kv_end_t end,
                                 const uint32_t *table, uint32_t first,
                                 uint32_t until)
{
    const bt_kv_groups_t *groups = handover->groups;
    const bt_kv_rank_pair_t *pair = handover->pair;
    uint32_t begin;
    const uint32_t last = spans_of(handover, group, &begin);
    const uint32_t from = (first > begin) ? first : begin;
    const uint32_t to = (until < last) ? until : last;
    uint64_t base = 0;
    bt_kv_walk_t walk;

    for (uint32_t g = 0; g < group; g++) {
        base += group_bytes(handover, g);
    }
    walk = bt_kv_walk_begin(
        &pair->plan[group], end, table + (size_t)begin * groups->n + group,
        from - begin, (to > from) ? to - begin : from - begin);
    bt_kv_walk_among(
        &walk, groups->n,
        (end == BT_KV_SRC) ? pair->src_page_bytes : pair->dst_page_bytes, base);
    return walk;
}
