/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose cache is in groups of layers draws what one with a single
 * group draws, in any company and in any chunks. The expected tokens are those
 * of each sequence alone, its prompt in a single step, in one group. */
#include "common/base/status.h"
#include "common/kv/kv_block_pool.h"
#include "tests/unit/inference/engine/bench.h"

#define N_SEQS 5u
#define MOST   (5u + 23u * N_SEQS + MAX_NEW)

typedef struct drawn {
    uint32_t n_tokens;
    uint32_t tokens[MOST];
} drawn_t;

/* The layers of the tiny model each in a group of its own. */
static bt_kv_groups_t groups_of(const bench_t *b)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(b->kv.type);
    bt_kv_group_t list[BT_KV_MAX_GROUPS] = {0};
    uint8_t group_of[BT_KV_MAX_GROUPS];
    bt_kv_groups_t groups;

    assert_in_range(b->kv.n_layers, 2, BT_KV_MAX_GROUPS);
    for (uint32_t g = 0; g < b->kv.n_layers; g++) {
        list[g].shape = (bt_kv_shape_t){1,
                                        b->kv.n_kv_heads,
                                        T,
                                        b->kv.head_dim,
                                        info->elem_bytes,
                                        info->scale_bytes};
        group_of[g] = (uint8_t)(b->kv.n_layers - 1 - g);
    }
    assert_int_equal(bt_kv_groups_init(list, b->kv.n_layers, group_of,
                                       b->kv.n_layers, &groups),
                     BT_OK);
    return groups;
}

static void take_tokens(const bt_seq_t *seq, drawn_t *out)
{
    out->n_tokens = seq->sched.n_tokens;
    assert_in_range(out->n_tokens, 1, MOST);
    memcpy(out->tokens, seq->tokens, out->n_tokens * sizeof(*out->tokens));
}

static void alone_in_one_group(bt_kv_type_t type, drawn_t want[N_SEQS])
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        bench_t b;
        bt_seq_t *seq;

        open_bench(&b, type, 256);
        seq = make_seq(&b, i, (i % 2 == 0) ? 0.0f : 1.5f);
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        (void)run_until_left(&b, 1);
        take_tokens(seq, &want[i]);
        free_seq(seq);
        close_bench(&b);
    }
}

/* Its spans' blocks from the pool, one of each group. */
static void take_table(bt_kv_pool_t *pool, uint32_t n_groups, bt_seq_t *seq)
{
    const uint32_t n =
        bt_kv_blocks_for(seq->sched.n_tokens + MAX_NEW, T) * n_groups;
    uint32_t *ids = (uint32_t *)(uintptr_t)seq->blocks;

    ids = bt_realloc_array(ids, n, sizeof(*ids));
    assert_non_null(ids);
    assert_int_equal(bt_kv_pool_acquire(pool, n, ids), BT_OK);
    seq->blocks = ids;
}

static void kv_groups_sample_the_tokens_of_one_group(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_F16, BT_KV_BF16, BT_KV_INT8,
                                         BT_KV_FP8};
    static const uint32_t budgets[] = {16, 48, 256, 32};

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(types); k++) {
        drawn_t want[N_SEQS];
        drawn_t got;
        bt_kv_groups_t groups;
        bt_kv_pool_t *pool = NULL;
        bt_seq_t *seqs[N_SEQS];
        bench_t b;

        alone_in_one_group(types[k], want);
        open_bench(&b, types[k], budgets[k]);
        groups = groups_of(&b);
        close_bench(&b);
        open_bench_of(&b, types[k], budgets[k], &groups);
        /* Not a number, in every type: what was not written shows. */
        memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
        assert_int_equal(bt_kv_pool_create(N_BLOCKS, &pool), BT_OK);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            seqs[i] = make_seq(&b, i, (i % 2 == 0) ? 0.0f : 1.5f);
            take_table(pool, groups.n, seqs[i]);
            seqs[i]->clear_tail = (i % 2 != 0);
            assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
        }
        (void)run_until_left(&b, N_SEQS);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            take_tokens(seqs[i], &got);
            assert_int_equal(got.n_tokens, want[i].n_tokens);
            assert_memory_equal(got.tokens, want[i].tokens,
                                got.n_tokens * sizeof(*got.tokens));
            for (uint32_t j = 0;
                 j <
                 bt_kv_blocks_for(seqs[i]->n_prompt + MAX_NEW, T) * groups.n;
                 j++) {
                bt_kv_pool_unref(pool, seqs[i]->blocks[j]);
            }
            free_seq(seqs[i]);
        }
        bt_kv_pool_destroy(pool);
        close_bench(&b);
        bt_kv_groups_fini(&groups);
    }
}

