/* SPDX-License-Identifier: Apache-2.0 */
/* Between every two ways to split a model over ranks, in both directions, the
 * right bytes move, at once or layer by layer: on plain memory, with KV in
 * which every byte says whose it is. Between processes: kvtransfer's
 * test_kvt_reshard_process.c. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/kv/kv_route.h"
#include "kvtransfer/kvt_plan.h"
#include "tests/support/testsupport.h"
#include "tests/unit/common/kv/made_up.h"

#define N_BLOCKS      3u /* of a sequence */
#define POOL_BLOCKS   8u
#define MAX_RANKS     8u
#define UNTOUCHED     0xa5u
#define UNTOUCHED_SRC 0x5au

/* Where a sequence's blocks lie in the pools of both sides. */
static const uint32_t src_ids[N_BLOCKS] = {6, 1, 2};
static const uint32_t dst_ids[N_BLOCKS] = {3, 4, 0};

static const bt_kv_split_t splits[] = {{1, 1}, {2, 1}, {4, 1},
                                       {1, 2}, {2, 2}, {4, 2}};

typedef struct rank {
    bt_kv_part_t part;
    uint64_t block_bytes;
    uint64_t layer_bytes; /* without scales */
    uint8_t *pool;        /* owned */
} rank_t;

typedef struct side {
    const bt_kv_shape_t *whole;
    uint32_t n_ranks;
    rank_t ranks[MAX_RANKS];
} side_t;

static uint64_t block_write(const side_t *side, const rank_t *rank, uint32_t n,
                            uint8_t *out)
{
    return made_up_block(side->whole, &rank->part, 0, n, out);
}

static void side_open(side_t *side, const bt_kv_shape_t *whole,
                      const bt_kv_split_t *split, uint8_t fill)
{
    memset(side, 0, sizeof(*side));
    side->whole = whole;
    side->n_ranks = split->tp * split->pp;
    for (uint32_t r = 0; r < side->n_ranks; r++) {
        rank_t *rank = &side->ranks[r];

        assert_int_equal(bt_kv_part_of(whole, split, r, &rank->part), BT_OK);
        rank->block_bytes = block_write(side, rank, 0, NULL);
        rank->layer_bytes = made_up_layer_bytes(whole, &rank->part);
        rank->pool = bt_calloc(POOL_BLOCKS, rank->block_bytes);
        assert_non_null(rank->pool);
        memset(rank->pool, fill, POOL_BLOCKS * rank->block_bytes);
    }
}

static void side_close(side_t *side)
{
    for (uint32_t r = 0; r < side->n_ranks; r++) {
        bt_free(side->ranks[r].pool);
    }
}

/* The model worked by hand: 2 layers, 4 heads of 2 slots of 3 dims of 2 bytes,
 * so 12 bytes a head; the picture in kv_route.h with h = 12. */
static const bt_kv_shape_t hand = {.n_layers = 2,
                                   .n_kv_heads = 4,
                                   .tokens_per_block = 2,
                                   .head_dim = 3,
                                   .elem_bytes = 2};
static const bt_kv_part_t all = {0, 2, 0, 4};
static const bt_kv_part_t half = {0, 2, 2, 2};  /* heads 2 and 3 */
static const bt_kv_part_t early = {0, 1, 0, 4}; /* one layer... */
static const bt_kv_part_t late = {1, 1, 0, 4};  /* ...and the other */

static bt_kv_reshard_t plan_of(const bt_kv_shape_t *whole,
                               const bt_kv_part_t *src, const bt_kv_part_t *dst)
{
    bt_kv_reshard_t plan;

    assert_int_equal(bt_kv_reshard_plan(whole, src, dst, &plan), BT_OK);
    return plan;
}

/** Copies bytes [begin, until) of each source block into the region; returns
 *  how many ranges lie together on both sides. */
static uint32_t pieces_copy(const rank_t *from, const rank_t *to,
                            const bt_kv_reshard_t *plan,
                            const bt_kvt_map_t *map, uint64_t begin,
                            uint64_t until, bt_kvt_ranges_t *sent)
{
    bt_kv_walk_t walk = bt_kv_walk_begin(plan, BT_KV_SRC, src_ids, 0, N_BLOCKS);
    bt_kv_piece_t piece;
    uint32_t n = 0;

    bt_kv_walk_clip(&walk, begin, until);
    while (bt_kv_walk_next(&walk, &piece)) {
        assert_true(piece.pool + piece.bytes <=
                    POOL_BLOCKS * from->block_bytes);
        assert_int_equal(bt_kvt_ranges_add(sent, piece.region, piece.bytes),
                         BT_OK);
        for (uint64_t done = 0; done < piece.bytes; n++) {
            uint64_t place = 0;
            const uint64_t bytes = bt_kvt_map_find(map, piece.region + done,
                                                   piece.bytes - done, &place);

            assert_true(bytes > 0);
            memcpy(to->pool + place, from->pool + piece.pool + done, bytes);
            done += bytes;
        }
    }
    return n;
}

