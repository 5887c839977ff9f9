/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search by hand-worked searches, and against the best of all sequences of
 * a small vocabulary. tests/integration/test_beams.py has transformers'
 * answers. */
#include "common/sched/sched_beam.h"

#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/support/testsupport.h"

#define VOCAB 4u /* of made-up models */

static bt_sched_beams_t begun(uint32_t width, float length_penalty,
                              bt_sched_beam_stop_t stop, uint32_t max_new)
{
    const bt_sched_beam_params_t params = {.width = width,
                                           .n_returned = width,
                                           .length_penalty = length_penalty,
                                           .early_stopping = stop};
    bt_sched_beams_t beams;

    bt_sched_beams_init(&beams, &params, max_new);
    return beams;
}

/* The C library's pow() is within an ulp; ours must be close to it, and exact
 * for what multiplications give exactly. */
static void power_is_close_to_the_c_library(void **state)
{
    static const double powers[] = {-16.0, -3.0, -1.0, -0.6,  -1e-6, 0.0, 0.1,
                                    0.3,   0.5,  1.0,  1.375, 2.0,   7.7, 16.0};

    (void)state;
    for (uint32_t length = 1; length < (1u << 22); length += length / 7 + 1) {
        for (uint32_t i = 0; i < BT_ARRAY_LEN(powers); i++) {
            const double got = bt_sched_beam_power(length, powers[i]);
            const double want = pow((double)length, powers[i]);

            assert_true(fabs(got - want) <= 1e-13 * want);
        }
        assert_true(bt_sched_beam_power(length, 1.0) == (double)length);
        assert_true(bt_sched_beam_power(length, 0.0) == 1.0);
        assert_true(bt_sched_beam_power(length, -1.0) == 1.0 / length);
    }
}

static void candidates_are_ordered_by_sum_then_beam_then_id(void **state)
{
    bt_sched_beam_candidate_t c[] = {
        {.sum = -2, .beam = 1, .id = 3}, {.sum = -2, .beam = 1, .id = 2},
        {.sum = -1, .beam = 2, .id = 9}, {.sum = -2, .beam = 0, .id = 7},
        {.sum = -3, .beam = 0, .id = 0}, {.sum = -2, .beam = 2, .id = 1},
    };
    static const uint32_t ids[] = {9, 7, 2, 3, 1, 0};
    bt_sched_beams_t beams = begun(3, 1.0f, BT_SCHED_BEAM_STOP_HEURISTIC, 5);
    bt_sched_beam_step_t step;

    (void)state;
    bt_sched_beams_step(&beams, c, 6, &step);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(c[i].id, ids[i]);
    }
    assert_int_equal(step.n_next, 3);
    assert_true(step.goes_on);
    assert_true(beams.sums[0] == -1.0 && beams.sums[2] == -2.0);
}

/* The third best ends, but only the first two count: it is dropped, and no beam
 * is lost by it. */
static void end_behind_the_width_does_not_finish(void **state)
{
    bt_sched_beam_candidate_t c[] = {
        {.sum = -1, .id = 5},
        {.sum = -2, .id = 0, .ends = true},
        {.sum = -3, .id = 1, .ends = true},
        {.sum = -4, .id = 6},
    };
    bt_sched_beams_t beams = begun(2, 1.0f, BT_SCHED_BEAM_STOP_HEURISTIC, 5);
    bt_sched_beam_step_t step;

    (void)state;
    bt_sched_beams_step(&beams, c, 4, &step);
    assert_int_equal(step.n_kept, 1);
    assert_int_equal(step.kept[0], 1);
    assert_int_equal(step.n_next, 2);
    assert_int_equal(c[step.next[1]].id, 6);
    assert_int_equal(beams.n_answers, 1);
    assert_true(beams.answers[0].ends && (beams.answers[0].score == -2.0));
}

/* Two answers are finished, and the best beam of 2 tokens has the sum -4: with
 * length penalty 1 its score is -2 now, and -0.4 at the greatest length. */
