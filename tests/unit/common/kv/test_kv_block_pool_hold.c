/* SPDX-License-Identifier: Apache-2.0 */
/* What sequences hold of windowed groups, over a pool with a prefix index.
 * Expected values worked by hand; in random lives the claim is that of
 * kv_block_pool.h: who has begun always gets the blocks that its windows slide
 * to, and nothing is left behind. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"
#include "common/kv/kv_prefix.h"

#define T  4u
#define NO BT_KV_NO_BLOCK

static const bt_kv_shape_t shape = {.n_layers = 1,
                                    .n_kv_heads = 1,
                                    .tokens_per_block = T,
                                    .head_dim = 2,
                                    .elem_bytes = 2};

/* A group for each window; 0: whole. */
static bt_kv_groups_t groups_of(const uint32_t *windows, uint32_t n)
{
    bt_kv_group_t list[BT_KV_MAX_GROUPS] = {0};
    uint8_t group_of[BT_KV_MAX_GROUPS];
    bt_kv_groups_t groups;

    for (uint32_t g = 0; g < n; g++) {
        list[g].shape = shape;
        list[g].window_tokens = windows[g];
        group_of[g] = (uint8_t)g;
    }
    assert_int_equal(bt_kv_groups_init(list, n, group_of, n, &groups), BT_OK);
    return groups;
}

/* Spans of 4, a window of 10: nine positions before the next one, and 6 ahead.
 * 15 neighbours touch 5 spans at most: from position 3 to 17. */
static void attention_window_bounds_its_block_count(void **state)
{
    bt_kv_group_t group = {.shape = shape, .window_tokens = 10};

    (void)state;
    assert_int_equal(bt_kv_group_most_spans(&group, 6), 5);
    assert_int_equal(bt_kv_group_most_spans(&group, 7), 5); /* 16: 3 .. 18 */
    assert_int_equal(bt_kv_group_most_spans(&group, 8), 6);
    /* Wherever the window stands, it is never more. */
    for (uint32_t window = 1; window < 30; window++) {
        for (uint32_t ahead = 1; ahead < 20; ahead++) {
            group.window_tokens = window;
            for (uint32_t n = 0; n < 60; n++) {
                assert_in_range(bt_kv_blocks_for(n + ahead, T) -
                                    bt_kv_group_first_span(&group, n),
                                0, bt_kv_group_most_spans(&group, ahead));
            }
        }
    }
}

/* One whole group, one with a window of 10 and 6 ahead: 5 spans. A sequence of
 * 40 tokens, 10 spans. */
