/* SPDX-License-Identifier: Apache-2.0 */
/* Logits processors on rows that are worked by hand; test_processors.py of the
 * integration tests compares whole answers with another implementation. */
#include "inference/model/processors.h"

#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/draw.h"
#include "tests/support/testsupport.h"

#define N_VOCAB 8

static bt_history_t history_of(const uint32_t *tokens, uint32_t n,
                               uint32_t n_prompt)
{
    return (bt_history_t){.tokens = tokens, .n = n, .n_prompt = n_prompt};
}

typedef struct banned {
    uint32_t n;
    bool ids[N_VOCAB];
} banned_t;

static void note(void *ctx, uint32_t id)
{
    banned_t *const banned = ctx;

    banned->n += banned->ids[id] ? 0 : 1;
    banned->ids[id] = true;
}

static banned_t ban(uint32_t size, const uint32_t *tokens, uint32_t n)
{
    const bt_processor_options_t o = {.no_repeat_ngram_size = size};
    const bt_history_t history = history_of(tokens, n, n);
    banned_t banned = {0};

    bt_processors_ban_ngrams(&o, N_VOCAB, &history, note, &banned);
    return banned;
}

static void ngrams_that_occurred_are_banned(void **state)
{
    const uint32_t tokens[] = {1, 2, 3, 1, 2, 4, 1, 2};
    banned_t banned;

    (void)state;
    banned = ban(3, tokens, 8); /* behind 1 2: 3 and 4 */
    assert_int_equal(banned.n, 2);
    assert_true(banned.ids[3] && banned.ids[4]);
    banned = ban(2, tokens, 7); /* behind 1: 2 */
    assert_int_equal(banned.n, 1);
    assert_true(banned.ids[2]);
    banned = ban(1, tokens, 8);
    assert_int_equal(banned.n, 4);
    assert_int_equal(ban(0, tokens, 8).n, 0);
    assert_int_equal(ban(8, tokens, 8).n, 0); /* 7 tokens, once */
    assert_int_equal(ban(9, tokens, 8).n, 0);
    assert_int_equal(ban(UINT32_MAX, tokens, 8).n, 0);
    banned = ban(3, (uint32_t[]){1, 1, 1, 1, 2, 1, 1}, 7); /* overlapping */
    assert_int_equal(banned.n, 2);
    assert_true(banned.ids[1] && banned.ids[2]);
    assert_int_equal(ban(2, tokens, 0).n, 0);
}

static void tokens_of_a_mask_are_listed_where_there_are_few(void **state)
{
    uint64_t mask[3] = {1ull | (1ull << 63), 0, (1ull << 1) | (1ull << 2)};
    uint32_t ids[4] = {7, 7, 7, 7};

    (void)state;
    assert_int_equal(bt_token_mask_list(mask, 192, 4, ids), 4);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 63);
    assert_int_equal(ids[2], 129);
    assert_int_equal(ids[3], 130);
    ids[0] = 7;
    assert_int_equal(bt_token_mask_list(mask, 192, 3, ids), 0);
    assert_int_equal(ids[0], 7);
    assert_int_equal(bt_token_mask_list(mask, 130, 3, ids), 3); /* not 130 */
    assert_int_equal(bt_token_mask_list(mask, 128, 3, ids), 2);
    mask[0] = 0;
    assert_int_equal(bt_token_mask_list(mask, 64, 3, ids), 0);
}

static void top_p_decays_and_is_reset(void **state)
{
    const uint32_t tokens[] = {5, 5, 1, 1, 7, 1, 1};
    bt_sampling_t s = {.top_p = 0.5f,
                       .processors = {.top_p_decay = 0.5f,
                                      .top_p_min = 0.2f,
                                      .top_p_reset_id = 7}};
    bt_history_t history = history_of(tokens, 2, 2);

    (void)state;
    assert_true(bt_processors_top_p(&s, &history) == 0.5f);
    history.n = 3;
    assert_true(bt_processors_top_p(&s, &history) == 0.25f);
    history.n = 4;
    assert_true(bt_processors_top_p(&s, &history) == 0.2f); /* not 0.125 */
    history.n = 5;
    assert_true(bt_processors_top_p(&s, &history) == 0.5f); /* the reset */
    history.n = 7;
    assert_true(bt_processors_top_p(&s, &history) == 0.2f);
    s.processors.top_p_decay = 0.0f;
    assert_true(bt_processors_top_p(&s, &history) == 0.5f);
}

