/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache of a drafter. The first bytes of each position of a block hold a
 * hash of all tokens up to it, as K and V depend on them: whatever the order of
 * events, a slot must show the hashes of its own sequence. */
#include "inference/draft/draft_cache.h"

#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define T       4u
#define CONTEXT 64u

static const bt_hash128_t shared; /* namespace of most */

static bt_draft_cache_config_t config_of(uint32_t n_slots, uint32_t n_blocks)
{
    return (bt_draft_cache_config_t){
        .shape = {.n_layers = 1,
                  .n_kv_heads = 1,
                  .tokens_per_block = T,
                  .head_dim = 4,
                  .elem_bytes = 2},
        .type = BT_KV_F16,
        .n_slots = n_slots,
        .n_blocks = n_blocks,
        .context_tokens = CONTEXT,
    };
}

static bt_draft_cache_t *make_cache(uint32_t n_slots, uint32_t n_blocks)
{
    const bt_draft_cache_config_t config = config_of(n_slots, n_blocks);
    bt_draft_cache_t *cache = NULL;

    assert_int_equal(bt_draft_cache_create(&config, &cache), BT_OK);
    assert_int_equal(bt_draft_cache_n_free(cache), n_blocks);
    return cache;
}

/* What stands for K and V of position p. */
static uint64_t hash_of(const uint32_t *tokens, uint32_t p)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (uint32_t i = 0; i <= p; i++) {
        hash = (hash ^ tokens[i]) * 1099511628211u;
    }
    return hash;
}

static uint64_t *kv_at(const bt_draft_cache_t *cache,
                       const bt_draft_slot_t *slot, uint32_t p)
{
    const bt_kv_view_t kv = bt_draft_cache_view(cache);
    const uint32_t at = p - slot->begin;

    return (uint64_t *)(void *)((uint8_t *)kv.base +
                                slot->blocks[at / T] * kv.block_bytes) +
           at % T;
}

/* Computes K and V up to a position. */
static void compute(bt_draft_cache_t *cache, bt_draft_slot_t *slot,
                    const uint32_t *tokens, uint32_t end)
{
    for (uint32_t p = slot->end; p < end; p++) {
        *kv_at(cache, slot, p) = hash_of(tokens, p);
    }
    bt_draft_cache_store(cache, slot, tokens, end, true);
}

static void assert_is_of(const bt_draft_cache_t *cache,
                         const bt_draft_slot_t *slot, const uint32_t *tokens)
{
    for (uint32_t p = slot->begin; p < slot->end; p++) {
        assert_int_equal(*kv_at(cache, slot, p), hash_of(tokens, p));
    }
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = first + i;
    }
}

static void slot_is_truncated_to_the_tokens_in_common(void **state)
{
    bt_draft_cache_t *cache = make_cache(1, 8);
    bt_draft_slot_t *slot;
    uint32_t tokens[24];

    (void)state;
    fill(tokens, 24, 100);
    bt_draft_cache_begin_turn(cache);
    assert_null(bt_draft_cache_find(cache, tokens, shared, tokens, 9));
    slot = bt_draft_cache_take(cache, tokens, shared, tokens, 9, 0);
    assert_non_null(slot);
    assert_int_equal(slot->end, 0);
    assert_true(bt_draft_cache_reserve(cache, slot, 12));
    assert_int_equal(bt_draft_cache_n_free(cache), 5);
    compute(cache, slot, tokens, 12); /* 9 known tokens, 3 drafts */

    /* The second draft was wrong: 11 tokens are known. */
    tokens[10] = 7;
    bt_draft_cache_begin_turn(cache);
    assert_ptr_equal(bt_draft_cache_find(cache, tokens, shared, tokens, 11),
                     slot);
    assert_int_equal(slot->end, 10);
    assert_int_equal(bt_draft_cache_n_free(cache), 5);
    assert_is_of(cache, slot, tokens);
    /* The last known token is always computed again. */
    assert_int_equal(bt_draft_cache_find(cache, tokens, shared, tokens, 9)->end,
                     8);
    assert_int_equal(bt_draft_cache_n_free(cache), 6);
    assert_null(bt_draft_cache_find(cache, tokens, shared, tokens, 1));
    assert_int_equal(bt_draft_cache_n_free(cache), 8);
    bt_draft_cache_destroy(cache);
}