static void sliding_window_keeps_its_block_count(void **state)
{
    static const uint32_t windows[] = {0, 10};
    const bt_kv_reach_t reach = {
        .n_spans = 10, .n_most = 10, .ahead_tokens = 6};
    bt_kv_groups_t groups = groups_of(windows, 2);
    bt_kv_hold_t hold = {0};
    uint32_t table[20];
    uint32_t ids[15];
    bt_kv_pool_t *pool;

    (void)state;
    memset(table, 0xff, sizeof(table));
    assert_int_equal(bt_kv_pool_create(16, &pool), BT_OK);
    assert_int_equal(bt_kv_reach_blocks(&groups, &reach), 15);
    assert_int_equal(bt_kv_hold_lacks(&groups, &hold, &reach), 15);
    assert_int_equal(bt_kv_pool_acquire(pool, 15, ids), BT_OK);
    bt_kv_hold_fill(&groups, pool, &hold, &reach, ids, table);
    assert_int_equal(bt_kv_hold_end(&groups, &hold), 5);
    assert_int_equal(bt_kv_hold_blocks(&groups, &hold), 15);
    assert_int_equal(bt_kv_pool_n_windowed(pool), 5);
    assert_int_equal(table[8], 4);      /* span 4 of the whole group */
    assert_int_equal(table[9], 10 + 4); /* and of the window */
    assert_int_equal(table[11], NO);

    /* Of 12 tokens position 12 sees 3 .. 12: nothing passes. Of 13 it is 4 ..
     * 13: span 0. */
    assert_false(bt_kv_hold_passes(&groups, &hold, 12));
    assert_true(bt_kv_hold_passes(&groups, &hold, 13));
    assert_int_equal(bt_kv_hold_pass(&groups, pool, &hold, table, 13), 1);
    assert_int_equal(bt_kv_pool_n_free(pool), 2);
    assert_int_equal(bt_kv_hold_lacks(&groups, &hold, &reach), 1);
    assert_int_equal(bt_kv_pool_acquire(pool, 1, ids), BT_OK);
    bt_kv_hold_fill(&groups, pool, &hold, &reach, ids, table);
    assert_int_equal(table[11], ids[0]);
    assert_int_equal(bt_kv_hold_end(&groups, &hold), 6);
    assert_int_equal(bt_kv_hold_blocks(&groups, &hold), 15);

    /* After 38 tokens 29 .. 38 are seen, from span 7 on; the table ends with
     * span 9: two blocks are too many. */
    assert_int_equal(bt_kv_hold_pass(&groups, pool, &hold, table, 38), 5);
    assert_int_equal(hold.first[1], 7);
    assert_int_equal(bt_kv_hold_lacks(&groups, &hold, &reach), 3);
    assert_int_equal(bt_kv_pool_acquire(pool, 3, ids), BT_OK);
    bt_kv_hold_fill(&groups, pool, &hold, &reach, ids, table);
    assert_int_equal(bt_kv_hold_end(&groups, &hold), 10);
    assert_int_equal(bt_kv_hold_blocks(&groups, &hold), 13);
    bt_kv_hold_return(&groups, pool, &hold, table);
    assert_int_equal(bt_kv_pool_n_free(pool), 16);
    bt_kv_pool_destroy(pool);
    bt_kv_groups_fini(&groups);
}

/* KV of 30 tokens comes from elsewhere, the window needs 21 .. 29 of it: spans
 * 5 .. 7. What was found ends before: the window begins behind it. */
static void received_kv_is_held_from_the_window_start(void **state)
{
    static const uint32_t windows[] = {0, 10};
    const bt_kv_reach_t reach = {
        .n_spans = 10, .n_most = 10, .ahead_tokens = 6};
    bt_kv_groups_t groups = groups_of(windows, 2);
    bt_kv_hold_t hold = {0};

    (void)state;
    bt_kv_hold_found(&groups, &hold, 3, 30);
    assert_int_equal(hold.first[0], 0);
    assert_int_equal(hold.end[0], 3);
    assert_int_equal(hold.first[1], 5);
    assert_int_equal(hold.end[1], 5);
    assert_int_equal(bt_kv_hold_blocks(&groups, &hold), 3);
    /* 7 more spans of the one, 5 of the other. */
    assert_int_equal(bt_kv_hold_lacks(&groups, &hold, &reach), 12);
    bt_kv_hold_found(&groups, &hold, 6, 30);
    assert_int_equal(hold.first[1], 5);
    assert_int_equal(hold.end[1], 6);
    bt_kv_groups_fini(&groups);
}

/* ---- random lives ---- */

#define LIVES    120u
#define STEPS    400u
#define BLOCKS   60u
#define RUNNING  5u
#define N_SPANS  12u
#define N_TOKENS (N_SPANS * T)

typedef struct life {
    bt_kv_pool_t *pool;
    bt_kv_prefix_t *index;
    bt_kv_groups_t groups;
    unsigned seed;
    /* What each block was last filled with: position and hash of a beginning.
     */
    uint64_t filled[BLOCKS];
    uint64_t n_slid, n_shared, n_refused;
} life_t;

typedef struct seq {
    bool runs;
    uint32_t tokens[N_TOKENS];
    uint32_t n_all; /* tokens in the end */
    uint32_t n;     /* that are computed */
    bt_kv_reach_t reach;
    bt_kv_hold_t hold;
    uint32_t table[N_SPANS * BT_KV_MAX_GROUPS];
} seq_t;

static uint32_t below(life_t *l, uint32_t n)
{
    return (uint32_t)rand_r(&l->seed) % n;
}

static uint64_t beginning(const uint32_t *tokens, uint32_t n)
{
    uint64_t hash = 7 + n;

    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ (tokens[i] + 1)) * 0x9E3779B97F4A7C15u;
    }
    return hash;
}

