/* SPDX-License-Identifier: Apache-2.0 */
/* Index of n-grams, beside a search of all positions. */
#include "inference/draft/ngram_index.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define N 400u

static uint32_t n_equal(const uint32_t *text, uint32_t end,
                        const uint32_t *tokens, uint32_t n)
{
    uint32_t k = 0;

    while ((k < end) && (k < n) && (k < BT_NGRAM_MAX_MATCH) &&
           (text[end - 1 - k] == tokens[n - 1 - k])) {
        k++;
    }
    return k;
}

/* The longest occurrence, the last of equally long ones, and how many there are
 * of at least the length that the index looks for. */
static bt_ngram_match_t search_all(const uint32_t *text, uint32_t n_text,
                                   const uint32_t *tokens, uint32_t n,
                                   uint32_t *n_found_p)
{
    bt_ngram_match_t best = {0};
    uint32_t n_found[2] = {0, 0};

    for (uint32_t end = n_text; end > 0; end--) {
        const uint32_t k = n_equal(text, end, tokens, n);

        n_found[0] += (k >= BT_NGRAM_LONG) ? 1 : 0;
        n_found[1] += (k >= BT_NGRAM_SHORT) ? 1 : 0;
        if ((k >= BT_NGRAM_SHORT) && (k > best.n_matched)) {
            best = (bt_ngram_match_t){.end = end, .n_matched = k};
        }
    }
    *n_found_p = (n_found[0] > 0) ? n_found[0] : n_found[1];
    return best;
}

static void compare(uint32_t n_ids, uint64_t seed)
{
    bt_ngram_index_t index;
    uint32_t tokens[N];
    uint32_t n_compared = 0;
    uint64_t rng = seed;

    assert_int_equal(bt_ngram_index_init(&index, N), BT_OK);
    for (uint32_t n = 0; n < N; n++) {
        bt_ngram_match_t want;
        bt_ngram_match_t got;
        uint32_t n_found;

        /* Copies of earlier text, and others between them. */
        if ((n > 20) && (draw_below(&rng, 8) != 0)) {
            tokens[n] = tokens[n - 17];
        } else {
            tokens[n] = (uint32_t)draw_below(&rng, n_ids);
        }
        bt_ngram_index_append(&index, tokens, n + 1, UINT32_MAX);
        got = bt_ngram_index_find(&index, tokens, tokens, n + 1);
        want = search_all(tokens, n, tokens, n + 1, &n_found);
        assert_true(got.n_matched <= want.n_matched);
        assert_true((got.n_matched == 0) ||
                    (n_equal(tokens, got.end, tokens, n + 1) == got.n_matched));
        /* Its own end is one of the candidates. */
        if (n_found < BT_NGRAM_CANDIDATES) {
            assert_int_equal(got.n_matched, want.n_matched);
            assert_int_equal(got.end, want.end);
            n_compared++;
        }
    }
    assert_true(n_compared > 50);
    bt_ngram_index_fini(&index);
}

static void match_is_the_longest_and_the_last_of_equals(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        compare(4, seed);
        compare(50, seed);
        compare(UINT32_MAX, seed);
    }
}

static void text_of_another_array_is_searched_to_its_end(void **state)
{
    static const uint32_t text[] = {7, 1, 2, 3, 4, 5, 6, 8, 1, 2};
    static const uint32_t tokens[] = {9, 9, 1, 2};
    bt_ngram_index_t index;
    bt_ngram_match_t match;

    (void)state;
    assert_int_equal(bt_ngram_index_init(&index, 10), BT_OK);
    bt_ngram_index_append(&index, text, 10, 10);
    match = bt_ngram_index_find(&index, text, tokens, 4);
    assert_int_equal(match.end, 10);
    assert_int_equal(match.n_matched, 2);
    match = bt_ngram_index_find(&index, text, text, 7);
    assert_int_equal(match.n_matched, 0); /* only at its own end */
    match = bt_ngram_index_find(&index, text, tokens, 1);
    assert_int_equal(match.n_matched, 0); /* fewer than a short n-gram */
    bt_ngram_index_fini(&index);
}

static void slices_and_the_whole_give_one_index(void **state)
{
    bt_ngram_index_t whole;
    bt_ngram_index_t slices;
    uint32_t tokens[N];
    uint64_t rng = 5;

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        tokens[i] = (uint32_t)draw_below(&rng, 5);
    }
    assert_int_equal(bt_ngram_index_init(&whole, N), BT_OK);
    assert_int_equal(bt_ngram_index_init(&slices, N), BT_OK);
    bt_ngram_index_append(&whole, tokens, N, UINT32_MAX);
    for (uint32_t i = 0; i < N / 7; i++) {
        bt_ngram_index_append(&slices, tokens, N, 7);
        assert_int_equal(slices.n_tokens, 7 * (i + 1));
    }
    bt_ngram_index_append(&slices, tokens, N, 7);
    assert_int_equal(slices.n_tokens, N);
    bt_ngram_index_append(&slices, tokens, N - 9, 7); /* fewer: no change */
    assert_int_equal(slices.n_tokens, N);
    for (unsigned i = 0; i < 2; i++) {
        assert_memory_equal(whole.chains[i].heads, slices.chains[i].heads,
                            (whole.chains[i].mask + 1) * sizeof(uint32_t));
        assert_memory_equal(whole.chains[i].prev, slices.chains[i].prev,
                            (N + 1) * sizeof(uint32_t));
    }
    bt_ngram_index_fini(&whole);
    bt_ngram_index_fini(&slices);
}

/* 1 2 3 occurs at 3, and at 9 and 12, which were taken back. */
static void what_was_taken_back_is_no_occurrence(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 7, 8, 1, 1, 2, 3, 1, 2, 3};
    bt_ngram_index_t index;
    bt_ngram_match_t match;

    (void)state;
    assert_int_equal(bt_ngram_index_init(&index, 12), BT_OK);
    bt_ngram_index_append(&index, tokens, 12, 12);
    match = bt_ngram_index_find(&index, tokens, tokens, 9);
    assert_int_equal(match.end, 3);
    assert_int_equal(match.n_matched, 3);
    bt_ngram_index_fini(&index);
}

static void tokens_beyond_the_size_are_not_indexed(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 1, 2, 3};
    bt_ngram_index_t index;

    (void)state;
    assert_int_equal(bt_ngram_index_init(&index, 3), BT_OK);
    bt_ngram_index_append(&index, tokens, 6, UINT32_MAX);
    assert_int_equal(index.n_tokens, 3);
    assert_int_equal(bt_ngram_index_find(&index, tokens, tokens, 6).end, 3);
    bt_ngram_index_fini(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(match_is_the_longest_and_the_last_of_equals),
        BT_TEST(text_of_another_array_is_searched_to_its_end),
        BT_TEST(slices_and_the_whole_give_one_index),
        BT_TEST(what_was_taken_back_is_no_occurrence),
        BT_TEST(tokens_beyond_the_size_are_not_indexed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