/** The region of @a plan in @a to, and what is posted there, all at once or
 *  layer by layer; returns how many ranges lie together on both sides. */
static uint32_t ranks_move(const rank_t *from, rank_t *to,
                           const bt_kv_reshard_t *plan, bool by_layers,
                           bt_kvt_ranges_t *written)
{
    bt_kv_walk_t walk = bt_kv_walk_begin(plan, BT_KV_DST, dst_ids, 0, N_BLOCKS);
    bt_kvt_extent_t *extents;
    bt_kv_piece_t piece;
    bt_kvt_ranges_t sent = {0};
    bt_kvt_map_t map = {0};
    uint64_t at = 0;
    uint32_t n = 0;

    assert_int_equal(plan->src_block_bytes, from->block_bytes);
    assert_int_equal(plan->dst_block_bytes, to->block_bytes);
    if (plan->n_moves == 0) {
        assert_false(bt_kv_walk_next(&walk, &piece));
        return 0;
    }
    extents = bt_calloc((size_t)N_BLOCKS * plan->n_moves, sizeof(*extents));
    assert_non_null(extents);
    for (; bt_kv_walk_next(&walk, &piece); n++) {
        extents[n].offset = piece.pool;
        extents[n].bytes = piece.bytes;
        assert_int_equal(piece.region, at);
        at += piece.bytes;
        /* Nobody else's: each byte comes from one rank alone. */
        assert_int_equal(bt_kvt_ranges_add(written, piece.pool, piece.bytes),
                         BT_OK);
    }
    assert_int_equal(
        bt_kvt_map_init(extents, n, POOL_BLOCKS * to->block_bytes, &map),
        BT_OK);
    assert_int_equal(map.n_runs,
                     n); /* none could have been one with the next */
    assert_int_equal(map.bytes, N_BLOCKS * plan->bytes);

    n = 0;
    for (uint32_t l = 0; l < (by_layers ? from->part.n_layers : 1); l++) {
        /* The scales go with the last one. */
        const bool last = !by_layers || (l + 1 == from->part.n_layers);

        n += pieces_copy(from, to, plan, &map, l * from->layer_bytes,
                         last ? from->block_bytes : (l + 1) * from->layer_bytes,
                         &sent);
    }
    assert_int_equal(sent.bytes, map.bytes);
    bt_kvt_ranges_fini(&sent);
    bt_kvt_map_fini(&map);
    bt_free(extents);
    return n;
}

static void rank_check(const side_t *side, const rank_t *rank,
                       const uint32_t *ids, uint8_t fill)
{
    uint8_t *want = bt_calloc(POOL_BLOCKS, rank->block_bytes);

    assert_non_null(want);
    memset(want, fill, POOL_BLOCKS * rank->block_bytes);
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        (void)block_write(side, rank, b, want + ids[b] * rank->block_bytes);
    }
    assert_memory_equal(rank->pool, want, POOL_BLOCKS * rank->block_bytes);
    bt_free(want);
}

/** @return descriptors */
static uint32_t sequence_moves(const bt_kv_shape_t *whole,
                               const bt_kv_split_t *from,
                               const bt_kv_split_t *to, bool by_layers)
{
    uint32_t n = 0;
    side_t src, dst;

    side_open(&src, whole, from, UNTOUCHED_SRC);
    side_open(&dst, whole, to, UNTOUCHED);
    for (uint32_t r = 0; r < src.n_ranks; r++) {
        for (uint32_t b = 0; b < N_BLOCKS; b++) {
            rank_t *rank = &src.ranks[r];

            (void)block_write(&src, rank, b,
                              rank->pool + src_ids[b] * rank->block_bytes);
        }
    }
    for (uint32_t d = 0; d < dst.n_ranks; d++) {
        bt_kvt_ranges_t written = {0};

        for (uint32_t s = 0; s < src.n_ranks; s++) {
            bt_kv_reshard_t plan =
                plan_of(whole, &src.ranks[s].part, &dst.ranks[d].part);

            n += ranks_move(&src.ranks[s], &dst.ranks[d], &plan, by_layers,
                            &written);
            bt_kv_reshard_fini(&plan);
        }
        assert_int_equal(written.bytes, N_BLOCKS * dst.ranks[d].block_bytes);
        bt_kvt_ranges_fini(&written);
        rank_check(&dst, &dst.ranks[d], dst_ids, UNTOUCHED);
    }
    for (uint32_t s = 0; s < src.n_ranks; s++) {
        rank_check(&src, &src.ranks[s], src_ids, UNTOUCHED_SRC);
    }
    side_close(&src);
    side_close(&dst);
    return n;
}

