/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of two tokens; expected values worked by hand, and for random lives a
 * list of whole beginnings as the model. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/kv/kv_prefix.h"

#define T        2u
#define NO_SPACE ((bt_hash128_t){0, 0})

typedef struct fixture {
    bt_kv_pool_t *pool;
    bt_kv_prefix_t *index;
} fixture_t;

static const bt_kv_shape_t shape = {.n_layers = 1,
                                    .n_kv_heads = 1,
                                    .tokens_per_block = T,
                                    .head_dim = 2,
                                    .elem_bytes = 2};
static bt_kv_groups_t all; /* one group that needs everything */

static void open_with(fixture_t *f, uint32_t n_blocks)
{
    assert_int_equal(bt_kv_pool_create(n_blocks, &f->pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(f->pool, n_blocks, &all, 7, &f->index),
                     BT_OK);
}

static void close_all(fixture_t *f)
{
    bt_kv_prefix_destroy(f->index);
    bt_kv_pool_destroy(f->pool); /* a leak would warn, and a warning fails us */
}

static void give_back(fixture_t *f, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_kv_pool_unref(f->pool, ids[i]);
    }
}

/* Compute a sequence: what is known is found, the rest is taken and then
 * remembered. @return blocks found; ids holds n_blocks of them */
static uint32_t compute(fixture_t *f, const uint32_t *tokens, uint32_t n_blocks,
                        uint32_t *ids)
{
    const uint32_t n =
        bt_kv_prefix_match(f->index, NO_SPACE, tokens, n_blocks, 0, ids);

    assert_int_equal(bt_kv_pool_acquire(f->pool, n_blocks - n, ids + n), BT_OK);
    bt_kv_prefix_insert(f->index, NO_SPACE, tokens, n_blocks, ids, NULL);
    return n;
}

static void prefix_lookup_finds_and_holds_the_longest_match(void **state)
{
    static const uint32_t first[] = {1, 2, 3, 4, 5, 6};
    static const uint32_t second[] = {1, 2, 3, 4, 9, 9};
    uint32_t a[3];
    uint32_t b[3];
    fixture_t f;

    (void)state;
    open_with(&f, 8);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, first, 3, 0, a), 0);
    assert_int_equal(compute(&f, first, 3, a), 0);
    assert_int_equal(compute(&f, second, 3, b), 2);
    assert_int_equal(b[0], a[0]);
    assert_int_equal(b[1], a[1]);
    assert_int_not_equal(b[2], a[2]);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 0);
    give_back(&f, a, 3);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 1); /* b holds the others */
    give_back(&f, b, 3);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 4);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 4);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, first, 1, 0, b), 1);
    give_back(&f, b, 1);
    close_all(&f);
}

static void cleared_cache_finds_nothing_and_works_on(void **state)
{
    static const uint32_t first[] = {1, 2, 3, 4, 5, 6};
    uint32_t a[3];
    uint32_t b[3];
    fixture_t f;

    (void)state;
    open_with(&f, 6);
    assert_int_equal(bt_kv_prefix_clear(f.index), 0);
    assert_int_equal(compute(&f, first, 3, a), 0);
    give_back(&f, a, 1); /* the others are held by their sequence */
    assert_int_equal(bt_kv_prefix_clear(f.index), 3);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 0);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 4);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, first, 3, 0, b), 0);
    give_back(&f, a + 1, 2);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 6);

    assert_int_equal(compute(&f, first, 3, a), 0);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, first, 3, 0, b), 3);
    assert_memory_equal(a, b, sizeof(a));
    give_back(&f, a, 3);
    give_back(&f, b, 3);
    assert_int_equal(bt_kv_prefix_evict(f.index, 6), 3);
    close_all(&f);
}

/* The same tokens at another place are another node. */
static void block_identity_includes_all_preceding_blocks(void **state)
{
    static const uint32_t first[] = {1, 2, 3, 4};
    static const uint32_t swapped[] = {3, 4, 1, 2};
    uint32_t ids[2];
    fixture_t f;

    (void)state;
    open_with(&f, 4);
    assert_int_equal(compute(&f, first, 2, ids), 0);
    give_back(&f, ids, 2);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, swapped, 2, 0, ids),
                     0);
    close_all(&f);
}

