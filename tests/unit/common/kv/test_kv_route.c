/* SPDX-License-Identifier: Apache-2.0 */
/* Who exchanges what with whom; and between instances of one rank the pieces
 * that whole blocks and their layers are cut to, with no plan in between. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/kv/kv_route.h"
#include "tests/support/testsupport.h"

#define MAX_IDS 40u

/* h = 12 bytes a head in a block; the picture in kv_route.h. */
static const bt_kv_shape_t hand = {.n_layers = 2,
                                   .n_kv_heads = 4,
                                   .tokens_per_block = 2,
                                   .head_dim = 3,
                                   .elem_bytes = 2};

static bt_kv_groups_t one_of(const bt_kv_shape_t *whole)
{
    bt_kv_groups_t groups;

    assert_int_equal(bt_kv_groups_init(
                         &(bt_kv_group_t){.kind = BT_KV_PAGED, .shape = *whole},
                         1, NULL, whole->n_layers, &groups),
                     BT_OK);
    return groups;
}

static bt_kv_route_t route_of(const bt_kv_groups_t *groups, bt_kv_end_t end,
                              bt_kv_split_t mine, uint32_t rank,
                              bt_kv_split_t theirs)
{
    bt_kv_route_t route;

    assert_int_equal(
        bt_kv_route_make(groups, end, &mine, rank, &theirs, &route), BT_OK);
    return route;
}

static void single_ranks_move_each_block_in_one_piece(void **state)
{
    const bt_kv_split_t one = {1, 1};
    bt_kv_shape_t scaled = hand;
    bt_kv_groups_t groups = one_of(&hand);
    bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, one);

    (void)state;
    assert_int_equal(route.n_pairs, 1);
    assert_int_equal(route.pairs[0].rank, 0);
    assert_int_equal(route.pairs[0].plan[0].n_moves, 1);
    assert_int_equal(route.pairs[0].plan[0].bytes, 2 * 2 * 4 * 12);
    bt_kv_route_fini(&route);
    scaled.elem_bytes = 1;
    scaled.scale_bytes = 4;
    groups = one_of(&scaled);
    route = route_of(&groups, BT_KV_DST, one, 0, one);
    assert_int_equal(route.n_pairs, 1);
    assert_int_equal(route.pairs[0].plan[0].n_moves, 1);
    assert_int_equal(route.pairs[0].plan[0].bytes, 2 * 2 * 4 * 2 * (3 + 4));
    bt_kv_route_fini(&route);
}

/* By hand: rank 3 of 2 x 2 has layer 1, heads 2 and 3. */
static void shard_map_pairs_ranks_with_common_heads_or_layers(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_split_t slices = {4, 1};
    const bt_kv_split_t stages = {1, 2};
    const bt_kv_split_t both = {2, 2};
    const bt_kv_groups_t groups = one_of(&hand);
    bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, both);

    (void)state;
    assert_int_equal(route.n_pairs, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(route.pairs[i].rank, i);
        assert_int_equal(route.pairs[i].plan[0].bytes, 2 * 2 * 12);
        assert_int_equal(route.pairs[i].plan[0].src_block_bytes, 16 * 12);
        assert_int_equal(route.pairs[i].plan[0].dst_block_bytes, 4 * 12);
    }
    bt_kv_route_fini(&route);

    route = route_of(&groups, BT_KV_DST, both, 3, slices);
    assert_int_equal(route.n_pairs, 2);
    assert_int_equal(route.pairs[0].rank, 2); /* heads 2 */
    assert_int_equal(route.pairs[1].rank, 3); /* and 3 */
    assert_int_equal(route.pairs[0].plan[0].src_block_bytes, 4 * 12);
    assert_int_equal(route.pairs[0].plan[0].dst_block_bytes, 4 * 12);
    assert_int_equal(route.pairs[0].plan[0].bytes, 2 * 12); /* k and v */
    bt_kv_route_fini(&route);

    route = route_of(&groups, BT_KV_SRC, both, 3, stages);
    assert_int_equal(route.n_pairs, 1);
    assert_int_equal(route.pairs[0].rank, 1); /* layer 1 */
    assert_int_equal(route.pairs[0].plan[0].bytes, 4 * 12);
    bt_kv_route_fini(&route);
}

static void impossible_shard_split_is_refused(void **state)
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
    const bt_kv_groups_t groups = one_of(&hand);
    bt_kv_route_t route = {.n_pairs = 77};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_kv_route_make(&groups, BT_KV_SRC, &cases[i].mine,
                                          cases[i].rank, &cases[i].theirs,
                                          &route),
                         BT_ERR_INVALID_PARAM);
    }
    assert_int_equal(route.n_pairs, 77);
}