/* As worker/job.c does: evict what is idle, then take. */
static void take(life_t *l, uint32_t n, uint32_t *ids)
{
    const uint32_t n_free = bt_kv_pool_n_free(l->pool);

    if (n > n_free) {
        assert_in_range(bt_kv_prefix_evict(l->index, n - n_free), n - n_free,
                        BLOCKS);
    }
    assert_int_equal(bt_kv_pool_acquire(l->pool, n, ids), BT_OK);
}

static void reach_out(life_t *l, seq_t *s)
{
    const uint32_t n = bt_kv_hold_lacks(&l->groups, &s->hold, &s->reach);
    uint32_t ids[BLOCKS];

    assert_in_range(n, 0, BLOCKS);
    take(l, n, ids);
    bt_kv_hold_fill(&l->groups, l->pool, &s->hold, &s->reach, ids, s->table);
}

/* What is seen from n on is what was filled, of every group. */
static void check_seen(const life_t *l, const seq_t *s)
{
    for (uint32_t g = 0; g < l->groups.n; g++) {
        const uint32_t first =
            bt_kv_group_first_span(&l->groups.group[g], s->n);

        for (uint32_t i = first; i < s->n / T; i++) {
            const uint32_t id = s->table[i * l->groups.n + g];

            assert_in_range(id, 0, BLOCKS - 1);
            assert_int_equal(l->filled[id], beginning(s->tokens, (i + 1) * T));
        }
    }
}

static void begin(life_t *l, seq_t *s)
{
    uint32_t n_found;
    uint32_t need;

    memset(s, 0, sizeof(*s));
    memset(s->table, 0xff, sizeof(s->table));
    s->n_all = T + below(l, N_TOKENS - T + 1);
    for (uint32_t i = 0; i < s->n_all; i++) {
        s->tokens[i] = (i % T == 0) ? below(l, 2) : 0;
    }
    s->reach.n_spans = s->reach.n_most = bt_kv_blocks_for(s->n_all, T);
    s->reach.ahead_tokens = 2 * T;
    n_found = bt_kv_prefix_match(l->index, (bt_hash128_t){0, 0}, s->tokens,
                                 (s->n_all - 1) / T, 0, s->table);
    bt_kv_hold_found(&l->groups, &s->hold, n_found, 0);
    s->n = n_found * T;
    need = (uint32_t)bt_kv_reach_blocks(&l->groups, &s->reach) -
           bt_kv_hold_blocks(&l->groups, &s->hold) +
           bt_kv_pool_n_overdrawn(l->pool);
    if (need > bt_kv_pool_n_available(l->pool)) {
        bt_kv_hold_return(&l->groups, l->pool, &s->hold, s->table);
        l->n_refused++;
        return;
    }
    reach_out(l, s);
    s->runs = true;
    check_seen(l, s);
}

static void finish(life_t *l, seq_t *s)
{
    if (below(l, 3) > 0) {
        bt_kv_prefix_insert(l->index, (bt_hash128_t){0, 0}, s->tokens, s->n / T,
                            s->table, &s->hold);
    }
    bt_kv_hold_return(&l->groups, l->pool, &s->hold, s->table);
    s->runs = false;
}

static void compute(life_t *l, seq_t *s)
{
    const uint32_t end = bt_kv_hold_end(&l->groups, &s->hold) * T;
    uint32_t n = s->n + 1 + below(l, 2 * T);

    n = (n < end) ? n : end;
    n = (n < s->n_all) ? n : s->n_all;
    assert_true(n > s->n); /* it never waits */
    for (uint32_t i = s->n / T; i < n / T; i++) {
        for (uint32_t g = 0; g < l->groups.n; g++) {
            l->filled[s->table[i * l->groups.n + g]] =
                beginning(s->tokens, (i + 1) * T);
        }
    }
    s->n = n;
    if (n == s->n_all) {
        finish(l, s);
        return;
    }
    if (below(l, 2) == 0) {
        bt_kv_prefix_insert(l->index, (bt_hash128_t){0, 0}, s->tokens, n / T,
                            s->table, &s->hold);
    }
    l->n_slid += bt_kv_hold_pass(&l->groups, l->pool, &s->hold, s->table, n);
    reach_out(l, s);
    check_seen(l, s);
}