static void eviction_takes_least_recently_used_leaves_first(void **state)
{
    static const uint32_t a[] = {1, 1, 2, 2};
    static const uint32_t b[] = {1, 1, 3, 3};
    static const uint32_t c[] = {5, 5};
    uint32_t ids[2];
    fixture_t f;

    (void)state;
    open_with(&f, 8);
    assert_int_equal(compute(&f, a, 2, ids), 0);
    give_back(&f, ids, 2);
    assert_int_equal(compute(&f, b, 2, ids), 1);
    give_back(&f, ids, 2);
    assert_int_equal(compute(&f, c, 1, ids), 0);
    give_back(&f, ids, 1);
    /* Oldest first: a's leaf, b's leaf, their parent, c. */
    assert_int_equal(bt_kv_prefix_evict(f.index, 1), 1);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, a, 2, 0, ids), 1);
    give_back(&f, ids, 1); /* uses the parent: c is older now */
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, b, 2, 0, ids), 2);
    give_back(&f, ids, 2);
    assert_int_equal(bt_kv_prefix_evict(f.index, 1), 1);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, c, 1, 0, ids), 0);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 2); /* leaf, then parent */
    assert_int_equal(bt_kv_pool_n_free(f.pool), 8);
    close_all(&f);
}

static void held_blocks_are_not_evicted(void **state)
{
    static const uint32_t a[] = {1, 1, 2, 2};
    uint32_t ids[2];
    uint32_t held[2];
    fixture_t f;

    (void)state;
    open_with(&f, 4);
    assert_int_equal(compute(&f, a, 2, ids), 0);
    give_back(&f, ids, 2);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, a, 1, 0, held), 1);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 1);
    give_back(&f, held, 1);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 1);
    close_all(&f);
}

/* Two that were computed at the same time: the second's blocks are not known,
 * nor what is below them, which it would not hold. */
static void identical_tokens_are_cached_once(void **state)
{
    static const uint32_t a[] = {1, 1, 2, 2};
    static const uint32_t b[] = {1, 1, 3, 3};
    uint32_t one[2];
    uint32_t two[2];
    fixture_t f;

    (void)state;
    open_with(&f, 4);
    assert_int_equal(bt_kv_pool_acquire(f.pool, 2, one), BT_OK);
    assert_int_equal(bt_kv_pool_acquire(f.pool, 2, two), BT_OK);
    bt_kv_prefix_insert(f.index, NO_SPACE, a, 2, one, NULL);
    bt_kv_prefix_insert(f.index, NO_SPACE, b, 2, two, NULL);
    give_back(&f, one, 2);
    give_back(&f, two, 2);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 2);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 2);
    close_all(&f);
}

/* By hand: the same four tokens in three spaces that differ in one half of the
 * number are three times two blocks; each space finds its own. */
static void cache_namespaces_share_nothing(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4};
    static const bt_hash128_t spaces[] = {{0, 0}, {1, 0}, {0, 1}};
    uint32_t ids[3][2];
    uint32_t found[2];
    fixture_t f;

    (void)state;
    open_with(&f, 8);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(
            bt_kv_prefix_match(f.index, spaces[i], tokens, 2, 0, found), 0);
        assert_int_equal(bt_kv_pool_acquire(f.pool, 2, ids[i]), BT_OK);
        bt_kv_prefix_insert(f.index, spaces[i], tokens, 2, ids[i], NULL);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(
            bt_kv_prefix_match(f.index, spaces[i], tokens, 2, 0, found), 2);
        assert_memory_equal(found, ids[i], sizeof(found));
        give_back(&f, found, 2);
        give_back(&f, ids[i], 2);
    }
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 6);
    /* All of it can be had, also by a space that has none. */
    assert_int_equal(bt_kv_prefix_evict(f.index, 8), 6);
    close_all(&f);
}

