/* SPDX-License-Identifier: Apache-2.0 */
/* Who exchanges what with whom; and between instances of one rank the pieces
 * that whole blocks and their layers are cut to, with no plan in between. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/kv/kv_route.h"
#include "tests/support/testsupport.h"

#define MAX_IDS 40u

/* h = 12 bytes a head in a block; the picture in kv_reshard.h. */
static const bt_kv_shape_t hand = {.n_layers = 2,
                                   .n_kv_heads = 4,
                                   .tokens_per_block = 2,
                                   .head_dim = 3,
                                   .elem_bytes = 2};

static bt_kv_route_t route_of(const bt_kv_shape_t *whole, bt_kv_end_t end,
                              bt_kv_split_t mine, uint32_t rank,
                              bt_kv_split_t theirs)
{
    bt_kv_route_t route;

    assert_int_equal(bt_kv_route_make(whole, end, &mine, rank, &theirs, &route),
                     BT_OK);
    return route;
}

static void between_single_ranks_a_block_is_one_move(void **state)
{
    const bt_kv_split_t one = {1, 1};
    bt_kv_shape_t scaled = hand;
    bt_kv_route_t route = route_of(&hand, BT_KV_SRC, one, 0, one);

    (void)state;
    assert_int_equal(route.n_lanes, 1);
    assert_int_equal(route.lanes[0].rank, 0);
    assert_int_equal(route.lanes[0].plan.n_moves, 1);
    assert_int_equal(route.lanes[0].plan.bytes, 2 * 2 * 4 * 12);
    bt_kv_route_fini(&route);
    scaled.elem_bytes = 1;
    scaled.scale_bytes = 4;
    route = route_of(&scaled, BT_KV_DST, one, 0, one);
    assert_int_equal(route.n_lanes, 1);
    assert_int_equal(route.lanes[0].plan.n_moves, 1);
    assert_int_equal(route.lanes[0].plan.bytes, 2 * 2 * 4 * 2 * (3 + 4));
    bt_kv_route_fini(&route);
}

/* By hand: rank 3 of 2 x 2 has layer 1, heads 2 and 3. */
static void a_lane_leads_to_each_rank_that_has_something_in_common(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_split_t slices = {4, 1};
    const bt_kv_split_t stages = {1, 2};
    const bt_kv_split_t both = {2, 2};
    bt_kv_route_t route = route_of(&hand, BT_KV_SRC, one, 0, both);

    (void)state;
    assert_int_equal(route.n_lanes, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(route.lanes[i].rank, i);
        assert_int_equal(route.lanes[i].plan.bytes, 2 * 2 * 12);
        assert_int_equal(route.lanes[i].plan.src_block_bytes, 16 * 12);
        assert_int_equal(route.lanes[i].plan.dst_block_bytes, 4 * 12);
    }
    bt_kv_route_fini(&route);

    route = route_of(&hand, BT_KV_DST, both, 3, slices);
    assert_int_equal(route.n_lanes, 2);
    assert_int_equal(route.lanes[0].rank, 2); /* heads 2 */
    assert_int_equal(route.lanes[1].rank, 3); /* and 3 */
    assert_int_equal(route.lanes[0].plan.src_block_bytes, 4 * 12);
    assert_int_equal(route.lanes[0].plan.dst_block_bytes, 4 * 12);
    assert_int_equal(route.lanes[0].plan.bytes, 2 * 12); /* k and v */
    bt_kv_route_fini(&route);

    route = route_of(&hand, BT_KV_SRC, both, 3, stages);
    assert_int_equal(route.n_lanes, 1);
    assert_int_equal(route.lanes[0].rank, 1); /* layer 1 */
    assert_int_equal(route.lanes[0].plan.bytes, 4 * 12);
    bt_kv_route_fini(&route);
}

static void a_split_that_the_model_does_not_allow_is_refused(void **state)
{
    static const struct {
        bt_kv_split_t mine, theirs;
        uint32_t rank;
    } cases[] = {
        {{0, 1}, {1, 1}, 0},
        {{1, 1}, {1, 0}, 0},
        {{1, 1}, {0, 0}, 0},
        {{1, 1}, {1, 1}, 1},
        {{1, 1}, {5, 1}, 0},
        {{1, 1}, {1, 3}, 0},
        {{5, 1}, {1, 1}, 0},
        {{2, 2}, {1, 1}, 4},
        {{1, 1}, {UINT32_MAX, UINT32_MAX}, 0},
    };
    bt_kv_route_t route = {.n_lanes = 77};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_kv_route_make(&hand, BT_KV_SRC, &cases[i].mine,
                                          cases[i].rank, &cases[i].theirs,
                                          &route),
                         BT_ERR_INVALID_PARAM);
    }
    assert_int_equal(route.n_lanes, 77);
}

static void memory_that_is_short_leaves_nothing(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_split_t both = {2, 2};
    bt_kv_route_t route;

    (void)state;
    for (int nth = 1; nth <= 5; nth++) { /* the lanes, four plans */
        bt_alloc_fail_at(nth);
        assert_int_equal(
            bt_kv_route_make(&hand, BT_KV_SRC, &one, 0, &both, &route),
            BT_ERR_NO_MEMORY);
    }
    bt_alloc_fail_at(0);
}