static void thinking_part_is_closed_after_its_budget(void **state)
{
    /* 6: opens; 7 0: closes */
    const uint32_t ids[] = {6, 7, 0};
    bt_processor_options_t o = {.thinking_budget = 2,
                                .is_thinking = 1,
                                .n_think_open = 1,
                                .n_think_close = 2,
                                .n_ids = 3,
                                .ids = ids};
    const struct {
        uint32_t tokens[8], n;
        uint32_t is_thinking;
        uint32_t forced;
    } cases[] = {
        {{1, 2}, 2, 1, BT_NO_TOKEN},
        {{1, 2, 3}, 3, 1, BT_NO_TOKEN},
        {{1, 2, 3, 3}, 4, 1, 7},
        {{1, 2, 3, 3, 7}, 5, 1, 0},
        {{1, 2, 3, 3, 7, 0}, 6, 1, BT_NO_TOKEN},
        {{1, 2, 7, 0, 1, 1}, 6, 1, BT_NO_TOKEN}, /* closed by itself */
        {{1, 2, 3, 7}, 4, 1, 0},                 /* half a mark */
        {{1, 2, 7, 3}, 4, 1, 7},
        {{6, 2, 3, 3, 3}, 5, 0, BT_NO_TOKEN}, /* opened in the prompt only */
        {{1, 2, 3, 3, 3, 6, 3, 3}, 8, 0, BT_NO_TOKEN}, /* not at its begin */
        {{1, 2, 6, 3}, 4, 0, BT_NO_TOKEN},
        {{1, 2, 6, 3, 3}, 5, 0, 7},
        {{7, 0, 6, 3, 3}, 5, 0, 7}, /* closed in the prompt */
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const bt_history_t history = history_of(cases[i].tokens, cases[i].n, 2);

        o.is_thinking = cases[i].is_thinking;
        assert_int_equal(bt_processors_forced(&o, &history), cases[i].forced);
    }
    o.n_think_close = 0;
    o.n_ids = 1;
    o.thinking_budget = 0;
    assert_int_equal(
        bt_processors_forced(
            &o, &(bt_history_t){.tokens = ids, .n = 3, .n_prompt = 0}),
        BT_NO_TOKEN);
}

static void check_dry(const bt_processor_options_t *o, const uint32_t *tokens,
                      uint32_t n, const float want[N_VOCAB])
{
    const bt_history_t history = history_of(tokens, n, 1);
    uint32_t lengths[32], counts[N_VOCAB] = {0};
    float logits[N_VOCAB] = {0};

    bt_processors_dry(o, logits, N_VOCAB, &history, lengths, 32, counts);
    assert_memory_equal(logits, want, sizeof(logits));
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        assert_int_equal(counts[i], 0);
    }
}

static void dry_penalizes_what_continues_a_repetition(void **state)
{
    /* 1 2 3 4 came before; 2 3 5 as well: of 3, 4 ends a run of 3, 5 of 2. */
    const uint32_t tokens[] = {1, 2, 3, 4, 6, 2, 3, 5, 1, 2, 3};
    const uint32_t breaker[] = {2};
    bt_processor_options_t o = {.dry_multiplier = 2.0f,
                                .dry_base = 3.0f,
                                .dry_allowed_length = 2,
                                .dry_last_n = UINT32_MAX};

    (void)state;
    check_dry(&o, tokens, 11, (float[N_VOCAB]){[4] = -6.0f, [5] = -2.0f});
    o.dry_allowed_length = 3;
    check_dry(&o, tokens, 11, (float[N_VOCAB]){[4] = -2.0f});
    o.dry_allowed_length = 1;
    o.dry_last_n = 7; /* 6 2 3 5 1 2 3 */
    check_dry(&o, tokens, 11, (float[N_VOCAB]){[5] = -6.0f});
    o.dry_last_n = UINT32_MAX;
    o.n_dry_breakers = o.n_ids = 1; /* runs of one token */
    o.ids = breaker;
    check_dry(&o, tokens, 11, (float[N_VOCAB]){[4] = -2.0f, [5] = -2.0f});
    check_dry(&o, tokens, 10, (float[N_VOCAB]){0}); /* ends with the breaker */
    o.dry_multiplier = 0.0f;
    check_dry(&o, tokens, 11, (float[N_VOCAB]){0});
}

static void only_allowed_tokens_keep_their_logits(void **state)
{
    const uint32_t ids[] = {5, 2, 900};
    bt_processor_options_t o = {.n_allowed_ids = 3, .n_ids = 3, .ids = ids};
    float logits[N_VOCAB] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32_t counts[N_VOCAB] = {0};

    (void)state;
    bt_processors_allow(&o, logits, N_VOCAB, counts);
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        assert_true(logits[i] ==
                    (((i == 2) || (i == 5)) ? (float)i : -INFINITY));
        assert_int_equal(counts[i], 0);
    }
    assert_int_equal(bt_processors_fallback(&o, NULL, N_VOCAB), 2);
    o.n_allowed_ids = 0;
    assert_int_equal(bt_processors_fallback(&o, NULL, N_VOCAB), 0);
    assert_int_equal(
        bt_processors_fallback(&o, &(uint64_t){1u << 6 | 1u << 4}, N_VOCAB), 4);
    assert_int_equal(bt_processors_fallback(&o, &(uint64_t){0}, N_VOCAB), 0);
}

