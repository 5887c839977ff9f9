/* SPDX-License-Identifier: Apache-2.0 */
/* A draw that a back end is told is the one that the sampler makes, and a score
 * is the log-prob of the host: the reference (tests/support/reference_draw.h)
 * against both. */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/model/drawing.h"
#include "inference/model/logits.h"
#include "tests/support/reference_draw.h"
#include "tests/unit/inference/model/sampler_rig.h"

#define MAX_EACH 4u
#define MAX_TOLD 300u /* tokens */

static bt_drawing_t *make_drawing(void)
{
    bt_drawing_t *drawing = NULL;

    assert_int_equal(bt_drawing_create(N_VOCAB, MAX_EACH, &drawing), BT_OK);
    return drawing;
}

static bt_batch_t batch_of(const bt_drawing_t *d)
{
    return (bt_batch_t){.draws = d->draws,
                        .edits = d->edits,
                        .scorings = d->scorings,
                        .n_draws = d->n_draws,
                        .n_edits = d->n_edits,
                        .n_scorings = d->n_scorings};
}

/* Everything that a request can ask for, some of it at a time. */
typedef struct asked {
    bt_sampling_t s;
    bt_bad_word_t words[3];
    bt_logit_bias_t biases[40];
    uint32_t tokens[MAX_TOLD];
    uint32_t n_tokens;
    uint32_t n_prompt;
} asked_t;

static void ask_settings(bt_sampling_t *s, uint32_t round)
{
    static const float temperatures[] = {0.7f, 0.0f, 1.0f, 5.0f, 0.01f};
    static const uint32_t top_ks[] = {0, 40, 1, 257, 0, 2, N_VOCAB + 5};
    static const float top_ps[] = {1.0f, 0.9f, 0.3f, 1e-6f};
    static const float min_ps[] = {0.0f, 0.0f, 0.05f, 1.0f};
    static const float repetitions[] = {1.0f, 1.0f, 1.3f, 0.7f};
    static const float presences[] = {0.0f, 0.0f, 0.5f, -0.6f, 2.0f};
    static const float frequencies[] = {0.0f, 0.3f, 0.0f, 0.0f, 0.0f, -0.4f};

    s->temperature = temperatures[round % 5];
    s->top_k = top_ks[round / 2 % 7];
    s->top_p = top_ps[round / 5 % 4];
    s->min_p = min_ps[round / 3 % 4];
    s->repetition_penalty = repetitions[round / 7 % 4];
    s->presence_penalty = presences[round / 11 % 5];
    s->frequency_penalty = frequencies[round / 13 % 6];
    s->seed = 0x123456789abcdefull * (round + 1);
}

static void ask(asked_t *a, uint32_t round)
{
    a->s = bt_sampling_default();
    ask_settings(&a->s, round);
    a->n_tokens = round * 13 % MAX_TOLD;
    a->n_prompt = a->n_tokens / (1 + round % 3);
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        /* many of them several times, and some that the model has not */
        a->tokens[i] = (i * i + round) % ((i % 3 == 0) ? N_VOCAB + 9 : 60);
    }
    for (uint32_t i = 0; i < BT_ARRAY_LEN(a->words); i++) {
        a->words[i] = (bt_bad_word_t){.n = 1 + i % 2};
        a->words[i].ids[0] = (a->n_tokens > 0) ? a->tokens[a->n_tokens - 1] : i;
        a->words[i].ids[1] = (round * 7 + i) % N_VOCAB;
    }
    for (uint32_t i = 0; i < BT_ARRAY_LEN(a->biases); i++) {
        a->biases[i] =
            (bt_logit_bias_t){.id = (i * 31 + round) % (N_VOCAB + 20),
                              .bias = (float)uniform(round, i) * 20.0f - 10.0f};
    }
    a->s.bad_words = a->words;
    a->s.n_bad_words = round % 4;
    a->s.logit_biases = a->biases;
    a->s.n_logit_biases =
        (round % 3 == 1) ? (uint32_t)BT_ARRAY_LEN(a->biases) : 0;
    a->s.min_tokens = round / 4 % 2 * MAX_TOLD;
    a->s.n_end_ids = 2;
    a->s.end_ids[0] = round % N_VOCAB;
    a->s.end_ids[1] = N_VOCAB + 3;
}

static void device_sampling_equals_the_host_sampler(void **state)
{
    bt_sampler_t *sampler = make_sampler(N_VOCAB);
    bt_drawing_t *drawing = make_drawing();
    static float logits[N_VOCAB], spent[N_VOCAB];
    static asked_t a;
    uint32_t n_edited = 0;

    (void)state;
    for (uint32_t round = 0; round < 1200; round++) {
        bt_drawn_from_t from;
        bt_batch_t batch;
        uint32_t id = UINT32_MAX;

        for (uint32_t i = 0; i < N_VOCAB; i++) {
            logits[i] = random_logit(i, round);
        }
        ask(&a, round);
        from = (bt_drawn_from_t){.sampling = &a.s,
                                 .is_biased = true,
                                 .tokens = a.tokens,
                                 .n_tokens = a.n_tokens,
                                 .n_prompt = a.n_prompt};
        bt_drawing_clear(drawing);
        assert_true(bt_drawing_add(drawing, 0, &from));
        batch = batch_of(drawing);
        memcpy(spent, logits, sizeof(spent));
        bt_reference_draw(spent, &batch, N_VOCAB, &id);
        assert_memory_equal(spent, logits, sizeof(spent)); /* as they were */
        for (uint32_t i = 0; i < a.s.n_logit_biases; i++) {
            if (a.biases[i].id < N_VOCAB) {
                spent[a.biases[i].id] += a.biases[i].bias;
            }
        }
        assert_int_equal(id,
                         bt_sampler_draw(sampler, &a.s, spent, a.tokens,
                                         a.n_tokens, a.n_prompt, a.n_tokens));
        n_edited += (drawing->n_edits > 50) ? 1 : 0;
    }
    assert_true(n_edited > 300);
    bt_drawing_destroy(drawing);
    bt_sampler_destroy(sampler);
}

