/* SPDX-License-Identifier: Apache-2.0 */
/* Speculative decoding: row times, acceptance, and which drafts are taken. */
#include <math.h>
#include <stdlib.h>

#include "common/base/status.h"
#include "tests/support/testsupport.h"
#include "tests/unit/common/sched/draft_times.h"

static void time_of_rows_not_measured_lies_between_neighbours(void **state)
{
    bt_sched_row_times_t times = {0};

    (void)state;
    assert_true(bt_sched_row_times_us(&times, 3, 10) <= 0);
    bt_sched_row_times_learn(&times, 2, 1000);
    assert_true(bt_sched_row_times_us(&times, 1, 10) == 1000);
    assert_true(bt_sched_row_times_us(&times, 2, 10) == 1000);
    assert_true(bt_sched_row_times_us(&times, 4, 10) == 1020);
    bt_sched_row_times_learn(&times, 6, 2000);
    assert_true(bt_sched_row_times_us(&times, 4, 10) == 1500);
    assert_true(bt_sched_row_times_us(&times, 1000, 1) == 2994);
    bt_sched_row_times_learn(&times, 8, 1500); /* less than fewer rows took */
    assert_true(bt_sched_row_times_us(&times, 7, 10) == 2000);
}

static void impossible_row_times_are_not_learned(void **state)
{
    bt_sched_row_times_t times = {0};

    (void)state;
    bt_sched_row_times_learn(&times, 0, 1000);
    bt_sched_row_times_learn(&times, BT_SCHED_ROW_TIMES + 1, 1000);
    bt_sched_row_times_learn(&times, 1, 0);
    bt_sched_row_times_learn(&times, 1, -5);
    bt_sched_row_times_learn(&times, 1, (double)NAN);
    bt_sched_row_times_learn(&times, 1, (double)INFINITY);
    assert_int_equal(times.n_steps, 0);
    assert_true(bt_sched_row_times_us(&times, 1, 10) <= 0);
}

/* A machine that is twice as fast from now on: also for the rows that are not
 * measured any more. */
static void old_row_times_follow_new_ones(void **state)
{
    bt_sched_row_times_t times = measured(BF16);

    (void)state;
    for (unsigned i = 0; i < 400; i++) {
        bt_sched_row_times_learn(&times, 1, 5000);
    }
    assert_true(fabs(bt_sched_row_times_us(&times, 1, 1) - 5000) < 10);
    assert_true(bt_sched_row_times_us(&times, 8, 1) < 0.75 * 11200);
}

/* 5 rows were measured once, while the machine was busy: ten times too slow. */
static void slow_measurement_is_forgotten(void **state)
{
    bt_sched_row_times_t times = {0};

    (void)state;
    bt_sched_row_times_learn(&times, 1, 1000);
    bt_sched_row_times_learn(&times, 5, 11000);
    assert_true(bt_sched_row_times_us(&times, 5, 50) == 11000);
    for (unsigned i = 0; i < 1100; i++) {
        bt_sched_row_times_learn(&times, 1, 1000);
    }
    assert_true(bt_sched_row_times_us(&times, 5, 50) == 1200);
}

static void acceptance_approaches_the_true_fraction(void **state)
{
    static const double rates[] = {0.05, 0.5, 0.9};
    uint64_t rng = 1;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rates); i++) {
        bt_sched_acceptance_t all = {0};
        bt_sched_acceptance_seq_t seq = {0};
        double mean = 0;

        assert_true(bt_sched_acceptance_of(&all, &seq, BT_DRAFT_NGRAM, 3) ==
                    0.5f);
        for (unsigned k = 0; k < 2000; k++) {
            bt_sched_acceptance_learn(&all, &seq, BT_DRAFT_NGRAM, 3,
                                      chance(&rng) < rates[i]);
            mean +=
                (double)bt_sched_acceptance_of(&all, &seq, BT_DRAFT_NGRAM, 4) /
                2000;
        }
        assert_true(fabs(mean - rates[i]) < 0.05);
        /* Other lengths and sources are not measured by it. */
        assert_true(all.counts[BT_DRAFT_NGRAM][0].n <= 0);
        assert_true(all.counts[BT_DRAFT_PREDICTION][1].n <= 0);
    }
}