static void stopping_rule_decides_at_which_length_a_beam_counts(void **state)
{
    static const struct {
        bt_sched_beam_stop_t stop;
        float length_penalty;
        double worst; /* sum of the worse of the two answers, of 2 tokens */
        bool goes_on;
    } cases[] = {
        {BT_SCHED_BEAM_STOP_FULL, 1.0f, -9.0, false},
        {BT_SCHED_BEAM_STOP_HEURISTIC, 1.0f, -3.9, false}, /* -1.95 > -2 */
        {BT_SCHED_BEAM_STOP_HEURISTIC, 1.0f, -4.1, true},
        {BT_SCHED_BEAM_STOP_HEURISTIC, 1.0f, -4.0, false}, /* equal */
        {BT_SCHED_BEAM_STOP_NEVER, 1.0f, -3.9, true},      /* -0.4 > -1.95 */
        {BT_SCHED_BEAM_STOP_NEVER, 1.0f, -0.7, false},     /* -0.4 < -0.35 */
        {BT_SCHED_BEAM_STOP_NEVER, 0.0f, -3.9, false},     /* -4 < -3.9 */
        {BT_SCHED_BEAM_STOP_NEVER, 0.0f, -4.1, true},
        {BT_SCHED_BEAM_STOP_NEVER, -1.0f, -3.9, false}, /* -8 < -7.8 */
    };

    (void)state;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const double power =
            bt_sched_beam_power(2, (double)cases[i].length_penalty);
        bt_sched_beams_t beams =
            begun(2, cases[i].length_penalty, cases[i].stop, 10);
        bt_sched_beam_candidate_t c[] = {{.sum = -4, .id = 1},
                                         {.sum = -5, .id = 2}};
        bt_sched_beam_step_t step;

        beams.length = 1;
        beams.n_answers = 2;
        beams.answers[0] = (bt_sched_beam_answer_t){.score = -0.01};
        beams.answers[1] =
            (bt_sched_beam_answer_t){.score = cases[i].worst / power};
        bt_sched_beams_step(&beams, c, 2, &step);
        assert_int_equal(step.goes_on, cases[i].goes_on);
    }
}

/* At the greatest length the first `width` end, whatever their ids. */
static void greatest_length_finishes_the_first_ones(void **state)
{
    bt_sched_beam_candidate_t c[] = {{.sum = -3, .id = 2},
                                     {.sum = -1, .id = 5, .ends = true},
                                     {.sum = -2, .id = 6},
                                     {.sum = -4, .id = 7}};
    bt_sched_beams_t beams = begun(3, 0.0f, BT_SCHED_BEAM_STOP_NEVER, 1);
    bt_sched_beam_step_t step;

    (void)state;
    bt_sched_beams_step(&beams, c, 4, &step);
    assert_false(step.goes_on);
    assert_int_equal(step.n_next, 0);
    assert_int_equal(beams.n_answers, 3);
    assert_true(beams.answers[0].ends && !beams.answers[1].ends);
    assert_true(beams.answers[2].score == -3.0);
}

/* A better answer takes the slot of the worst one, and only a better one. */
static void pool_keeps_the_best_answers(void **state)
{
    bt_sched_beams_t beams = begun(2, 0.0f, BT_SCHED_BEAM_STOP_NEVER, 9);
    bt_sched_beam_candidate_t one[] = {{.sum = -5, .id = 0, .ends = true},
                                       {.sum = -6, .id = 0, .ends = true},
                                       {.sum = -7, .id = 1},
                                       {.sum = -8, .id = 2}};
    bt_sched_beam_candidate_t two[] = {{.sum = -5.5, .id = 0, .ends = true},
                                       {.sum = -5.9, .id = 3, .beam = 1},
                                       {.sum = -5.95, .id = 4}};
    bt_sched_beam_candidate_t three[] = {{.sum = -5.5, .id = 0, .ends = true},
                                         {.sum = -9, .id = 3}};
    bt_sched_beam_step_t step;

    (void)state;
    beams.n_answers = 0;
    bt_sched_beams_step(&beams, one, 4, &step);
    assert_int_equal(step.n_kept, 2);
    assert_false(step.goes_on); /* -7 is worse than -6 */
    bt_sched_beams_step(&beams, two, 3, &step);
    assert_int_equal(step.n_kept, 1);
    assert_int_equal(step.slots[0], 1); /* where -6 was */
    assert_true(beams.answers[1].score == -5.5);
    bt_sched_beams_step(&beams, three, 2, &step);
    assert_int_equal(step.n_kept, 0); /* equal: the older one stays */
    assert_int_equal(beams.n_answers, 2);
}