static void matrix(const char *name, const bt_kv_shape_t *whole)
{
    uint32_t n_pairs = 0;
    uint32_t n_refused = 0;

    for (size_t a = 0; a < BT_ARRAY_LEN(splits); a++) {
        for (size_t b = 0; b < BT_ARRAY_LEN(splits); b++) {
            uint32_t n_at_once, n_by_layers;
            bt_kv_part_t part;

            if ((splits[a].tp > whole->n_kv_heads) ||
                (splits[b].tp > whole->n_kv_heads)) {
                assert_true((bt_kv_part_of(whole, &splits[a], 0, &part) ==
                             BT_ERR_INVALID_PARAM) ||
                            (bt_kv_part_of(whole, &splits[b], 0, &part) ==
                             BT_ERR_INVALID_PARAM));
                n_refused++;
                continue;
            }
            n_at_once = sequence_moves(whole, &splits[a], &splits[b], false);
            n_by_layers = sequence_moves(whole, &splits[a], &splits[b], true);
            assert_true(n_at_once > 0);
            assert_true(n_by_layers >= n_at_once);
            n_pairs++;
        }
    }
    printf("%s: %u pairs of splits moved the right bytes, %u refused (more "
           "slices than heads)\n",
           name, n_pairs, n_refused);
}

static void every_pair_of_splits_moves_the_right_bytes_of_8_heads(void **state)
{
    const bt_kv_shape_t even = {.n_layers = 4,
                                .n_kv_heads = 8,
                                .tokens_per_block = 4,
                                .head_dim = 6,
                                .elem_bytes = 2};
    const bt_kv_shape_t odd = {.n_layers = 5, /* 2 and 3 */
                               .n_kv_heads = 8,
                               .tokens_per_block = 3,
                               .head_dim = 5,
                               .elem_bytes = 2};

    (void)state;
    matrix("8 heads, 4 layers", &even);
    matrix("8 heads, 5 layers", &odd);
}

static void every_pair_of_splits_moves_the_right_bytes_of_3_heads(void **state)
{
    const bt_kv_shape_t whole = {.n_layers = 3,
                                 .n_kv_heads = 3, /* 1 and 2 */
                                 .tokens_per_block = 4,
                                 .head_dim = 8,
                                 .elem_bytes = 2};

    (void)state;
    matrix("3 heads, 3 layers", &whole);
}

static void scales_move_with_their_heads(void **state)
{
    const bt_kv_shape_t eight = {.n_layers = 3,
                                 .n_kv_heads = 8,
                                 .tokens_per_block = 4,
                                 .head_dim = 8,
                                 .elem_bytes = 1,
                                 .scale_bytes = 4};
    bt_kv_shape_t three = eight;

    (void)state;
    three.n_kv_heads = 3;
    three.scale_bytes = 2;
    matrix("8 heads, int8 with scales", &eight);
    matrix("3 heads, int8 with scales", &three);
}

/* DESIGN.md section 4: 3 heads split 2 ways are 1 and 2; layers alike. */
static void reshard_parts_match_the_documented_example(void **state)
{
    const bt_kv_shape_t whole = {.n_layers = 5,
                                 .n_kv_heads = 3,
                                 .tokens_per_block = 16,
                                 .head_dim = 64,
                                 .elem_bytes = 2};
    const bt_kv_split_t split = {.tp = 2, .pp = 2};
    /* rank: first layer, layers, first head, heads */
    static const bt_kv_part_t want[] = {
        {0, 2, 0, 1}, {0, 2, 1, 2}, {2, 3, 0, 1}, {2, 3, 1, 2}};
    const bt_kv_split_t bad[] = {{0, 1}, {1, 0}, {4, 1}, {1, 6}};
    bt_kv_part_t part;

    (void)state;
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(bt_kv_part_of(&whole, &split, r, &part), BT_OK);
        assert_memory_equal(&part, &want[r], sizeof(part));
    }
    assert_int_equal(bt_kv_part_of(&whole, &split, 4, &part),
                     BT_ERR_INVALID_PARAM);
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_int_equal(bt_kv_part_of(&whole, &bad[i], 0, &part),
                         BT_ERR_INVALID_PARAM);
    }
}