/* Before anything is known, by hand: 0.5 + 0.5^2 + 0.5^3 of n-grams, and 0.98 +
 * 0.98 * 0.9 + 0.98 * 0.9 * 0.5 of a grammar. */
static void drafts_of_a_grammar_are_expected_to_be_right(void **state)
{
    static const uint8_t matches[] = {BT_SCHED_DRAFT_ONLY, BT_SCHED_DRAFT_INNER,
                                      BT_SCHED_DRAFT_LONGER};
    bt_sched_acceptance_t all = {0};
    bt_sched_acceptance_seq_t seq = {0};
    const bt_sched_draft_offer_t by_ngram = {
        .n = 3, .n_matched = 3, .source = BT_DRAFT_NGRAM, .seq = &seq};
    const bt_sched_draft_offer_t by_grammar = {
        .n = 3, .matches = matches, .source = BT_DRAFT_GRAMMAR, .seq = &seq};

    (void)state;
    assert_true(fabsf(bt_sched_draft_expected(&all, &by_ngram) - 0.875f) <
                1e-5f);
    assert_true(fabsf(bt_sched_draft_expected(&all, &by_grammar) - 2.303f) <
                1e-5f);
    for (unsigned k = 0; k < 100; k++) { /* this model cuts text otherwise */
        bt_sched_acceptance_learn(&all, &seq, BT_DRAFT_GRAMMAR,
                                  BT_SCHED_DRAFT_INNER, false);
    }
    assert_true(bt_sched_draft_expected(&all, &by_grammar) < 1.1f);
}

static void sequence_that_accepts_less_than_others_is_expected_to(void **state)
{
    bt_sched_acceptance_t all = {0};
    bt_sched_acceptance_seq_t good = {0};
    bt_sched_acceptance_seq_t bad = {0};

    (void)state;
    for (unsigned k = 0; k < 200; k++) {
        bt_sched_acceptance_learn(&all, &good, BT_DRAFT_NGRAM, 9, true);
        bt_sched_acceptance_learn(&all, &bad, BT_DRAFT_NGRAM, 9, false);
    }
    assert_true(bt_sched_acceptance_of(&all, &good, BT_DRAFT_NGRAM, 9) > 0.8f);
    assert_true(bt_sched_acceptance_of(&all, &bad, BT_DRAFT_NGRAM, 9) < 0.1f);
}

/* Tokens per time of a choice, and whether it slows no sequence by a twentieth:
 * computed anew. */
static double goodput(const bt_sched_acceptance_t *all, cost_table_t table,
                      uint32_t n_seqs, const bt_sched_draft_offer_t *offers,
                      uint32_t n, const uint32_t *taken, bool *fits_p)
{
    double least = (n < n_seqs) ? 1 : 1e9;
    double tokens = n_seqs;
    uint32_t n_taken = 0;
    double us;

    for (uint32_t i = 0; i < n; i++) {
        double survival = 1;
        double expected = 1;

        for (uint32_t k = 0; k < taken[i]; k++) {
            survival *= (double)bt_sched_acceptance_of(
                all, offers[i].seq, offers[i].source, offers[i].n_matched + k);
            expected += survival;
        }
        least = (expected < least) ? expected : least;
        tokens += expected - 1;
        n_taken += taken[i];
    }
    us = 10000 * time_of(table, n_seqs + n_taken);
    *fits_p = us / least <= 1.0501 * 10000 * time_of(table, n_seqs);
    return tokens / us;
}