static void
prefix_index_reports_zero_counts_and_failed_allocations(void **state)
{
    bt_kv_prefix_t *index = NULL;
    bt_kv_pool_t *pool;
    bt_status_t status;
    int nth = 0;

    (void)state;
    assert_int_equal(bt_kv_pool_create(4, &pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(pool, 0, &all, 7, &index),
                     BT_ERR_INVALID_PARAM);
    do {
        bt_alloc_fail_at(++nth);
        status = bt_kv_prefix_create(pool, 4, &all, 7, &index);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(index);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 7);
    bt_kv_prefix_destroy(index);
    bt_kv_prefix_destroy(NULL);
    bt_kv_pool_destroy(pool);
}

/* ---- several groups ---- */

#define NO BT_KV_NO_BLOCK

/* Group 0 needs all, group 1 has a window of 4 tokens (after n spans of 2 the
 * next token sees 3 more: the last 2 spans), group 2 is a state (the last). */
static bt_kv_groups_t three_groups(void)
{
    static const uint8_t group_of[] = {0, 1, 2};
    const bt_kv_group_t list[] = {
        {.shape = shape},
        {.shape = shape, .window_tokens = 4},
        {.kind = BT_KV_STATE, .shape = shape, .state_bytes = 8}};
    bt_kv_groups_t groups;

    assert_int_equal(bt_kv_groups_init(list, 3, group_of, 3, &groups), BT_OK);
    return groups;
}

/* n pages, all of them taken. */
static void open_groups(fixture_t *f, const bt_kv_groups_t *groups, uint32_t n,
                        uint32_t *ids)
{
    assert_int_equal(bt_kv_pool_create(n, &f->pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(f->pool, n, groups, 7, &f->index),
                     BT_OK);
    assert_int_equal(bt_kv_pool_acquire(f->pool, n, ids), BT_OK);
}

/* What a match found: not every span has a page of every group. */
static void give_back_found(fixture_t *f, const uint32_t *found, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (found[i] != NO) {
            bt_kv_pool_unref(f->pool, found[i]);
        }
    }
}

/* Ten tokens, five spans; who computed them has of group 1 the last three
 * spans left and states after spans 1 and 3. */
static void prefix_is_found_if_every_group_has_its_blocks(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const uint32_t table[] = {0, NO, NO, 1, NO, 8, 2, 5, NO, 3, 6, 9, 4, 7, NO};
    uint32_t ids[10];
    uint32_t found[15];
    bt_kv_groups_t groups = three_groups();
    fixture_t f;

    (void)state;
    open_groups(&f, &groups, 10, ids);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 5, table, NULL);
    give_back(&f, ids, 10);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 10);

    /* After 4 spans there is a state, and group 1 has spans 2 and 3; after 5
     * there is none; after 2 group 1 lacks spans 0 and 1. */
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 0, found),
                     4);
    assert_memory_equal(
        found, ((const uint32_t[]){0, NO, NO, 1, NO, NO, 2, 5, NO, 3, 6, 9}),
        12 * sizeof(uint32_t));
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 10 - 7);
    assert_int_equal(
        bt_kv_prefix_match(f.index, NO_SPACE, tokens, 3, 0, found + 12), 0);

    /* What is held stays, with all that stands on the way to it: of span 4
     * both blocks go, of span 1 the state, which its holder does not need. */
    assert_int_equal(bt_kv_prefix_evict(f.index, 10), 3);
    give_back_found(&f, found, 12);
    assert_int_equal(bt_kv_prefix_evict(f.index, 10), 7);
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* Somebody else knows what a known span lacks; a block that is there already
 * stays, and what differs from it is not remembered. */
static void cached_span_is_completed_but_not_replaced(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4};
    const uint32_t first[] = {0, NO, NO, 1, 2, NO};
    const uint32_t other[] = {0, 3, NO, 1, 5, 4};
    const uint32_t same[] = {0, 3, NO, 1, 2, 4};
    uint32_t ids[6];
    uint32_t found[6];
    bt_kv_groups_t groups = three_groups();
    fixture_t f;

    (void)state;
    open_groups(&f, &groups, 6, ids);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 2, first, NULL);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 2, other,
                        NULL); /* span 0 alone */
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 2, 0, found),
                     0);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 2, same, NULL);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 2, 0, found),
                     2);
    assert_memory_equal(found, ((const uint32_t[]){0, 3, NO, 1, 2, 4}),
                        sizeof(found));
    give_back_found(&f, found, 6);
    give_back(&f, ids, 6);
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 5);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 1); /* block 5 */
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* ---- windows ---- */