/* A prompt of 28 tokens: the second span is full in part, so a follower has
 * blocks of its own there, in every group, and what the leader computed is
 * copied into all of them. */
static void followers_get_a_copy_in_every_group(void **state)
{
    bt_seq_t *alone[3];
    bt_seq_t *together[3];
    drawn_t want[3];
    drawn_t got;
    bt_kv_groups_t groups;
    bench_t b;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) { /* one group, each by itself */
        open_bench(&b, BT_KV_F16, 256);
        alone[i] = make_seq(&b, 1, 1.5f);
        alone[i]->sampling.seed = 500 + i;
        assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
        (void)run_until_left(&b, 1);
        take_tokens(alone[i], &want[i]);
        free_seq(alone[i]);
        if (i == 2) {
            groups = groups_of(&b);
        }
        close_bench(&b);
    }
    assert_memory_not_equal(want[0].tokens, want[1].tokens,
                            want[0].n_tokens * sizeof(uint32_t));

    open_bench_of(&b, BT_KV_F16, 16, &groups);
    memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t n = bt_kv_blocks_for(28 + MAX_NEW, T) * groups.n;
        uint32_t *ids;

        together[i] = make_seq(&b, 1, 1.5f);
        assert_int_equal(together[i]->n_prompt, 28);
        together[i]->sampling.seed = 500 + i;
        ids = bt_realloc_array((uint32_t *)(uintptr_t)together[i]->blocks, n,
                               sizeof(*ids));
        assert_non_null(ids);
        for (uint32_t j = 0; j < n; j++) { /* span 0 is the leader's */
            ids[j] = (j < groups.n) ? j : 10 + 20 * i + j;
        }
        together[i]->blocks = ids;
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, together, 3), BT_OK);
    (void)run_until_left(&b, 3);
    for (uint32_t i = 0; i < 3; i++) {
        take_tokens(together[i], &got);
        assert_int_equal(got.n_tokens, want[i].n_tokens);
        assert_memory_equal(got.tokens, want[i].tokens,
                            got.n_tokens * sizeof(*got.tokens));
        free_seq(together[i]);
    }
    close_bench(&b);
    bt_kv_groups_fini(&groups);
}

/* Behind a prompt of 28 tokens four places of the last span are free: they are
 * zero in the blocks of all groups, and what lies in the spans before them is
 * not touched by that. */