/* The best of all choices of 0 to 4 drafts for each of two sequences. */
static void taken_drafts_have_nearly_the_best_goodput(void **state)
{
    uint64_t rng = 3;
    double sum = 0;

    (void)state;
    for (unsigned round = 0; round < 2000; round++) {
        const cost_table_t table = (cost_table_t)draw_below(&rng, N_TABLES);
        const bt_sched_row_times_t times = measured(table);
        const uint32_t n_seqs = 2 + (uint32_t)draw_below(&rng, 3);
        const bt_sched_draft_step_t step = {.n_seqs = n_seqs,
                                            .max_drafts = MOST};
        bt_sched_acceptance_seq_t seqs[2] = {0};
        bt_sched_draft_offer_t offers[2];
        bt_sched_acceptance_t all = {0};
        double best = 0;
        double got;
        bool fits;

        for (uint32_t i = 0; i < 2; i++) {
            seqs[i].n_expected = (float)draw_below(&rng, 50);
            seqs[i].n_right = (float)draw_below(&rng, 50);
            offers[i] = (bt_sched_draft_offer_t){
                .n = (uint32_t)draw_below(&rng, 5),
                .n_matched = (uint32_t)draw_below(&rng, 20),
                .seq = &seqs[i]};
        }
        for (uint32_t a = 0; a <= offers[0].n; a++) {
            for (uint32_t b = 0; b <= offers[1].n; b++) {
                const uint32_t taken[2] = {a, b};
                const double value =
                    goodput(&all, table, n_seqs, offers, 2, taken, &fits);

                best = (fits && (value > best)) ? value : best;
            }
        }
        (void)bt_sched_draft_take(&times, &all, &step, offers, 2);
        got = goodput(&all, table, n_seqs, offers, 2,
                      (const uint32_t[]){offers[0].n_taken, offers[1].n_taken},
                      &fits);
        assert_true(fits);
        assert_true(got >= 0.92 * best);
        sum += got / best;
    }
    assert_true(sum / 2000 >= 0.995);
}

static void
drafts_are_not_taken_where_rows_are_dear_or_not_measured(void **state)
{
    const bt_sched_row_times_t dear = measured(LINEAR);
    const bt_sched_row_times_t none = {0};
    const bt_sched_draft_step_t step = {.n_seqs = 1, .max_drafts = MOST};
    bt_sched_acceptance_seq_t seq = {.n_right = 50, .n_expected = 25};
    bt_sched_acceptance_t all = {0};
    bt_sched_draft_offer_t offer = {.n = 8, .n_matched = 20, .seq = &seq};

    (void)state;
    assert_int_equal(bt_sched_draft_take(&dear, &all, &step, &offer, 1), 0);
    assert_int_equal(offer.n_taken, 0);
    assert_int_equal(bt_sched_draft_take(&none, &all, &step, &offer, 1), 0);
    assert_int_equal(bt_sched_draft_take(&none, &all, &step, &offer, 0), 0);
}

static void limits_bound_the_drafts_of_a_step(void **state)
{
    const bt_sched_row_times_t times = measured(Q4_1);
    bt_sched_draft_step_t step = {.n_seqs = 1, .max_drafts = 5};
    bt_sched_acceptance_seq_t seq = {.n_right = 50, .n_expected = 25};
    bt_sched_acceptance_t all = {0};
    bt_sched_draft_offer_t offer = {.n = 16, .n_matched = 20, .seq = &seq};

    (void)state;
    assert_int_equal(bt_sched_draft_take(&times, &all, &step, &offer, 1), 5);
    step.most_us = 13000; /* 3 rows take 12,600 us, 4 take 13,900 */
    assert_int_equal(bt_sched_draft_take(&times, &all, &step, &offer, 1), 2);
    step.most_us = 9000; /* is passed already: it says nothing about drafts */
    assert_int_equal(bt_sched_draft_take(&times, &all, &step, &offer, 1), 5);
}

/* 100 ms of chunks; 5 ms are a twentieth. */
static void drafts_delay_a_chunk_by_a_twentieth_at_most(void **state)
{
    const bt_sched_row_times_t times = measured(FLAT);
    const bt_sched_draft_step_t step = {.n_seqs = 1,
                                        .max_drafts = MOST,
                                        .has_chunks = true,
                                        .fixed_us = 100000,
                                        .row_us = 1200};
    bt_sched_acceptance_seq_t seq = {.n_right = 50, .n_expected = 25};
    bt_sched_acceptance_t all = {0};
    bt_sched_draft_offer_t offer = {.n = 16, .n_matched = 20, .seq = &seq};

    (void)state;
    assert_int_equal(bt_sched_draft_take(&times, &all, &step, &offer, 1), 4);
}