/* A group that needs all and one with a window of 4 tokens: of n spans of 2 the
 * next token sees 3 more, the last 2 spans; or the second alone. */
static bt_kv_groups_t with_window(bool alone)
{
    static const uint8_t group_of[] = {0, 1};
    const bt_kv_group_t list[] = {{.shape = shape},
                                  {.shape = shape, .window_tokens = 4}};
    bt_kv_groups_t groups;

    assert_int_equal(bt_kv_groups_init(alone ? list + 1 : list, alone ? 1 : 2,
                                       group_of, alone ? 1 : 2, &groups),
                     BT_OK);
    return groups;
}

/* Five spans, whose windowed blocks are all remembered and held by nobody; the
 * others are held by one that goes on. Idle ones of the window can be had, the
 * oldest first, and leave a way to what lies behind them. */
static void evicted_window_blocks_are_reusable_and_keep_the_path(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const uint32_t table[] = {0, 5, 1, 6, 2, 7, 3, 8, 4, 9};
    uint32_t ids[10];
    uint32_t found[10];
    bt_kv_groups_t groups = with_window(false);
    fixture_t f;

    (void)state;
    open_groups(&f, &groups, 10, ids);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 5, table, NULL);
    give_back(&f, ids + 5, 5); /* of the window */
    assert_int_equal(bt_kv_pool_n_idle(f.pool), 5);
    /* In the order of use the deepest is the oldest. */
    assert_int_equal(bt_kv_prefix_evict(f.index, 2), 2);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 0, found),
                     3);
    assert_memory_equal(found, ((const uint32_t[]){0, NO, 1, 6, 2, 7}),
                        6 * sizeof(uint32_t));
    give_back_found(&f, found, 6);
    /* Who needs no window of it finds all five: 12 tokens are to come, and what
     * comes after them sees none of these. */
    assert_int_equal(
        bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 13, found), 5);
    assert_memory_equal(found,
                        ((const uint32_t[]){0, NO, 1, NO, 2, NO, 3, NO, 4, NO}),
                        10 * sizeof(uint32_t));
    give_back_found(&f, found, 10);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 3); /* what is idle */
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 0, found),
                     0);
    give_back(&f, ids, 5);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 5);
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* It was known and could not be found, so it was computed again: the newer
 * blocks take the place of those that nobody holds. */
static void missing_blocks_are_inserted_again(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6};
    const uint32_t old[] = {0, NO, 1, NO, 2, NO};
    const uint32_t young[] = {3, 6, 4, 7, 5, 8};
    uint32_t ids[9];
    uint32_t found[6];
    bt_kv_groups_t groups = with_window(false);
    fixture_t f;

    (void)state;
    open_groups(&f, &groups, 9, ids);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 3, old, NULL);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 3, young, NULL);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 3, 0, found),
                     0); /* somebody holds the old ones */
    give_back(&f, ids, 3);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 3, young, NULL);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 3); /* the old ones */
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 3, 0, found),
                     3);
    assert_memory_equal(found, ((const uint32_t[]){3, NO, 4, 7, 5, 8}),
                        sizeof(found));
    give_back_found(&f, found, 6);
    give_back(&f, ids + 3, 6);
    assert_int_equal(bt_kv_prefix_evict(f.index, 9), 6);
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* All layers have the window, and of five spans only the last two came: the
 * first three are on the way, without a block. What is not held is not
 * offered, whatever the table says. */