static void slots_in_use_are_not_taken_over(void **state)
{
    bt_draft_cache_t *cache = make_cache(2, 8);
    uint32_t owners[3][16];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        fill(owners[i], 16, 100 * i);
    }
    bt_draft_cache_begin_turn(cache);
    for (uint32_t i = 0; i < 2; i++) {
        bt_draft_slot_t *slot =
            bt_draft_cache_take(cache, owners[i], shared, owners[i], 16, 0);

        assert_true(bt_draft_cache_reserve(cache, slot, 15));
        compute(cache, slot, owners[i], 15);
    }
    assert_null(
        bt_draft_cache_take(cache, owners[2], shared, owners[2], 16, 0));
    bt_draft_cache_begin_turn(cache);
    assert_non_null(
        bt_draft_cache_find(cache, owners[0], shared, owners[0], 16));
    assert_non_null(
        bt_draft_cache_take(cache, owners[2], shared, owners[2], 16, 0));
    assert_null(bt_draft_cache_find(cache, owners[1], shared, owners[1], 16));
    assert_int_equal(
        bt_draft_cache_find(cache, owners[0], shared, owners[0], 16)->end, 15);
    bt_draft_cache_destroy(cache);
}

/* Three sequences had slots; the prompt of a fourth is that of the first one,
 * and a fifth takes the least recently used of the others. */
static void slot_with_the_most_tokens_in_common_is_taken_over(void **state)
{
    bt_draft_cache_t *cache = make_cache(3, 12);
    bt_draft_slot_t *slots[3];
    uint32_t owners[5][16];

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        fill(owners[i], 16, 100 * i);
    }
    memcpy(owners[3], owners[0], 10 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 3; i++) {
        bt_draft_cache_begin_turn(cache);
        slots[i] =
            bt_draft_cache_take(cache, owners[i], shared, owners[i], 16, 0);
        assert_true(bt_draft_cache_reserve(cache, slots[i], 15));
        compute(cache, slots[i], owners[i], 15);
    }
    bt_draft_cache_begin_turn(cache);
    assert_ptr_equal(
        bt_draft_cache_take(cache, owners[3], shared, owners[3], 16, 0),
        slots[0]);
    assert_int_equal(slots[0]->end, 10);
    assert_is_of(cache, slots[0], owners[3]);
    assert_ptr_equal(
        bt_draft_cache_take(cache, owners[4], shared, owners[4], 16, 0),
        slots[1]);
    assert_int_equal(slots[1]->end, 0);
    bt_draft_cache_destroy(cache);
}

static void blocks_of_unused_slots_are_taken_and_others_are_not(void **state)
{
    bt_draft_cache_t *cache = make_cache(3, 8);
    bt_draft_slot_t *slots[3];
    uint32_t owners[3][32];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        fill(owners[i], 32, 100 * i);
        bt_draft_cache_begin_turn(cache);
        slots[i] =
            bt_draft_cache_take(cache, owners[i], shared, owners[i], 32, 0);
        assert_true(bt_draft_cache_reserve(cache, slots[i], 8));
        compute(cache, slots[i], owners[i], 8);
    }
    assert_int_equal(bt_draft_cache_n_free(cache), 2);
    bt_draft_cache_begin_turn(cache);
    slots[2] = bt_draft_cache_find(cache, owners[2], shared, owners[2], 32);
    /* 2 are free, the first slot has 2: 12 more tokens need 3. */
    assert_true(bt_draft_cache_reserve(cache, slots[2], 20));
    assert_int_equal(bt_draft_cache_n_free(cache), 1);
    compute(cache, slots[2], owners[2], 20);
    slots[1] = bt_draft_cache_find(cache, owners[1], shared, owners[1], 32);
    assert_int_equal(slots[1]->end, 8);
    slots[0] = bt_draft_cache_take(cache, owners[0], shared, owners[0], 32, 0);
    assert_int_equal(slots[0]->end, 0);
    assert_false(bt_draft_cache_reserve(cache, slots[0], 5));
    assert_int_equal(bt_draft_cache_n_free(cache), 1);
    assert_true(bt_draft_cache_reserve(cache, slots[0], 4));
    assert_is_of(cache, slots[1], owners[1]);
    assert_is_of(cache, slots[2], owners[2]);
    assert_false(bt_draft_cache_reserve(cache, slots[1], CONTEXT + 1));
    bt_draft_cache_destroy(cache);
}

