/* SPDX-License-Identifier: Apache-2.0 */
/* Corpus of earlier answers. */
#include <string.h>

#include "inference/draft/ngram_corpus.h"
#include "inference/draft/ngram_index.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define MOST 8u

static bt_ngram_corpus_t *made(size_t bytes)
{
    bt_ngram_corpus_t *corpus;

    assert_int_equal(bt_ngram_corpus_create(bytes, &corpus), BT_OK);
    return corpus;
}

static void draft_ends_with_its_answer(void **state)
{
    static const uint32_t one[] = {1, 2, 3, 4, 5, 6, 7};
    static const uint32_t two[] = {8, 9, 10, 11};
    static const uint32_t now[] = {50, 2, 3, 4, 5};
    bt_ngram_corpus_t *corpus = made(4096);
    uint32_t drafts[MOST];
    uint32_t n = 77;

    (void)state;
    bt_ngram_corpus_add(corpus, one, 7);
    bt_ngram_corpus_add(corpus, two, 4);
    assert_int_equal(bt_ngram_corpus_find(corpus, now, 5, 0, MOST, drafts, &n),
                     4);
    assert_int_equal(n, 2);
    assert_int_equal(drafts[0], 6);
    assert_int_equal(drafts[1], 7);
    n = 77;
    assert_int_equal(bt_ngram_corpus_find(corpus, now, 5, 4, MOST, drafts, &n),
                     0); /* no longer than that */
    assert_int_equal(bt_ngram_corpus_find(corpus, now, 5, 0, 0, drafts, &n), 0);
    assert_int_equal(bt_ngram_corpus_find(corpus, two, 4, 0, MOST, drafts, &n),
                     0); /* nothing follows */
    assert_int_equal(bt_ngram_corpus_find(corpus, now, 3, 0, MOST, drafts, &n),
                     0); /* too short */
    assert_int_equal(n, 77);
    bt_ngram_corpus_destroy(corpus);
}

/* 4096 bytes hold 256 tokens. Answers of 10 with a 0 to begin with: what is
 * found is one of the last, and what it says is true. */
static void old_answers_make_room(void **state)
{
    bt_ngram_corpus_t *corpus = made(4096);
    uint32_t n_found = 0;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t answer[10];

        for (uint32_t k = 0; k < 10; k++) {
            answer[k] = 100 * i + k;
        }
        bt_ngram_corpus_add(corpus, answer, 10);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t now[5];
        uint32_t drafts[MOST];
        uint32_t n;

        for (uint32_t k = 0; k < 5; k++) {
            now[k] = 100 * i + k;
        }
        if (bt_ngram_corpus_find(corpus, now, 5, 0, MOST, drafts, &n) > 0) {
            n_found++;
            assert_true(i >= 1000 - 256 / 11 - 1);
            assert_int_equal(n, 5);
            for (uint32_t k = 0; k < 5; k++) {
                assert_int_equal(drafts[k], 100 * i + 5 + k);
            }
        }
    }
    assert_true(n_found >= 256 / 11 - 1);
    bt_ngram_corpus_destroy(corpus);
}

/* Few ids, so that everything occurs again and again. */
static void drafts_are_what_followed_an_equal_end(void **state)
{
    bt_ngram_corpus_t *corpus = made(1 << 16);
    uint32_t answers[200][30];
    uint64_t rng = 3;
    uint32_t n_found = 0;

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t drafts[MOST];
        uint32_t n = 0;
        uint32_t n_matched;
        bool is_true = false;

        for (uint32_t k = 0; k < 30; k++) {
            answers[i][k] = (uint32_t)draw_below(&rng, 4);
        }
        n_matched =
            bt_ngram_corpus_find(corpus, answers[i], 20, 0, MOST, drafts, &n);
        for (uint32_t a = 0; (a < i) && (n_matched > 0); a++) {
            for (uint32_t at = n_matched; at + n <= 30; at++) {
                is_true =
                    is_true || ((memcmp(&answers[a][at - n_matched],
                                        &answers[i][20 - n_matched],
                                        n_matched * sizeof(uint32_t)) == 0) &&
                                (memcmp(&answers[a][at], drafts,
                                        n * sizeof(uint32_t)) == 0));
            }
        }
        assert_true(is_true == (n_matched > 0));
        n_found += (n_matched > 0) ? 1 : 0;
        bt_ngram_corpus_add(corpus, answers[i], 30);
    }
    assert_true(n_found > 100);
    bt_ngram_corpus_destroy(corpus);
}

static void answer_beyond_the_size_leaves_its_end(void **state)
{
    uint32_t answer[1000];
    bt_ngram_corpus_t *corpus = made(4096);
    uint32_t drafts[MOST];
    uint32_t n;

    (void)state;
    for (uint32_t k = 0; k < 1000; k++) {
        answer[k] = k;
    }
    bt_ngram_corpus_add(corpus, answer, 1000);
    assert_int_equal(
        bt_ngram_corpus_find(corpus, answer, 100, 0, MOST, drafts, &n), 0);
    assert_true(bt_ngram_corpus_find(corpus, answer, 900, 0, MOST, drafts, &n) >
                4);
    assert_int_equal(drafts[0], 900);
    bt_ngram_corpus_destroy(corpus);
}

static void too_little_memory_is_refused(void **state)
{
    bt_ngram_corpus_t *corpus;

    (void)state;
    assert_int_equal(bt_ngram_corpus_create(4095, &corpus),
                     BT_ERR_INVALID_PARAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(draft_ends_with_its_answer),
        BT_TEST(old_answers_make_room),
        BT_TEST(drafts_are_what_followed_an_equal_end),
        BT_TEST(answer_beyond_the_size_leaves_its_end),
        BT_TEST(too_little_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