static void reshard_moves_match_hand_worked_values(void **state)
{
    static const bt_kv_move_t want[] = {
        {0, 24, 0, 24}, {24, 72, 24, 24}, {48, 120, 48, 24}, {72, 168, 72, 24}};
    bt_kv_shape_t scaled = hand;
    bt_kv_reshard_t plan;

    (void)state;
    scaled.scale_bytes = 4;
    plan = plan_of(&hand, &all, &half);
    assert_int_equal(plan.n_moves, 4);
    assert_memory_equal(plan.moves, want, sizeof(want));
    assert_int_equal(plan.src_block_bytes, 192);
    assert_int_equal(plan.dst_block_bytes, 96);
    assert_int_equal(plan.bytes, 96);
    bt_kv_reshard_fini(&plan);

    /* The same part: a block is one piece, scales (of 4 bytes) or none. */
    plan = plan_of(&scaled, &half, &half);
    assert_int_equal(plan.n_moves, 1);
    assert_int_equal(plan.bytes, 96 + 64);
    bt_kv_reshard_fini(&plan);

    /* A later stage: its layers are one piece, its scales another. */
    plan = plan_of(&scaled, &all, &late);
    assert_int_equal(plan.n_moves, 2);
    assert_int_equal(plan.moves[0].src, 96);
    assert_int_equal(plan.moves[0].dst, 0);
    assert_int_equal(plan.moves[0].bytes, 96);
    assert_int_equal(plan.moves[1].src, 192 + 64);
    assert_int_equal(plan.moves[1].dst, 96);
    assert_int_equal(plan.moves[1].bytes, 64);
    bt_kv_reshard_fini(&plan);
}

/* Two descriptions of a block with scales, and neither counts them twice. */
static void single_rank_blocks_equal_the_layout(void **state)
{
    const bt_kv_shape_t whole = {.n_layers = 30,
                                 .n_kv_heads = 3,
                                 .tokens_per_block = 16,
                                 .head_dim = 64,
                                 .elem_bytes = 1,
                                 .scale_bytes = 4};
    const bt_kv_part_t every = {0, 30, 0, 3};
    size_t bytes = 0;
    bt_kv_reshard_t plan;

    (void)state;
    assert_int_equal(bt_kv_block_bytes(&whole, &bytes), BT_OK);
    plan = plan_of(&whole, &every, &every);
    assert_int_equal(plan.src_block_bytes, bytes);
    assert_int_equal(plan.dst_block_bytes, bytes);
    assert_int_equal(plan.bytes, bytes);
    bt_kv_reshard_fini(&plan);
}

static void walk_check(const bt_kv_reshard_t *plan, bt_kv_end_t end,
                       const uint32_t *ids, uint32_t first, uint32_t n,
                       const bt_kv_piece_t *want, uint32_t n_want)
{
    bt_kv_walk_t walk = bt_kv_walk_begin(plan, end, ids, first, n);
    bt_kv_piece_t piece;

    for (uint32_t i = 0; i < n_want; i++) {
        assert_true(bt_kv_walk_next(&walk, &piece));
        assert_memory_equal(&piece, &want[i], sizeof(piece));
    }
    assert_false(bt_kv_walk_next(&walk, &piece));
    assert_false(bt_kv_walk_next(&walk, &piece));
}

/* By hand; to heads 2 and 3 a source block has 192 bytes, a destination block
 * 96, a window 96 a block. */