/* A worker in small: sequences whose drafts are right with a probability of
 * their own, by a machine of this cost table. @return tokens per time */
static double simulate(cost_table_t table, uint32_t n_seqs, const double *right,
                       uint32_t fixed)
{
    bt_sched_acceptance_seq_t seqs[8] = {0};
    bt_sched_draft_offer_t offers[8];
    bt_sched_row_times_t times = {0};
    bt_sched_acceptance_t all = {0};
    double tokens = 0;
    double us = 0;
    uint64_t rng = 7;

    for (unsigned step = 0; step < 4000; step++) {
        const bt_sched_draft_step_t s = {
            .n_seqs = n_seqs, .max_drafts = MOST, .row_us = 100};
        uint32_t n_taken = 0;
        double step_us;

        for (uint32_t i = 0; i < n_seqs; i++) {
            offers[i] = (bt_sched_draft_offer_t){
                .n = MOST, .n_matched = 3, .seq = &seqs[i]};
        }
        if (fixed == UINT32_MAX) {
            n_taken = bt_sched_draft_take(&times, &all, &s, offers, n_seqs);
        } else {
            for (uint32_t i = 0; i < n_seqs; i++) {
                offers[i].n_taken = fixed;
                n_taken += fixed;
            }
        }
        step_us = 10000 * time_of(table, n_seqs + n_taken) *
                  (0.95 + 0.1 * chance(&rng));
        bt_sched_row_times_learn(&times, n_seqs + n_taken, step_us);
        us += step_us;
        for (uint32_t i = 0; i < n_seqs; i++) {
            bool is_right = true;

            for (uint32_t k = 0; (k <= offers[i].n_taken) && is_right; k++) {
                is_right = chance(&rng) < right[i];
                tokens++;
                bt_sched_acceptance_learn(&all, &seqs[i], BT_DRAFT_NGRAM, 3 + k,
                                          is_right);
            }
        }
    }
    return tokens / us;
}

/* The best length is known only afterwards; the controller has to learn costs
 * and acceptance. */
static void controller_is_near_the_best_fixed_length(void **state)
{
    static const struct {
        uint32_t n;
        double right[8];
    } loads[] = {{1, {0.02}},
                 {1, {0.5}},
                 {1, {0.8}},
                 {1, {0.97}},
                 {4, {0.05, 0.05, 0.05, 0.05}},
                 {4, {0.9, 0.9, 0.9, 0.9}},
                 {4, {0.9, 0.1, 0.1, 0.1}},
                 {8, {0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3}}};

    (void)state;
    for (cost_table_t table = 0; table < N_TABLES; table++) {
        for (size_t i = 0; i < BT_ARRAY_LEN(loads); i++) {
            const double got =
                simulate(table, loads[i].n, loads[i].right, UINT32_MAX);
            double best = 0;
            double off = 0;

            for (uint32_t k = 0; k * loads[i].n <= MOST; k++) {
                const double fixed =
                    simulate(table, loads[i].n, loads[i].right, k);

                off = (k == 0) ? fixed : off;
                best = (fixed > best) ? fixed : best;
            }
            assert_true(got >= 0.98 * off);
            /* Where one sequence of several copies, a fixed length slows the
             * others by more than the controller may. */
            assert_true((got >= 0.95 * best) || (i == 6));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(time_of_rows_not_measured_lies_between_neighbours),
        BT_TEST(impossible_row_times_are_not_learned),
        BT_TEST(old_row_times_follow_new_ones),
        BT_TEST(slow_measurement_is_forgotten),
        BT_TEST(acceptance_approaches_the_true_fraction),
        BT_TEST(drafts_of_a_grammar_are_expected_to_be_right),
        BT_TEST(sequence_that_accepts_less_than_others_is_expected_to),
        BT_TEST(taken_drafts_have_nearly_the_best_goodput),
        BT_TEST(drafts_are_not_taken_where_rows_are_dear_or_not_measured),
        BT_TEST(limits_bound_the_drafts_of_a_step),
        BT_TEST(drafts_delay_a_chunk_by_a_twentieth_at_most),
        BT_TEST(controller_is_near_the_best_fixed_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
