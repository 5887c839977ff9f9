/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts from earlier tokens and from a given text. */
#include "inference/draft/ngram_drafter.h"
#include "tests/support/testsupport.h"

#define MOST 8u

/* Asks the drafter and compares all that it says. */
static void assert_drafts(bt_ngram_drafter_t *drafter, const uint32_t *tokens,
                          uint32_t n_tokens, bt_draft_source_t source,
                          uint32_t n_matched, const uint32_t *want, uint32_t n)
{
    const bt_drafter_t hook = bt_ngram_drafter_hook(drafter);
    uint32_t drafts[MOST];
    const bt_draft_t got =
        hook.propose(hook.ctx, tokens, n_tokens, MOST, drafts);

    assert_int_equal(got.n, n);
    if (n > 0) {
        assert_int_equal(got.source, source);
        assert_int_equal(got.n_matched, n_matched);
        assert_memory_equal(drafts, want, n * sizeof(*want));
    }
}

#define ASSERT_DRAFTS(drafter, tokens, n_tokens, source, n_matched, ...)      \
    do {                                                                      \
        static const uint32_t want_[] = {__VA_ARGS__};                        \
        assert_drafts((drafter), (tokens), (n_tokens), (source), (n_matched), \
                      want_, BT_ARRAY_LEN(want_));                            \
    } while (0)

static void drafts_are_what_followed_before(void **state)
{
    static const uint32_t tokens[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 1, 6, 7};
    bt_ngram_drafter_t *drafter;

    (void)state;
    assert_int_equal(bt_ngram_drafter_create(9, 40, NULL, 0, &drafter), BT_OK);
    assert_drafts(drafter, tokens, 11, BT_DRAFT_NGRAM, 0, NULL, 0);
    ASSERT_DRAFTS(drafter, tokens, 12, BT_DRAFT_NGRAM, 2, 8, 9, 10, 11, 12, 13,
                  1, 6);
    bt_ngram_drafter_destroy(drafter);
}

static void periodic_text_goes_on(void **state)
{
    static const uint32_t tokens[] = {9, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    bt_ngram_drafter_t *drafter;

    (void)state;
    assert_int_equal(bt_ngram_drafter_create(1, 40, NULL, 0, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, tokens, 10, BT_DRAFT_NGRAM, 6, 1, 2, 3, 1, 2, 3, 1,
                  2);
    bt_ngram_drafter_destroy(drafter);
}

/* The prompt is 9 9 9; the answer begins as the given text does, leaves it for
 * one token, and for three, and ends with it. */
static void given_text_is_followed_from_its_begin(void **state)
{
    static const uint32_t given[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint32_t tokens[] = {9, 9,  8,  1,  2, 30, 4,
                                      5, 40, 41, 42, 3, 4};
    bt_ngram_drafter_t *drafter;

    (void)state;
    assert_int_equal(bt_ngram_drafter_create(3, 40, given, 8, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, tokens, 4, BT_DRAFT_PREDICTION, 1, 2, 3, 4, 5, 6, 7,
                  8);
    ASSERT_DRAFTS(drafter, tokens, 5, BT_DRAFT_PREDICTION, 2, 3, 4, 5, 6, 7, 8);
    ASSERT_DRAFTS(drafter, tokens, 6, BT_DRAFT_PREDICTION, 0, 4, 5, 6, 7, 8);
    ASSERT_DRAFTS(drafter, tokens, 8, BT_DRAFT_PREDICTION, 2, 6, 7, 8);
    assert_drafts(drafter, tokens, 11, BT_DRAFT_PREDICTION, 0, NULL, 0);
    ASSERT_DRAFTS(drafter, tokens, 13, BT_DRAFT_PREDICTION, 2, 5, 6, 7, 8);
    bt_ngram_drafter_destroy(drafter);
}

/* A sequence that runs again has tokens of its answer from the begin. */
static void tokens_known_at_first_are_followed_as_well(void **state)
{
    static const uint32_t given[] = {1, 2, 3, 4, 5, 6};
    static const uint32_t tokens[] = {9, 1, 2, 3};
    bt_ngram_drafter_t *drafter;

    (void)state;
    assert_int_equal(bt_ngram_drafter_create(1, 40, given, 6, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, tokens, 4, BT_DRAFT_PREDICTION, 3, 4, 5, 6);
    bt_ngram_drafter_destroy(drafter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(drafts_are_what_followed_before),
        BT_TEST(periodic_text_goes_on),
        BT_TEST(given_text_is_followed_from_its_begin),
        BT_TEST(tokens_known_at_first_are_followed_as_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