/* A tenant's prompt that is another's, or one with another cache_salt, finds
 * nothing computed, whatever the address. */
static void slot_of_another_namespace_has_no_tokens_in_common(void **state)
{
    static const bt_hash128_t spaces[] = {{0, 0}, {1, 0}, {0, 1}};
    bt_draft_cache_t *cache = make_cache(4, 16);
    bt_draft_slot_t *slots[3];
    uint32_t tokens[16];
    uint32_t same[16];

    (void)state;
    fill(tokens, 16, 100);
    fill(same, 16, 100);
    for (uint32_t i = 0; i < 3; i++) {
        bt_draft_cache_begin_turn(cache);
        slots[i] =
            bt_draft_cache_take(cache, &spaces[i], spaces[i], tokens, 16, 0);
        assert_int_equal(slots[i]->end, 0);
        assert_true(bt_draft_cache_reserve(cache, slots[i], 15));
        compute(cache, slots[i], tokens, 15);
    }
    for (uint32_t i = 0; i < 3; i++) { /* in its own it does */
        bt_draft_cache_begin_turn(cache);
        assert_ptr_equal(
            bt_draft_cache_take(cache, same, spaces[i], same, 16, 0), slots[i]);
        assert_int_equal(slots[i]->end, 15);
    }
    /* The last owner's address, of another namespace. */
    bt_draft_cache_begin_turn(cache);
    assert_null(bt_draft_cache_find(cache, same, spaces[0], same, 16));
    bt_draft_cache_destroy(cache);
}

/* 9 positions last, 2 are of a drafter's own output: these are for one turn,
 * whoever has the slot in the next one. */
static void kv_of_own_output_is_gone_in_the_next_turn(void **state)
{
    bt_draft_cache_t *cache = make_cache(2, 8);
    bt_draft_slot_t *slot;
    uint32_t owners[2][16];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        fill(owners[i], 16, 100);
    }
    for (uint32_t i = 0; i < 2; i++) { /* found, taken over */
        bt_draft_cache_begin_turn(cache);
        slot = bt_draft_cache_take(cache, owners[0], shared, owners[0], 16, 0);
        assert_int_equal(slot->end, 9 * i);
        assert_true(bt_draft_cache_reserve(cache, slot, 11));
        compute(cache, slot, owners[0], 9);
        bt_draft_cache_store(cache, slot, owners[0], 10, false);
        bt_draft_cache_store(cache, slot, owners[0], 11, false);
        assert_int_equal(slot->end, 11);
    }
    bt_draft_cache_begin_turn(cache);
    assert_ptr_equal(
        bt_draft_cache_take(cache, owners[1], shared, owners[1], 16, 0), slot);
    assert_int_equal(slot->end, 9);
    assert_is_of(cache, slot, owners[1]);
    bt_draft_cache_truncate(cache, slot, 5);
    compute(cache, slot, owners[1], 7);
    assert_int_equal(
        bt_draft_cache_find(cache, owners[1], shared, owners[1], 16)->end, 7);
    bt_draft_cache_destroy(cache);
}