static void window_blocks_are_found_behind_evicted_spans(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const uint32_t table[] = {2, 3, 4, 0, 1};
    const bt_kv_hold_t hold = {.first = {3}, .end = {5}};
    uint32_t ids[2];
    uint32_t found[5];
    bt_kv_groups_t groups = with_window(true);
    fixture_t f;

    (void)state;
    assert_int_equal(bt_kv_pool_create(5, &f.pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(f.pool, 5, &groups, 7, &f.index),
                     BT_OK);
    assert_int_equal(bt_kv_pool_acquire(f.pool, 2, ids), BT_OK);
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 5, table, &hold);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 4, 0, found),
                     0);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 0, found),
                     5);
    assert_memory_equal(found, ((const uint32_t[]){NO, NO, NO, 0, 1}),
                        sizeof(found));
    give_back_found(&f, found, 5);
    give_back(&f, ids, 2);
    assert_int_equal(bt_kv_prefix_evict(f.index, 5), 2);
    assert_int_equal(
        bt_kv_prefix_match(f.index, NO_SPACE, tokens, 5, 99, found), 0);
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* Ten nodes for five blocks: paths without blocks run out, and what does not
 * fit is not remembered. */
static void prefix_paths_without_blocks_end_without_error(void **state)
{
    uint32_t tokens[24];
    uint32_t table[12];
    uint32_t id;
    bt_kv_groups_t groups = with_window(true);
    bt_kv_hold_t hold = {.end = {12}};
    fixture_t f;

    (void)state;
    assert_int_equal(bt_kv_pool_create(5, &f.pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(f.pool, 5, &groups, 7, &f.index),
                     BT_OK);
    assert_int_equal(bt_kv_pool_acquire(f.pool, 1, &id), BT_OK);
    for (uint32_t i = 0; i < 24; i++) {
        tokens[i] = i;
        table[i / 2] = id;
    }
    hold.first[0] = 11;
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 12, table, &hold);
    assert_int_equal(
        bt_kv_prefix_match(f.index, NO_SPACE, tokens, 12, 0, table), 0);
    bt_kv_pool_unref(f.pool, id);
    assert_int_equal(bt_kv_pool_n_free(f.pool), 5);
    /* Those that were made go when blocks are wanted, and are there again. */
    assert_int_equal(bt_kv_prefix_evict(f.index, 1), 0);
    assert_int_equal(bt_kv_pool_acquire(f.pool, 1, &id), BT_OK);
    table[0] = id;
    bt_kv_prefix_insert(f.index, NO_SPACE, tokens, 1, table, NULL);
    assert_int_equal(bt_kv_prefix_match(f.index, NO_SPACE, tokens, 1, 0, table),
                     1);
    give_back(&f, table, 1);
    bt_kv_pool_unref(f.pool, id);
    close_all(&f);
    bt_kv_groups_fini(&groups);
}

/* ---- random lives ---- */

#define LIVES   200u
#define STEPS   400u
#define BLOCKS  24u
#define DEEPEST 5u
#define RUNNING 4u

/* What each block of the pool was last filled with: a whole beginning. */
typedef struct content {
    uint32_t n;
    bt_hash128_t space;
    uint32_t tokens[DEEPEST * T];
} content_t;

typedef struct running {
    uint32_t n_blocks; /* 0: no sequence */
    uint32_t ids[DEEPEST];
} running_t;

static void check_found(const content_t *contents, bt_hash128_t space,
                        const uint32_t *tokens, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const content_t *c = &contents[ids[i]];

        assert_int_equal(c->n, i + 1);
        assert_memory_equal(&c->space, &space, sizeof(space));
        assert_memory_equal(c->tokens, tokens,
                            (i + 1) * T * sizeof(c->tokens[0]));
    }
}