/* By the tables of all: how often each block is held, and what that sets
 * aside. */
static void check_counts(life_t *l, const seq_t *seqs)
{
    uint32_t holders[BLOCKS] = {0};
    uint32_t n_held = 0;
    uint32_t n_aside = 0;

    for (uint32_t k = 0; k < RUNNING; k++) {
        for (uint32_t g = 0; seqs[k].runs && (g < l->groups.n); g++) {
            for (uint32_t i = seqs[k].hold.first[g]; i < seqs[k].hold.end[g];
                 i++) {
                const uint32_t id = seqs[k].table[i * l->groups.n + g];

                holders[id]++;
                n_held += holders[id] == 1;
                if (bt_kv_group_is_windowed(&l->groups.group[g]) &&
                    (holders[id] > 1)) {
                    n_aside++;
                }
            }
        }
    }
    assert_int_equal(bt_kv_pool_n_set_aside(l->pool), n_aside);
    assert_int_equal(bt_kv_pool_n_free(l->pool) + bt_kv_pool_n_idle(l->pool),
                     BLOCKS - n_held);
    l->n_shared += n_aside;
}

static void one_life(unsigned seed, uint64_t sums[3])
{
    static const uint32_t windows[][4] = {{6},    {0, 6}, {6, 0, 6, 6},
                                          {9, 3}, {1, 0}, {13, 5, 0}};
    static const uint32_t n_groups[] = {1, 2, 4, 2, 2, 3};
    life_t l = {.seed = seed,
                .groups = groups_of(windows[seed % 6], n_groups[seed % 6])};
    static seq_t seqs[RUNNING];
    uint32_t n_idle;

    memset(seqs, 0, sizeof(seqs));
    assert_int_equal(bt_kv_pool_create(BLOCKS, &l.pool), BT_OK);
    assert_int_equal(
        bt_kv_prefix_create(l.pool, BLOCKS, &l.groups, 7, &l.index), BT_OK);
    for (uint32_t step = 0; step < STEPS; step++) {
        seq_t *s = &seqs[below(&l, RUNNING)];

        if (!s->runs) {
            begin(&l, s);
        } else if (below(&l, 20) == 0) { /* canceled */
            finish(&l, s);
        } else {
            compute(&l, s);
        }
        check_counts(&l, seqs);
    }
    for (uint32_t k = 0; k < RUNNING; k++) {
        if (seqs[k].runs) {
            finish(&l, &seqs[k]);
        }
    }
    n_idle = bt_kv_pool_n_idle(l.pool);
    assert_int_equal(bt_kv_pool_n_set_aside(l.pool), 0);
    assert_int_equal(bt_kv_pool_n_windowed(l.pool), 0);
    assert_int_equal(n_idle + bt_kv_pool_n_free(l.pool), BLOCKS);
    assert_int_equal(bt_kv_prefix_evict(l.index, BLOCKS), n_idle);
    sums[0] += l.n_slid;
    sums[1] += l.n_shared;
    sums[2] += l.n_refused;
    bt_kv_prefix_destroy(l.index);
    bt_kv_pool_destroy(l.pool);
    bt_kv_groups_fini(&l.groups);
}

static void
started_sequence_always_gets_blocks_for_sliding_windows(void **state)
{
    uint64_t sums[3] = {0};

    (void)state;
    for (unsigned seed = 1; seed <= LIVES; seed++) {
        one_life(seed, sums);
    }
    print_message("%llu blocks slid, %llu were shared, %llu had to wait\n",
                  (unsigned long long)sums[0], (unsigned long long)sums[1],
                  (unsigned long long)sums[2]);
    assert_true((sums[0] > 0) && (sums[1] > 0) && (sums[2] > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(attention_window_bounds_its_block_count),
        BT_TEST(sliding_window_keeps_its_block_count),
        BT_TEST(received_kv_is_held_from_the_window_start),
        BT_TEST(started_sequence_always_gets_blocks_for_sliding_windows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