static void pieces_are_as_long_as_pool_extents_allow(void **state)
{
    const uint32_t ids[] = {5, 3, 4, 0};
    /* All bytes of the destination's blocks come from this source, so 3 and 4
     * are one piece there. The source has other heads between any two rows. */
    const bt_kv_piece_t dst[] = {{0, 480, 96}, {96, 288, 192}, {288, 0, 96}};
    const bt_kv_piece_t src[] = {
        {0, 984, 24},   {24, 1032, 24}, {48, 1080, 24}, {72, 1128, 24},
        {96, 600, 24},  {120, 648, 24}, {144, 696, 24}, {168, 744, 24},
        {192, 792, 24}, {216, 840, 24}, {240, 888, 24}, {264, 936, 24},
        {288, 24, 24},  {312, 72, 24},  {336, 120, 24}, {360, 168, 24}};
    /* Between equal ranks both are whole blocks. The first was sent before: */
    const bt_kv_piece_t rest[] = {{96, 288, 192}, {288, 0, 96}};
    /* The later of two stages, from a rank that has both: a half of each of
     * the source's blocks. */
    const bt_kv_piece_t stage[] = {
        {0, 1056, 96}, {96, 672, 96}, {192, 864, 96}, {288, 96, 96}};
    const bt_kv_piece_t v[] = {{240, 912, 48}, {336, 144, 48}};
    bt_kv_walk_t walk;
    bt_kv_piece_t piece;
    bt_kv_reshard_t plan;

    (void)state;
    plan = plan_of(&hand, &all, &half);
    walk_check(&plan, BT_KV_DST, ids, 0, 4, dst, BT_ARRAY_LEN(dst));
    walk_check(&plan, BT_KV_SRC, ids, 0, 4, src, BT_ARRAY_LEN(src));
    walk_check(&plan, BT_KV_SRC, ids, 1, 2, src + 4, 4);
    walk_check(&plan, BT_KV_SRC, ids, 2, 2, NULL, 0);
    bt_kv_reshard_fini(&plan);

    plan = plan_of(&hand, &half, &half);
    walk_check(&plan, BT_KV_SRC, ids, 0, 4, dst, BT_ARRAY_LEN(dst));
    walk_check(&plan, BT_KV_SRC, ids, 1, 4, rest, BT_ARRAY_LEN(rest));
    bt_kv_reshard_fini(&plan);

    plan = plan_of(&hand, &all, &late);
    walk_check(&plan, BT_KV_SRC, ids, 0, 4, stage, BT_ARRAY_LEN(stage));
    walk_check(&plan, BT_KV_DST, ids, 0, 4, dst, BT_ARRAY_LEN(dst));
    /* Of the last two blocks the later half of that layer alone, which is v:
     * the later half of each window block. */
    walk = bt_kv_walk_begin(&plan, BT_KV_SRC, ids, 2, 4);
    bt_kv_walk_clip(&walk, 144, 192);
    for (size_t i = 0; i < BT_ARRAY_LEN(v); i++) {
        assert_true(bt_kv_walk_next(&walk, &piece));
        assert_memory_equal(&piece, &v[i], sizeof(piece));
    }
    assert_false(bt_kv_walk_next(&walk, &piece));
    bt_kv_reshard_fini(&plan);

    /* Nothing in common. */
    plan = plan_of(&hand, &early, &late);
    walk_check(&plan, BT_KV_SRC, ids, 0, 4, NULL, 0);
    bt_kv_reshard_fini(&plan);
}

static void impossible_reshard_plans_are_refused(void **state)
{
    const bt_kv_part_t bad[] = {{0, 3, 0, 4},          {1, 2, 0, 4},
                                {0, 2, 1, 4},          {0, 2, 0, 5},
                                {0, 0, 0, 4},          {0, 2, 0, 0},
                                {UINT32_MAX, 2, 0, 4}, {0, 2, UINT32_MAX, 2}};
    const bt_kv_shape_t huge = {.n_layers = UINT32_MAX,
                                .n_kv_heads = UINT32_MAX,
                                .tokens_per_block = 1,
                                .head_dim = 1,
                                .elem_bytes = 1};
    const bt_kv_part_t most = {0, UINT32_MAX, 0, UINT32_MAX};
    bt_kv_reshard_t plan;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_int_equal(bt_kv_reshard_plan(&hand, &bad[i], &all, &plan),
                         BT_ERR_INVALID_PARAM);
        assert_int_equal(bt_kv_reshard_plan(&hand, &all, &bad[i], &plan),
                         BT_ERR_INVALID_PARAM);
    }
    assert_int_equal(bt_kv_reshard_plan(&huge, &most, &most, &plan),
                     BT_ERR_OVERFLOW);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_kv_reshard_plan(&hand, &all, &all, &plan),
                     BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(reshard_parts_match_the_documented_example),
        BT_TEST(reshard_moves_match_hand_worked_values),
        BT_TEST(single_rank_blocks_equal_the_layout),
        BT_TEST(pieces_are_as_long_as_pool_extents_allow),
        BT_TEST(every_pair_of_splits_moves_the_right_bytes_of_8_heads),
        BT_TEST(every_pair_of_splits_moves_the_right_bytes_of_3_heads),
        BT_TEST(scales_move_with_their_heads),
        BT_TEST(impossible_reshard_plans_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