/* ---- pieces ---- */

typedef struct pieces {
    uint32_t n;
    bt_kv_piece_t all[MAX_IDS];
} pieces_t;

static void add(pieces_t *pieces, uint64_t window, uint64_t pool,
                uint64_t bytes)
{
    assert_true(pieces->n < MAX_IDS);
    pieces->all[pieces->n++] =
        (bt_kv_piece_t){.window = window, .pool = pool, .bytes = bytes};
}

/* What leaves or is laid open, without a plan: neighbours as one piece. */
static pieces_t whole_blocks(const uint32_t *ids, uint32_t first, uint32_t n,
                             uint64_t block_bytes)
{
    pieces_t pieces = {0};

    for (uint32_t i = first; i < n;) {
        uint32_t end = i + 1;

        while ((end < n) && (ids[end] == ids[end - 1] + 1)) {
            end++;
        }
        add(&pieces, i * block_bytes, ids[i] * block_bytes,
            (end - i) * block_bytes);
        i = end;
    }
    return pieces;
}

/* Bytes [from, to) of each block. */
static pieces_t parts_of_blocks(const uint32_t *ids, uint32_t first, uint32_t n,
                                uint64_t block_bytes, uint64_t from,
                                uint64_t to)
{
    pieces_t pieces = {0};

    for (uint32_t i = first; i < n; i++) {
        add(&pieces, i * block_bytes + from, ids[i] * block_bytes + from,
            to - from);
    }
    return pieces;
}

static void assert_walk(bt_kv_walk_t walk, const pieces_t *want)
{
    bt_kv_piece_t piece;
    uint32_t n = 0;

    for (; bt_kv_walk_next(&walk, &piece); n++) {
        assert_true(n < want->n);
        assert_int_equal(piece.window, want->all[n].window);
        assert_int_equal(piece.pool, want->all[n].pool);
        assert_int_equal(piece.bytes, want->all[n].bytes);
    }
    assert_int_equal(n, want->n);
}

/* Blocks as a pool gives them: runs of any length, up and down. */
static uint32_t some_ids(uint32_t seed, uint32_t *ids)
{
    const uint32_t n = 1 + seed % MAX_IDS;
    uint32_t next = seed * 7919u;

    for (uint32_t i = 0; i < n; i++) {
        next = (next * 1664525u + 1013904223u);
        ids[i] = ((i > 0) && ((next >> 28) < 11)) ? ids[i - 1] + 1
                                                  : (next >> 8) % 1000;
    }
    return n;
}

static void one_rank_to_one_posts_the_pieces_of_whole_blocks(void **state)
{
    static const bt_kv_shape_t shapes[] = {
        {.n_layers = 30,
         .n_kv_heads = 3,
         .tokens_per_block = 16,
         .head_dim = 64,
         .elem_bytes = 2},
        {.n_layers = 30,
         .n_kv_heads = 3,
         .tokens_per_block = 16,
         .head_dim = 64,
         .elem_bytes = 1,
         .scale_bytes = 4},
        {.n_layers = 1,
         .n_kv_heads = 1,
         .tokens_per_block = 2,
         .head_dim = 2,
         .elem_bytes = 2},
    };
    const bt_kv_split_t one = {1, 1};

    (void)state;
    for (size_t s = 0; s < BT_ARRAY_LEN(shapes); s++) {
        const uint64_t layer = bt_kv_layer_bytes(&shapes[s]);
        bt_kv_route_t route = route_of(&shapes[s], BT_KV_SRC, one, 0, one);
        const bt_kv_reshard_t *plan = &route.lanes[0].plan;
        const uint64_t block = plan->src_block_bytes;

        for (uint32_t seed = 0; seed < 2000; seed++) {
            uint32_t ids[MAX_IDS];
            const uint32_t n = some_ids(seed, ids);
            const uint32_t first = seed % (n + 1);
            pieces_t want = whole_blocks(ids, first, n, block);
            bt_kv_walk_t walk =
                bt_kv_walk_begin(plan, BT_KV_SRC, ids, first, n);

            assert_walk(walk, &want);
            assert_walk(bt_kv_walk_begin(plan, BT_KV_DST, ids, first, n),
                        &want);
            if (shapes[s].n_layers == 1) {
                continue;
            }
            bt_kv_walk_clip(&walk, 0, 4 * layer);
            want = parts_of_blocks(ids, first, n, block, 0, 4 * layer);
            assert_walk(walk, &want);
            bt_kv_walk_clip(&walk, 4 * layer, block);
            want = parts_of_blocks(ids, first, n, block, 4 * layer, block);
            assert_walk(walk, &want);
        }
        bt_kv_route_fini(&route);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(between_single_ranks_a_block_is_one_move),
        BT_TEST(a_lane_leads_to_each_rank_that_has_something_in_common),
        BT_TEST(a_split_that_the_model_does_not_allow_is_refused),
        BT_TEST(memory_that_is_short_leaves_nothing),
        BT_TEST(one_rank_to_one_posts_the_pieces_of_whole_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
