/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts from earlier tokens and from a prediction. */
#include "inference/draft/ngram_drafter.h"
#include "tests/support/testsupport.h"

#define MOST 8u

static bt_status_t create(uint32_t n_prompt, const uint32_t *given,
                          uint32_t n_predicted, bt_ngram_corpus_t *corpus,
                          bt_ngram_drafter_t **drafter_p)
{
    const bt_ngram_drafter_config_t config = {.n_prompt = n_prompt,
                                              .max_tokens = 40,
                                              .predicted_ids = given,
                                              .n_predicted = n_predicted,
                                              .corpus = corpus};

    return bt_ngram_drafter_create(&config, drafter_p);
}

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
    assert_int_equal(create(9, NULL, 0, NULL, &drafter), BT_OK);
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
    assert_int_equal(create(1, NULL, 0, NULL, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, tokens, 10, BT_DRAFT_NGRAM, 6, 1, 2, 3, 1, 2, 3, 1,
                  2);
    bt_ngram_drafter_destroy(drafter);
}

/* The prompt is 9 9 9; the answer begins as the prediction does, leaves it for
 * one token, and for three, and ends with it. */
static void prediction_is_followed_from_its_begin(void **state)
{
    static const uint32_t given[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint32_t tokens[] = {9, 9,  8,  1,  2, 30, 4,
                                      5, 40, 41, 42, 3, 4};
    bt_ngram_drafter_t *drafter;

    (void)state;
    assert_int_equal(create(3, given, 8, NULL, &drafter), BT_OK);
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
    assert_int_equal(create(1, given, 6, NULL, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, tokens, 4, BT_DRAFT_PREDICTION, 3, 4, 5, 6);
    bt_ngram_drafter_destroy(drafter);
}

/* The answer 1 2 3 4 5 6 of one request, and others that come to parts of it.
 */
static void answer_that_ended_is_drafted_for_other_requests(void **state)
{
    static const uint32_t first[] = {9, 9, 1, 2, 3, 4, 5, 6};
    static const uint32_t other[] = {8, 1, 2, 3, 4};
    static const uint32_t longer[] = {7, 8, 1, 2, 3, 4, 7, 8, 1, 2, 3, 4};
    bt_ngram_corpus_t *corpus;
    bt_ngram_drafter_t *drafter;
    bt_drafter_t hook;

    (void)state;
    assert_int_equal(bt_ngram_corpus_create(4096, &corpus), BT_OK);
    assert_int_equal(create(2, NULL, 0, corpus, &drafter), BT_OK);
    hook = bt_ngram_drafter_hook(drafter);
    hook.ended(hook.ctx, first, 8);
    bt_ngram_drafter_destroy(drafter);
    assert_int_equal(create(1, NULL, 0, corpus, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, other, 5, BT_DRAFT_CORPUS, 4, 5, 6);
    assert_drafts(drafter, other, 4, BT_DRAFT_CORPUS, 0, NULL, 0);
    bt_ngram_drafter_destroy(drafter);
    /* Its own text matches more. */
    assert_int_equal(create(1, NULL, 0, corpus, &drafter), BT_OK);
    ASSERT_DRAFTS(drafter, longer, 12, BT_DRAFT_NGRAM, 6, 7, 8, 1, 2, 3, 4, 7,
                  8);
    bt_ngram_drafter_destroy(drafter);
    bt_ngram_corpus_destroy(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(drafts_are_what_followed_before),
        BT_TEST(periodic_text_goes_on),
        BT_TEST(prediction_is_followed_from_its_begin),
        BT_TEST(tokens_known_at_first_are_followed_as_well),
        BT_TEST(answer_that_ended_is_drafted_for_other_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