/* What is not told leaves no trace: two biases of one token, more than fit. */
static void unsupported_sampling_stays_on_the_host(void **state)
{
    const bt_logit_bias_t twice[] = {{3, 1.0f}, {4, 1.0f}, {3, 1.0f}};
    const bt_scoring_t scoring = {.draw = BT_SCORING_NO_DRAW};
    bt_sampling_t s = bt_sampling_default();
    const bt_drawn_from_t plain = {.sampling = &s};
    const bt_drawn_from_t biased = {.sampling = &s, .is_biased = true};
    bt_drawing_t *drawing = make_drawing();

    (void)state;
    s.logit_biases = twice;
    s.n_logit_biases = 3;
    assert_false(bt_drawing_add(drawing, 0, &biased));
    assert_int_equal(drawing->n_draws + drawing->n_edits, 0);
    s.n_logit_biases = 2;
    for (uint32_t i = 0; i < MAX_EACH; i++) {
        assert_true(bt_drawing_add(drawing, 0, (i == 1) ? &plain : &biased));
        assert_true(bt_drawing_score(drawing, &scoring, i));
    }
    assert_int_equal(drawing->n_edits, 2 * (MAX_EACH - 1));
    assert_int_equal(drawing->n_top, MAX_EACH - 1);
    assert_false(bt_drawing_add(drawing, 0, &biased));
    assert_false(bt_drawing_score(drawing, &scoring, 0));
    bt_drawing_cut(drawing, 2, 1);
    assert_int_equal(drawing->n_draws, 2);
    assert_int_equal(drawing->n_edits, 2);
    assert_int_equal(drawing->n_scorings, 1);
    assert_false(bt_drawing_score(drawing, &scoring, BT_MAX_TOP_LOGPROBS + 1));
    bt_drawing_clear(drawing);
    assert_true(bt_drawing_add(drawing, 0, &biased)); /* no place is taken */
    assert_int_equal(drawing->n_edits, 2);
    bt_drawing_destroy(drawing);
}

static void penalty_history_over_the_limit_stays_on_the_host(void **state)
{
    static uint32_t tokens[BT_DRAWING_EDITS];
    bt_sampling_t s = bt_sampling_default();
    bt_drawn_from_t from = {.sampling = &s, .tokens = tokens};
    bt_drawing_t *drawing = NULL;

    (void)state;
    assert_int_equal(bt_drawing_create(BT_DRAWING_EDITS, 9, &drawing), BT_OK);
    for (uint32_t i = 0; i < BT_DRAWING_EDITS; i++) {
        tokens[i] = i;
    }
    s.repetition_penalty = 1.1f;
    from.n_tokens = from.n_prompt = BT_DRAWING_EDITS - 1;
    assert_true(bt_drawing_add(drawing, 0, &from));
    from.n_tokens = 2;
    assert_false(bt_drawing_add(drawing, 0, &from));
    assert_int_equal(drawing->n_edits, BT_DRAWING_EDITS - 1);
    from.n_tokens = 1;
    assert_true(bt_drawing_add(drawing, 0, &from));
    assert_int_equal(drawing->n_draws, 2);
    bt_drawing_destroy(drawing);
}

static void device_log_prob_equals_the_hosts(void **state)
{
    static const uint32_t dims[] = {1, 5, 16, 17, 255, 256, 271, 300, N_VOCAB};
    static float logits[2 * N_VOCAB];
    const uint32_t drawn[] = {77, 0};

    (void)state;
    for (uint32_t round = 0; round < 20 * BT_ARRAY_LEN(dims); round++) {
        const uint32_t n = dims[round % BT_ARRAY_LEN(dims)];
        const bt_scoring_t scorings[] = {
            {.logit_row = 1, .draw = 1},
            {.logit_row = 0, .draw = BT_SCORING_NO_DRAW, .id = n - 1}};
        const bt_batch_t batch = {.scorings = scorings, .n_scorings = 2};
        bt_scored_t out[2];

        for (uint32_t i = 0; i < 2 * n; i++) {
            logits[i] =
                (float)uniform(round, i) * ((round % 2 == 0) ? 20.0f : 300.0f);
        }
        bt_reference_score(logits, &batch, n, drawn, out);
        for (size_t i = 0; i < 2; i++) {
            const double sum = bt_logprob_sum(logits + (1 - i) * n, n);

            assert_true(bt_logprob_of(&out[i]) == (double)out[i].logit - sum);
            assert_true(out[i].logit == logits[(i == 0) ? n : n - 1]);
        }
        logits[n - 1] = (round % 3 == 0) ? NAN : -INFINITY;
        bt_reference_score(logits, &batch, n, drawn, out);
        assert_true(isnan(out[1].sum) != 0);
        assert_true(isnan(out[0].sum) == 0);
    }
}

static void drawing_create_survives_every_failed_allocation(void **state)
{
    bt_drawing_t *drawing = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_drawing_create(10, 3, &drawing);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 7);
    bt_drawing_destroy(drawing);
    bt_drawing_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(device_sampling_equals_the_host_sampler),
        BT_TEST(unsupported_sampling_stays_on_the_host),
        BT_TEST(penalty_history_over_the_limit_stays_on_the_host),
        BT_TEST(device_log_prob_equals_the_hosts),
        BT_TEST(drawing_create_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
