/* SPDX-License-Identifier: Apache-2.0 */
/* A draw from the first candidates of a row is the one from all of it. */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/unit/inference/model/sampler_rig.h"

#define N_HISTORY 230u

/* What bt_sampler_needs() says is enough: the first of a full sort, and nothing
 * else of the row. */
static void keep_first(const float *logits, uint32_t n_kept, float *row)
{
    static entry_t entries[N_VOCAB];
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_VOCAB; i++) {
        row[i] = -INFINITY;
        if (logits[i] > -INFINITY) {
            entries[n++] = (entry_t){logits[i], i};
        }
    }
    qsort(entries, n, sizeof(*entries), compare_entries);
    for (uint32_t i = 0; (i < n) && (i < n_kept); i++) {
        row[entries[i].id] = entries[i].logit;
    }
}

static void first_candidates_suffice_for_sampling(void **state)
{
    static const uint32_t top_ks[] = {1, 2, 40, 256, 0, 257};
    static const float temperatures[] = {0.0f, 0.7f, 5.0f};
    bt_sampler_t *sampler = make_sampler(N_VOCAB);
    static float logits[N_VOCAB], row[N_VOCAB];
    uint32_t n_few = 0;

    (void)state;
    for (uint32_t round = 0; round < 720; round++) {
        bt_sampling_t params = bt_sampling_default();
        bt_bad_word_t words[3];
        uint32_t best, needs, token;

        for (uint32_t i = 0; i < N_VOCAB; i++) {
            logits[i] = random_logit(i, round);
        }
        best = bt_sampler_best(logits, N_VOCAB);
        params.temperature = temperatures[round % 3];
        params.top_k = top_ks[(round / 3) % 6];
        params.top_p = (round % 2 == 0) ? 1.0f : 0.8f;
        params.seed = round;
        /* Those that come first may be banned. */
        for (uint32_t i = 0; i < BT_ARRAY_LEN(words); i++) {
            words[i] = (bt_bad_word_t){.n = 1, .ids = {(best + i) % N_VOCAB}};
        }
        params.bad_words = words;
        params.n_bad_words = round / 18 % 4;
        params.min_tokens = round / 72 % 2;
        params.n_end_ids = 1;
        params.end_ids[0] = (best + 5) % N_VOCAB;
        needs = bt_sampler_needs(&params, 0, 0);
        if ((params.temperature > 0.0f) &&
            ((params.top_k == 0) || (params.top_k > 256))) {
            assert_int_equal(needs, 0);
            continue;
        }
        n_few++;
        assert_in_range(needs, 1, BT_SAMPLER_MAX_NEEDS);
        keep_first(logits, needs, row);
        token = bt_sampler_draw(sampler, &params, row, NULL, 0, 0, round);
        assert_int_equal(token, bt_sampler_draw(sampler, &params, logits, NULL,
                                                0, 0, round));
    }
    assert_int_equal(n_few, 560);
    bt_sampler_destroy(sampler);
}

/* Some of the best ids and some of any, some of both several times. */
static void make_history(const float *logits, uint32_t *history, uint32_t n,
                         uint32_t round)
{
    static entry_t entries[N_VOCAB];
    uint32_t n_best = 0;

    for (uint32_t i = 0; i < N_VOCAB; i++) {
        if (logits[i] > -INFINITY) {
            entries[n_best++] = (entry_t){logits[i], i};
        }
    }
    qsort(entries, n_best, sizeof(*entries), compare_entries);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t any = (i * 37 + round * 11) % N_VOCAB;

        history[i] = (i % 3 != 0) ? entries[(i * i + round) % 48].id : any;
    }
}