static void search_without_candidates_is_over(void **state)
{
    bt_sched_beams_t beams = begun(4, 1.0f, BT_SCHED_BEAM_STOP_NEVER, 9);
    bt_sched_beam_step_t step;

    (void)state;
    bt_sched_beams_step(&beams, NULL, 0, &step);
    assert_false(step.goes_on);
    assert_int_equal(beams.n_answers, 0);
}

/* Log-probs of a made-up model: of the number that the sequence so far is. */
static double logprob_of(uint64_t sequence, uint32_t id)
{
    double sum = 0.0;
    double mine = 0.0;

    for (uint32_t i = 0; i < VOCAB; i++) {
        const double p =
            1.0 + (double)((sequence * 7919 + i * 104729 + 31) % 97);

        sum += p;
        mine = (i == id) ? p : mine;
    }
    return log(mine / sum);
}

/* A search so wide that it drops nothing finds the best of all sequences. */
static void wide_search_finds_the_best_of_all_sequences(void **state)
{
    enum { LENGTH = 3, WIDTH = 64 };
    bt_sched_beams_t beams =
        begun(WIDTH, 0.0f, BT_SCHED_BEAM_STOP_NEVER, LENGTH);
    uint64_t sequences[WIDTH] = {1};
    bt_sched_beam_candidate_t c[WIDTH * VOCAB];
    bt_sched_beam_step_t step = {.goes_on = true};
    double best = -INFINITY;

    (void)state;
    while (step.goes_on) {
        uint64_t before[WIDTH];
        uint32_t n = 0;

        memcpy(before, sequences, sizeof(before));
        for (uint32_t beam = 0; beam < beams.n; beam++) {
            for (uint32_t id = 0; id < VOCAB; id++) {
                const double logprob = logprob_of(before[beam], id);

                c[n++] = (bt_sched_beam_candidate_t){
                    .sum = beams.sums[beam] + logprob,
                    .logprob = logprob,
                    .beam = beam,
                    .id = id,
                };
            }
        }
        bt_sched_beams_step(&beams, c, n, &step);
        for (uint32_t i = 0; i < step.n_next; i++) {
            const bt_sched_beam_candidate_t *next = &c[step.next[i]];

            sequences[i] = before[next->beam] * VOCAB + next->id;
        }
    }
    for (uint32_t all = 0; all < WIDTH; all++) { /* 4^3 */
        uint64_t sequence = 1;
        double sum = 0.0;

        for (uint32_t i = LENGTH; i > 0; i--) {
            const uint32_t id = (all >> (2 * (i - 1))) % VOCAB;

            sum += logprob_of(sequence, id);
            sequence = sequence * VOCAB + id;
        }
        best = (sum > best) ? sum : best;
    }
    assert_int_equal(beams.n_answers, WIDTH);
    assert_true(fabs(beams.answers[0].score - best) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(power_is_close_to_the_c_library),
        BT_TEST(candidates_are_ordered_by_sum_then_beam_then_id),
        BT_TEST(end_behind_the_width_does_not_finish),
        BT_TEST(stopping_rule_decides_at_which_length_a_beam_counts),
        BT_TEST(greatest_length_finishes_the_first_ones),
        BT_TEST(pool_keeps_the_best_answers),
        BT_TEST(search_without_candidates_is_over),
        BT_TEST(wide_search_finds_the_best_of_all_sequences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