/* A head: K and V begin at token 10, and are of no use to a sequence that
 * differs before. */
static void kv_may_begin_behind_the_first_token(void **state)
{
    bt_draft_cache_t *cache = make_cache(1, 4);
    bt_draft_slot_t *slot;
    uint32_t tokens[32];
    uint32_t other[32];

    (void)state;
    fill(tokens, 32, 100);
    memcpy(other, tokens, sizeof(other));
    other[3] = 1;
    bt_draft_cache_begin_turn(cache);
    slot = bt_draft_cache_take(cache, tokens, shared, tokens, 12, 10);
    assert_int_equal(slot->begin, 10);
    assert_int_equal(slot->end, 10);
    assert_true(bt_draft_cache_reserve(cache, slot, 18));
    assert_int_equal(bt_draft_cache_n_free(cache), 2);
    compute(cache, slot, tokens, 18);
    bt_draft_cache_begin_turn(cache);
    slot = bt_draft_cache_find(cache, tokens, shared, tokens, 16);
    assert_int_equal(slot->begin, 10);
    assert_int_equal(slot->end, 15);
    assert_is_of(cache, slot, tokens);
    bt_draft_cache_truncate(cache, slot, 12);
    assert_int_equal(slot->end, 12);
    bt_draft_cache_truncate(cache, slot, 14);
    assert_int_equal(slot->end, 12);

    bt_draft_cache_begin_turn(cache);
    slot = bt_draft_cache_take(cache, other, shared, other, 20, 19);
    assert_int_equal(slot->begin, 19);
    assert_int_equal(slot->end, 19);
    /* A sequence that ends before K and V begin. */
    bt_draft_cache_begin_turn(cache);
    slot = bt_draft_cache_take(cache, other, shared, other, 5, 4);
    assert_int_equal(slot->begin, 4);
    assert_int_equal(slot->end, 4);
    bt_draft_cache_destroy(cache);
}

#define N_SEQS 7u

/* Sequences come, grow, go, are run again and are replaced at the same address,
 * with drafts right and wrong, few slots and few blocks. */
static void any_order_of_events_shows_no_slot_of_another_sequence(void **state)
{
    uint64_t rng = 1;

    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        bt_draft_cache_t *cache =
            make_cache(1 + (uint32_t)draw_below(&rng, 5),
                       2 + (uint32_t)draw_below(&rng, 40));
        uint32_t tokens[N_SEQS][CONTEXT];
        uint32_t n[N_SEQS];
        uint32_t n_kept = 0;

        for (uint32_t i = 0; i < N_SEQS; i++) {
            n[i] = 0;
        }
        for (uint32_t turn = 0; turn < 300; turn++) {
            bt_draft_slot_t *slots[N_SEQS] = {NULL};
            bool is_here[N_SEQS];

            bt_draft_cache_begin_turn(cache);
            for (uint32_t i = 0; i < N_SEQS; i++) {
                is_here[i] = draw_below(&rng, 3) > 0;
                if ((n[i] == 0) || (draw_below(&rng, 25) == 0)) {
                    n[i] = 1 + (uint32_t)draw_below(&rng, 20);
                    for (uint32_t p = 0; p < n[i]; p++) {
                        tokens[i][p] = (uint32_t)draw_below(&rng, 2) *
                                       (uint32_t)draw_below(&rng, 3);
                    }
                }
                slots[i] = is_here[i]
                               ? bt_draft_cache_find(cache, tokens[i], shared,
                                                     tokens[i], n[i])
                               : NULL;
                n_kept += (slots[i] != NULL) ? 1 : 0;
            }
            for (uint32_t i = 0; i < N_SEQS; i++) {
                const uint32_t n_drafts = (uint32_t)draw_below(&rng, 5);
                uint32_t n_right = (uint32_t)draw_below(&rng, n_drafts + 1);
                uint32_t end = n[i] + n_drafts;

                end = (end < CONTEXT - 1) ? end : CONTEXT - 1;
                if (is_here[i] && (slots[i] == NULL)) {
                    slots[i] = bt_draft_cache_take(
                        cache, tokens[i], shared, tokens[i], n[i],
                        (uint32_t)draw_below(&rng, n[i]));
                }
                for (uint32_t p = n[i]; p < CONTEXT; p++) {
                    tokens[i][p] = (uint32_t)draw_below(&rng, 3);
                }
                if (slots[i] != NULL) {
                    assert_true(slots[i]->end < n[i]);
                    assert_is_of(cache, slots[i], tokens[i]);
                    if (bt_draft_cache_reserve(cache, slots[i], end)) {
                        compute(cache, slots[i], tokens[i], end);
                    }
                }
                n_right = (n[i] + n_right < end) ? n_right : 0;
                n[i] += n_right; /* and one that was drawn */
                tokens[i][n[i]] = (uint32_t)draw_below(&rng, 3);
                n[i] = (n[i] + 1 < CONTEXT) ? n[i] + 1 : 0;
            }
            /* What is in use is nobody else's. */
            for (uint32_t i = 0; i < N_SEQS; i++) {
                for (uint32_t k = 0; k < i; k++) {
                    assert_true((slots[i] == NULL) || (slots[i] != slots[k]));
                }
            }
        }
        assert_true(n_kept > 0);
        bt_draft_cache_destroy(cache);
    }
}