static bt_sampling_t params_of(uint32_t round)
{
    static const uint32_t top_ks[] = {1, 2, 40, 100, 256, 0};
    static const float temperatures[] = {0.7f, 0.0f, 1.0f, 5.0f};
    static const float min_ps[] = {0.0f, 0.0f, 0.1f};
    static const float repetitions[] = {1.0f, 1.0f, 1.1f, 2.5f};
    static const float presences[] = {0.0f, 0.5f, 0.0f, 2.0f, 0.0f};
    static const float frequencies[] = {0.0f, 0.0f, 0.3f};
    bt_sampling_t params = bt_sampling_default();

    params.temperature = temperatures[round / 5 % 4];
    params.top_k = top_ks[round / 3 % 6];
    params.top_p = (round % 2 == 0) ? 1.0f : 0.8f;
    params.min_p = min_ps[round % 3];
    params.seed = round;
    params.repetition_penalty = repetitions[round % 4];
    params.presence_penalty = presences[round % 5];
    params.frequency_penalty = frequencies[round % 3];
    return params;
}

/* Ties, NaN, banned ones, words of several tokens, penalties that lower: the
 * token is that of the whole row, and some of them are where the first without
 * penalties would not be. */
static void first_candidates_suffice_under_penalties(void **state)
{
    bt_sampler_t *sampler = make_sampler(N_VOCAB);
    static float logits[N_VOCAB], spent[N_VOCAB];
    uint32_t history[N_HISTORY];
    uint32_t n_few = 0;
    uint32_t n_moved = 0;

    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        const uint32_t n = round * 7 % (N_HISTORY + 1);
        const uint32_t n_prompt = n - n / (1 + round % 3);
        bt_sampling_t params = params_of(round);
        bt_bad_word_t words[2] = {{.n = 1}, {.n = 2}};
        uint32_t best, needs, token;

        for (uint32_t i = 0; i < N_VOCAB; i++) {
            logits[i] = random_logit(i, round);
        }
        best = bt_sampler_best(logits, N_VOCAB);
        make_history(logits, history, n, round);
        words[0].ids[0] = (best + round % 3) % N_VOCAB;
        words[1].ids[0] = (n > 0) ? history[n - 1] : 3;
        words[1].ids[1] = best;
        params.bad_words = words;
        params.n_bad_words = round / 7 % 3;
        params.min_tokens = round / 72 % 2 * N_HISTORY;
        params.n_end_ids = 1;
        params.end_ids[0] = (best + 5) % N_VOCAB;
        needs = bt_sampler_needs(&params, n_prompt, n - n_prompt);
        if (needs <= 1) {
            continue;
        }
        n_few++;
        memcpy(spent, logits, sizeof(spent));
        token = bt_sampler_draw(sampler, &params, spent, history, n, n_prompt,
                                round);
        keep_first(logits, needs, spent);
        assert_int_equal(token, bt_sampler_draw(sampler, &params, spent,
                                                history, n, n_prompt, round));
        n_moved += ((params.temperature == 0.0f) && (token != best)) ? 1 : 0;
    }
    assert_true(n_few > 1200);
    assert_true(n_moved > 100);
    bt_sampler_destroy(sampler);
}

/* Of penalties that lower it is as many more as there may be tokens that they
 * are of; of others nothing is known. */
static void strong_penalties_need_more_candidates(void **state)
{
    bt_sampling_t s = bt_sampling_default();

    (void)state;
    s.temperature = 1.0f;
    s.top_k = 40;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 40);
    s.presence_penalty = 0.5f;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 49);
    s.frequency_penalty = 0.5f;
    assert_int_equal(bt_sampler_needs(&s, 1000000, 9), 49);
    assert_int_equal(bt_sampler_needs(&s, 100, 472), 512);
    assert_int_equal(bt_sampler_needs(&s, 100, 473), 0);
    s.repetition_penalty = 1.2f;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 149);
    assert_int_equal(bt_sampler_needs(&s, UINT32_MAX, 9), 0);
    s.repetition_penalty = 0.9f;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 0);
    s.repetition_penalty = 1.0f;
    s.presence_penalty = -0.1f;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 0);
    s.presence_penalty = 0.0f;
    s.frequency_penalty = -0.1f;
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 0);
    s.frequency_penalty = 0.1f;
    s.temperature = 0.0f;
    assert_int_equal(bt_sampler_needs(&s, 100, 0), 1);
    assert_int_equal(bt_sampler_needs(&s, 100, 9), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(first_candidates_suffice_for_sampling),
        BT_TEST(first_candidates_suffice_under_penalties),
        BT_TEST(strong_penalties_need_more_candidates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