static void failed_allocation_leaves_no_shard_map(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_split_t both = {2, 2};
    const bt_kv_groups_t groups = one_of(&hand);
    bt_kv_route_t route;

    (void)state;
    for (int nth = 1; nth <= 5; nth++) { /* the pairs, four plans */
        bt_alloc_fail_at(nth);
        assert_int_equal(
            bt_kv_route_make(&groups, BT_KV_SRC, &one, 0, &both, &route),
            BT_ERR_NO_MEMORY);
    }
    bt_alloc_fail_at(0);
}

/* ---- pieces ---- */

typedef struct pieces {
    uint32_t n;
    bt_kv_piece_t all[MAX_IDS];
} pieces_t;

static void add(pieces_t *pieces, uint64_t region, uint64_t pool,
                uint64_t bytes)
{
    assert_true(pieces->n < MAX_IDS);
    pieces->all[pieces->n++] =
        (bt_kv_piece_t){.region = region, .pool = pool, .bytes = bytes};
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
        assert_int_equal(piece.region, want->all[n].region);
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
        const bt_kv_groups_t groups = one_of(&shapes[s]);
        bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, one);
        const bt_kv_reshard_t *plan = &route.pairs[0].plan[0];
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

/* ---- sequences ---- */

/* By hand: a handover of 3 spans walks as the blocks themselves do. */
static void sequence_of_one_group_transfers_only_missing_blocks(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_groups_t groups = one_of(&hand);
    bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, one);
    const uint64_t block = groups.page_bytes;
    const uint32_t table[] = {9, 4, 5, 6, 2};
    const bt_kv_handover_t handover = {.groups = &groups,
                                       .pair = &route.pairs[0],
                                       .n_tokens = 9, /* 5 spans of 2 */
                                       .n_cached = 1};
    pieces_t want = {0};

    (void)state;
    assert_int_equal(block, 2 * 2 * 4 * 12);
    assert_int_equal(bt_kv_handover_bytes(&handover), 4 * block);
    add(&want, 0, 4 * block, 3 * block);
    add(&want, 3 * block, 2 * block, block);
    assert_walk(bt_kv_handover_walk(&handover, 0, BT_KV_SRC, table, 0, 99),
                &want);
    want.n = 0; /* of what is finished */
    add(&want, block, 5 * block, 2 * block);
    assert_walk(bt_kv_handover_walk(&handover, 0, BT_KV_DST, table, 2, 4),
                &want);
    want.n = 0;
    assert_walk(bt_kv_handover_walk(&handover, 0, BT_KV_SRC, table, 0, 1),
                &want);
    assert_walk(bt_kv_handover_walk(&handover, 0, BT_KV_SRC, table, 5, 5),
                &want);
    bt_kv_route_fini(&route);
}

/* Three groups of a model of 6 layers, spans of 2 tokens; h = 12 bytes a head:
 *     0  layers 0, 3       4 heads: 2 x 2 x 4 x 12 = 192 bytes a block
 *     1  layers 1, 2, 4    2 heads: 3 x 2 x 2 x 12 = 144, a window of 4 tokens
 *     2  layer 5           a state of 100
 * A page has 192. Of 9 tokens the next one sees in group 1 those from 6 on, so
 * spans 3 and 4; of group 2 the last span counts, 4. */
static bt_kv_groups_t three_groups(void)
{
    static const uint8_t group_of[] = {0, 1, 1, 0, 1, 2};
    bt_kv_group_t list[3] = {{.shape = hand}, {.shape = hand}, {0}};
    bt_kv_groups_t groups;

    list[1].shape.n_layers = 3;
    list[1].shape.n_kv_heads = 2;
    list[1].window_tokens = 4;
    list[2].kind = BT_KV_STATE;
    list[2].shape.n_layers = 1;
    list[2].shape.tokens_per_block = 2;
    list[2].state_bytes = 100;
    assert_int_equal(bt_kv_groups_init(list, 3, group_of, 6, &groups), BT_OK);
    return groups;
}