static void free_positions_are_cleared_in_every_kv_group(void **state)
{
    bt_kv_groups_t groups;
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 256);
    groups = groups_of(&b);
    close_bench(&b);
    open_bench_of(&b, BT_KV_F16, 256, &groups);
    memset(b.pool, 0xee, N_BLOCKS * b.kv.block_bytes);
    seq = make_seq(&b, 1, 0.0f);
    seq->blocks = bt_realloc_array((uint32_t *)(uintptr_t)seq->blocks,
                                   4 * groups.n, sizeof(uint32_t));
    assert_non_null(seq->blocks);
    for (uint32_t j = 0; j < 4 * groups.n; j++) {
        ((uint32_t *)(uintptr_t)seq->blocks)[j] = 3 + 2 * j;
    }
    seq->clear_tail = true;
    seq->leave_after_first = true;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    (void)run_until_left(&b, 1);
    for (uint32_t g = 0; g < groups.n; g++) {
        const uint32_t first = seq->blocks[g];
        const uint32_t last = seq->blocks[groups.n + g];
        const uint8_t *pool = b.pool;
        static const uint8_t left[] = {0xee, 0xee, 0xee, 0xee,
                                       0xee, 0xee, 0xee, 0xee};

        /* Both are filled by the prompt, the second not whole. */
        assert_null(memmem(pool + first * b.kv.block_bytes, b.kv.block_bytes,
                           left, sizeof(left)));
        assert_null(memmem(pool + last * b.kv.block_bytes, b.kv.block_bytes,
                           left, sizeof(left)));
        /* Nobody else's. */
        assert_int_equal(pool[(first + 1) * b.kv.block_bytes], 0xee);
        assert_int_equal(pool[(last + 1) * b.kv.block_bytes], 0xee);
    }
    free_seq(seq);
    close_bench(&b);
    bt_kv_groups_fini(&groups);
}

/* Of 28 tokens with K and V, 12 lie in a span that a fork has to itself: one
 * copy in each group. It draws what the origin drew from there on, whatever
 * the origin has written behind them since. */
static void fork_continues_from_a_copy_in_every_group(void **state)
{
    drawn_t want;
    drawn_t got;
    bt_kv_groups_t groups;
    bt_seq_t *origin;
    bt_seq_t *fork;
    uint32_t n;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_BF16, 256);
    groups = groups_of(&b);
    close_bench(&b);
    open_bench_of(&b, BT_KV_BF16, 256, &groups);
    memset(b.pool, 0xff, N_BLOCKS * b.kv.block_bytes);
    n = bt_kv_blocks_for(28 + MAX_NEW, T) * groups.n;
    origin = make_seq(&b, 1, 1.5f);
    fork = make_seq(&b, 1, 1.5f);
    origin->blocks = bt_realloc_array((uint32_t *)(uintptr_t)origin->blocks, n,
                                      sizeof(uint32_t));
    fork->blocks = bt_realloc_array((uint32_t *)(uintptr_t)fork->blocks, n,
                                    sizeof(uint32_t));
    assert_non_null(origin->blocks);
    assert_non_null(fork->blocks);
    for (uint32_t j = 0; j < n; j++) { /* span 0 is the origin's */
        ((uint32_t *)(uintptr_t)origin->blocks)[j] = 2 * j;
        ((uint32_t *)(uintptr_t)fork->blocks)[j] =
            (j < groups.n) ? 2 * j : 2 * j + 1;
    }
    assert_int_equal(bt_engine_submit(b.engine, origin), BT_OK);
    (void)run_until_left(&b, 1);
    take_tokens(origin, &want);
    assert_int_equal(want.n_tokens, 28 + MAX_NEW);

    /* Its last token is computed again, as of any sequence that comes with its
     * K and V: 27 of them are there. */
    fork->sched.n_computed = 27;
    for (uint32_t g = 0; g < groups.n; g++) {
        fork->copy[g] = (bt_kv_copy_t){.from = origin->blocks[groups.n + g],
                                       .to = fork->blocks[groups.n + g]};
    }
    fork->sampling.seed = origin->sampling.seed;
    assert_int_equal(bt_engine_submit(b.engine, fork), BT_OK);
    (void)run_until_left(&b, 1);
    take_tokens(fork, &got);
    assert_int_equal(got.n_tokens, want.n_tokens);
    assert_memory_equal(got.tokens, want.tokens,
                        got.n_tokens * sizeof(*got.tokens));
    free_seq(fork);
    free_seq(origin);
    close_bench(&b);
    bt_kv_groups_fini(&groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(kv_groups_sample_the_tokens_of_one_group),
        BT_TEST(followers_get_a_copy_in_every_group),
        BT_TEST(fork_continues_from_a_copy_in_every_group),
        BT_TEST(free_positions_are_cleared_in_every_kv_group),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