static void start(fixture_t *f, content_t *contents, running_t *seq,
                  unsigned *seed)
{
    const uint32_t n_blocks = 1 + (uint32_t)rand_r(seed) % DEEPEST;
    /* Four of them, of which each shares half of its number with two. */
    const bt_hash128_t space = {.lo = (uint64_t)rand_r(seed) % 2,
                                .hi = (uint64_t)rand_r(seed) % 2};
    uint32_t tokens[DEEPEST * T];
    uint32_t n;
    uint32_t missing;

    for (uint32_t i = 0; i < n_blocks * T; i++) {
        tokens[i] = (uint32_t)rand_r(seed) % 2;
    }
    n = bt_kv_prefix_match(f->index, space, tokens, n_blocks, 0, seq->ids);
    check_found(contents, space, tokens, seq->ids, n);
    missing = n_blocks - n;
    if (missing > bt_kv_pool_n_free(f->pool)) {
        const uint32_t idle = bt_kv_pool_n_idle(f->pool);
        const uint32_t want = missing - bt_kv_pool_n_free(f->pool);

        /* All that is idle can be had. */
        assert_int_equal(bt_kv_prefix_evict(f->index, want),
                         (want < idle) ? want : idle);
    }
    if (bt_kv_pool_acquire(f->pool, missing, seq->ids + n) != BT_OK) {
        give_back(f, seq->ids, n);
        return;
    }
    seq->n_blocks = n_blocks;
    for (uint32_t i = n; i < n_blocks; i++) {
        contents[seq->ids[i]].n = i + 1;
        contents[seq->ids[i]].space = space;
        memcpy(contents[seq->ids[i]].tokens, tokens,
               (i + 1) * T * sizeof(tokens[0]));
    }
    if (rand_r(seed) % 4 != 0) { /* the others fail */
        bt_kv_prefix_insert(f->index, space, tokens, n_blocks, seq->ids, NULL);
    }
}

static void random_operations_find_only_inserted_blocks(void **state)
{
    (void)state;
    for (unsigned life = 1; life <= LIVES; life++) {
        content_t contents[BLOCKS] = {0};
        running_t running[RUNNING] = {0};
        unsigned seed = life;
        uint32_t n_idle;
        fixture_t f;

        open_with(&f, BLOCKS);
        for (uint32_t step = 0; step < STEPS; step++) {
            running_t *seq = &running[(uint32_t)rand_r(&seed) % RUNNING];

            if (rand_r(&seed) % 64 == 0) {
                (void)bt_kv_prefix_clear(f.index);
                memset(contents, 0, sizeof(contents));
                for (uint32_t i = 0; i < RUNNING; i++) { /* theirs for good */
                    give_back(&f, running[i].ids, running[i].n_blocks);
                    running[i].n_blocks = 0;
                }
                assert_int_equal(bt_kv_pool_n_free(f.pool), BLOCKS);
            } else if (seq->n_blocks > 0) {
                give_back(&f, seq->ids, seq->n_blocks);
                seq->n_blocks = 0;
            } else {
                start(&f, contents, seq, &seed);
            }
        }
        for (uint32_t i = 0; i < RUNNING; i++) {
            give_back(&f, running[i].ids, running[i].n_blocks);
        }
        assert_int_equal(bt_kv_pool_n_idle(f.pool) + bt_kv_pool_n_free(f.pool),
                         BLOCKS);
        n_idle = bt_kv_pool_n_idle(f.pool);
        assert_int_equal(bt_kv_prefix_evict(f.index, BLOCKS), n_idle);
        assert_int_equal(bt_kv_pool_n_free(f.pool), BLOCKS);
        close_all(&f);
    }
}

static int take_all(void **state)
{
    (void)state;
    return (bt_kv_groups_init(
                &(bt_kv_group_t){.kind = BT_KV_PAGED, .shape = shape}, 1, NULL,
                shape.n_layers, &all) == BT_OK)
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prefix_lookup_finds_and_holds_the_longest_match),
        BT_TEST(cleared_cache_finds_nothing_and_works_on),
        BT_TEST(block_identity_includes_all_preceding_blocks),
        BT_TEST(eviction_takes_least_recently_used_leaves_first),
        BT_TEST(prefix_is_found_if_every_group_has_its_blocks),
        BT_TEST(cached_span_is_completed_but_not_replaced),
        BT_TEST(evicted_window_blocks_are_reusable_and_keep_the_path),
        BT_TEST(missing_blocks_are_inserted_again),
        BT_TEST(window_blocks_are_found_behind_evicted_spans),
        BT_TEST(prefix_paths_without_blocks_end_without_error),
        BT_TEST(held_blocks_are_not_evicted),
        BT_TEST(identical_tokens_are_cached_once),
        BT_TEST(cache_namespaces_share_nothing),
        BT_TEST(prefix_index_reports_zero_counts_and_failed_allocations),
        BT_TEST(random_operations_find_only_inserted_blocks),
    };

    return cmocka_run_group_tests(tests, take_all, NULL);
}