static void top_n_sigma_keeps_logits_near_the_best(void **state)
{
    /* Mean 3, variance (4 + 4 + 4 + 4 + 0 + 0) / 6. */
    const float logits[N_VOCAB] = {5, 1, 5, 1, 3, 3, -INFINITY, NAN};
    uint64_t weights[N_VOCAB] = {10, 10, 10, 10, 10, 10, 0, 0};

    (void)state;
    assert_int_equal(bt_processors_top_n_sigma(1.0f, logits, N_VOCAB, weights),
                     20);
    assert_int_equal(weights[4], 0);
    for (uint32_t i = 0; i < 6; i++) {
        weights[i] = 10;
    }
    assert_int_equal(bt_processors_top_n_sigma(1.25f, logits, N_VOCAB, weights),
                     40);
    assert_int_equal(weights[1], 0);
}

static void typical_keeps_tokens_of_the_expected_information(void **state)
{
    /* Weights 8 : 4 : 4, at temperature 1 / ln 2: x is 0, -1, -1 and its mean
     * -0.5: all are equally far, and the lowest ids come first. */
    const double t = 1.4426950408889634;
    const float logits[N_VOCAB] = {1, 0, 0};
    const uint64_t full[3] = {800, 400, 400};
    uint64_t weights[N_VOCAB] = {800, 400, 400};
    bt_candidate_t list[N_VOCAB];

    (void)state;
    assert_int_equal(bt_processors_typical(0.4f, logits, 1.0f, 1.0 / t * t,
                                           N_VOCAB, weights, 1600, list),
                     800);
    memcpy(weights, full, sizeof(full));
    assert_int_equal(bt_processors_typical(0.7f, logits, 1.0f, 1.0, N_VOCAB,
                                           weights, 1600, list),
                     1200);
    assert_int_equal(weights[2], 0);
    /* One of 3,000 and three of 1,000: the mean of x is -0.5 again with
     * weights alike; a rarer one is farther. */
    memcpy(weights, (uint64_t[4]){100, 1000, 1000, 1000}, 32);
    assert_int_equal(bt_processors_typical(0.5f, (float[N_VOCAB]){-3, 0, 0, 0},
                                           0.0f, 1.0, N_VOCAB, weights, 3100,
                                           list),
                     2000);
    assert_int_equal(weights[0], 0);
}

static void xtc_excludes_all_top_choices_but_the_last(void **state)
{
    const float logits[N_VOCAB] = {1, 3, 2, 0, -5};
    const uint64_t full[5] = {200, 400, 300, 80, 20};
    bt_processor_options_t o = {.xtc_probability = 1.0f,
                                .xtc_threshold = 0.1875f};
    uint64_t weights[N_VOCAB] = {200, 400, 300, 80, 20};
    uint32_t n_excluded = 0;

    (void)state;
    assert_int_equal(
        bt_processors_xtc(&o, 1, 5, logits, N_VOCAB, weights, 1000), 300);
    assert_int_equal(weights[0], 200); /* the last with a share of 0.1875 */
    assert_int_equal(weights[1] + weights[2], 0);
    memcpy(weights, full, sizeof(full));
    o.xtc_threshold = 0.35f; /* one token alone stays */
    assert_int_equal(
        bt_processors_xtc(&o, 1, 5, logits, N_VOCAB, weights, 1000), 1000);
    o.xtc_threshold = 0.1875f;
    o.xtc_probability = 0.25f;
    for (uint32_t i = 0; i < 1000; i++) {
        const bool out = bt_draw_bits_of(9, i, 1) < (UINT64_C(1) << 62);

        memcpy(weights, full, sizeof(full));
        assert_int_equal(
            bt_processors_xtc(&o, 9, i, logits, N_VOCAB, weights, 1000),
            out ? 300 : 1000);
        n_excluded += out ? 1 : 0;
    }
    assert_in_range(n_excluded, 200, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ngrams_that_occurred_are_banned),
        BT_TEST(tokens_of_a_mask_are_listed_where_there_are_few),
        BT_TEST(top_p_decays_and_is_reset),
        BT_TEST(thinking_part_is_closed_after_its_budget),
        BT_TEST(dry_penalizes_what_continues_a_repetition),
        BT_TEST(only_allowed_tokens_keep_their_logits),
        BT_TEST(top_n_sigma_keeps_logits_near_the_best),
        BT_TEST(typical_keeps_tokens_of_the_expected_information),
        BT_TEST(xtc_excludes_all_top_choices_but_the_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