static void cache_without_a_size_is_refused(void **state)
{
    bt_draft_cache_config_t config = config_of(2, 3);
    bt_draft_cache_t *cache = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(bt_draft_cache_bytes(&config, &bytes), BT_OK);
    /* 3 blocks of K and V x 1 head x 4 tokens x 4 dims x 2 bytes, 2 slots, 2
     * tables of 16 ids, 2 x 64 tokens, 3 free ids. */
    assert_int_equal(bytes, 3 * 64 + 2 * sizeof(bt_draft_slot_t) + 2 * 16 * 4 +
                                2 * 64 * 4 + 3 * 4);
    config.n_slots = 0;
    assert_int_equal(bt_draft_cache_create(&config, &cache),
                     BT_ERR_INVALID_PARAM);
    config = config_of(1, 0);
    assert_int_equal(bt_draft_cache_bytes(&config, &bytes),
                     BT_ERR_INVALID_PARAM);
    config = config_of(1, 1);
    config.shape.tokens_per_block = 0;
    assert_int_equal(bt_draft_cache_bytes(&config, &bytes),
                     BT_ERR_INVALID_PARAM);
    config = config_of(UINT32_MAX, 1);
    config.context_tokens = UINT32_MAX;
    config.shape.tokens_per_block = 1;
    assert_int_equal(bt_draft_cache_bytes(&config, &bytes), BT_ERR_OVERFLOW);
    assert_null(cache);
}

static void cache_survives_every_failed_allocation(void **state)
{
    const bt_draft_cache_config_t config = config_of(3, 5);
    bt_draft_cache_t *cache = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_draft_cache_create(&config, &cache);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 7);
    bt_draft_cache_destroy(cache);
    bt_draft_cache_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(slot_is_truncated_to_the_tokens_in_common),
        BT_TEST(slots_in_use_are_not_taken_over),
        BT_TEST(slot_with_the_most_tokens_in_common_is_taken_over),
        BT_TEST(blocks_of_unused_slots_are_taken_and_others_are_not),
        BT_TEST(slot_of_another_namespace_has_no_tokens_in_common),
        BT_TEST(kv_of_own_output_is_gone_in_the_next_turn),
        BT_TEST(kv_may_begin_behind_the_first_token),
        BT_TEST(any_order_of_events_shows_no_slot_of_another_sequence),
        BT_TEST(cache_without_a_size_is_refused),
        BT_TEST(cache_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