static void groups_are_consecutive_in_a_receive_region(void **state)
{
    const bt_kv_split_t one = {1, 1};
    bt_kv_groups_t groups = three_groups();
    bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, one);
    /* spans 0 .. 4, three ids each */
    const uint32_t table[] = {7, 1, 2, 8, 3, 4, 9, 5, 6, 10, 11, 0, 20, 12, 13};
    bt_kv_handover_t handover = {.groups = &groups,
                                 .pair = &route.pairs[0],
                                 .n_tokens = 9,
                                 .n_cached = 1};
    pieces_t want = {0};
    bt_kv_walk_t walk;

    (void)state;
    assert_int_equal(route.n_pairs, 1);
    assert_int_equal(route.pairs[0].src_page_bytes, 192);
    assert_int_equal(bt_kv_handover_bytes(&handover), 4 * 192 + 2 * 144 + 100);
    add(&want, 0, 8 * 192, 3 * 192); /* ids 8, 9 and 10, whole pages */
    add(&want, 3 * 192, 20 * 192, 192);
    assert_walk(bt_kv_handover_walk(&handover, 0, BT_KV_SRC, table, 0, 5),
                &want);
    want.n =
        0; /* ids 11 and 12 are neighbours, but their pages have room left */
    add(&want, 4 * 192, 11 * 192, 144);
    add(&want, 4 * 192 + 144, 12 * 192, 144);
    assert_walk(bt_kv_handover_walk(&handover, 1, BT_KV_DST, table, 0, 5),
                &want);
    want.n = 0;
    add(&want, 4 * 192 + 2 * 144, 13 * 192, 100);
    assert_walk(bt_kv_handover_walk(&handover, 2, BT_KV_SRC, table, 0, 5),
                &want);
    want.n = 0; /* after three spans: nothing yet of the last ones */
    assert_walk(bt_kv_handover_walk(&handover, 1, BT_KV_SRC, table, 1, 3),
                &want);
    /* Layers 0 and 1 are done: the first of group 0 and of group 1. */
    walk = bt_kv_handover_walk(&handover, 1, BT_KV_SRC, table, 0, 5);
    bt_kv_walk_clip(&walk, 0, bt_kv_group_bytes_of(&groups, 1, 2));
    add(&want, 4 * 192, 11 * 192, 48);
    add(&want, 4 * 192 + 144, 12 * 192, 48);
    assert_walk(walk, &want);
    bt_kv_route_fini(&route);
    bt_kv_groups_fini(&groups);
}

/* Stages: of two, one has layers 0, 1 and 2, the other 3, 4 and 5. Slices: the
 * heads of both groups, and none of a state. */
static void groups_are_split_each_by_its_own_layers_and_heads(void **state)
{
    const bt_kv_split_t one = {1, 1};
    const bt_kv_split_t stages = {1, 2};
    const bt_kv_split_t slices = {2, 1};
    bt_kv_groups_t groups = three_groups();
    bt_kv_route_t route = route_of(&groups, BT_KV_SRC, one, 0, stages);

    (void)state;
    assert_int_equal(route.n_pairs, 2);
    assert_int_equal(route.pairs[0].plan[0].bytes, 96);  /* layer 0 */
    assert_int_equal(route.pairs[0].plan[1].bytes, 96);  /* 1 and 2 */
    assert_int_equal(route.pairs[0].plan[2].n_moves, 0); /* 5 is over there */
    assert_int_equal(route.pairs[0].dst_page_bytes, 96);
    assert_int_equal(route.pairs[1].plan[0].bytes, 96); /* layer 3 */
    assert_int_equal(route.pairs[1].plan[1].bytes, 48); /* 4 */
    assert_int_equal(route.pairs[1].plan[1].moves[0].src, 96);
    assert_int_equal(route.pairs[1].plan[2].bytes, 100);
    assert_int_equal(route.pairs[1].dst_page_bytes, 100);
    bt_kv_route_fini(&route);
    assert_int_equal(
        bt_kv_route_make(&groups, BT_KV_SRC, &one, 0, &slices, &route),
        BT_ERR_UNSUPPORTED);
    groups.group[2] = groups.group[0]; /* no state: then it can be sliced */
    groups.group[2].shape.n_layers = 1;
    route = route_of(&groups, BT_KV_SRC, one, 0, slices);
    assert_int_equal(route.n_pairs, 2);
    assert_int_equal(route.pairs[1].plan[1].n_moves, 6); /* 3 layers, k and v */
    assert_int_equal(route.pairs[1].plan[1].bytes, 72);
    bt_kv_route_fini(&route);
    bt_kv_groups_fini(&groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(single_ranks_move_each_block_in_one_piece),
        BT_TEST(shard_map_pairs_ranks_with_common_heads_or_layers),
        BT_TEST(impossible_shard_split_is_refused),
        BT_TEST(failed_allocation_leaves_no_shard_map),
        BT_TEST(one_rank_to_one_posts_the_pieces_of_whole_blocks),
        BT_TEST(sequence_of_one_group_transfers_only_missing_blocks),
        BT_TEST(groups_are_consecutive_in_a_receive_region),
        BT_TEST(groups_are_split_each_by_its_own_layers_and_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
