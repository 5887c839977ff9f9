/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows a draft model computes to catch up. Expected numbers are worked by
 * hand from the bounds of the header; at the end lives of many sequences. */
#include "common/sched/sched_catch_up.h"

#include <math.h>

#include "common/base/status.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

/* A row takes 10 us. */
static bt_sched_catch_up_t measured(void)
{
    bt_sched_catch_up_t state = {0};

    bt_sched_catch_up_learn(&state, 16, 99999); /* cold: teaches nothing */
    assert_true(state.row_us == 0);
    bt_sched_catch_up_learn(&state, 16, 160);
    assert_true(state.row_us == 10);
    assert_true(state.credit_us == 0);
    return state;
}

/* Rounds that were measured, and who is to catch up. */
static bt_sched_rounds_t rounds_of(bt_sched_catch_up_of_t catch_up)
{
    bt_sched_rounds_t rounds = {.n_made = 9};

    bt_sched_row_times_learn(&rounds.times, 1, 1000);
    rounds.catch_up = catch_up;
    return rounds;
}

static const bt_sched_catch_up_step_t step_1000 = {.alone_us = 1000,
                                                   .n_seqs = 1};

/* Plans for one sequence that will generate for long. @return rows */
static uint32_t plan_one(bt_sched_catch_up_t *state,
                         bt_sched_catch_up_of_t catch_up,
                         const bt_sched_catch_up_step_t *step,
                         uint32_t n_missing)
{
    const bt_sched_rounds_t rounds = rounds_of(catch_up);
    bt_sched_lag_t lag = {.n_missing = n_missing, .n_left = 1u << 20};

    return bt_sched_catch_up_plan(state, &rounds, step, &lag, 1).n_rows;
}

static void unmeasured_rows_are_few(void **state)
{
    bt_sched_catch_up_t catch_up = {0};

    (void)state;
    assert_int_equal(
        plan_one(&catch_up, BT_SCHED_CATCH_UP_NONE, &step_1000, 500), 0);
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step_1000, 0),
                     0);
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step_1000, 5),
                     5);
    assert_int_equal(
        plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step_1000, 500),
        BT_SCHED_CATCH_UP_LEAST);
}

/* Half of 1000 us: 50 rows; of 100 us 5, but 16 are worth a call. */
static void rows_take_a_part_of_an_iteration(void **state)
{
    const bt_sched_catch_up_step_t long_step = {.alone_us = 9000, .n_seqs = 1};
    const bt_sched_catch_up_step_t short_step = {.alone_us = 100, .n_seqs = 1};
    bt_sched_catch_up_t catch_up = measured();

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(
            plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step_1000, 500), 50);
        bt_sched_catch_up_learn(&catch_up, 50, 500);
        assert_int_equal(
            plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step_1000, 30), 30);
        bt_sched_catch_up_learn(&catch_up, 30, 300);
        assert_int_equal(
            plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &short_step, 500),
            BT_SCHED_CATCH_UP_LEAST);
        assert_int_equal(
            plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &short_step, 7), 7);
    }
    assert_int_equal(
        plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &long_step, 500),
        BT_SCHED_CATCH_UP_ROWS);
}

/* A twentieth of 1000 us is 5 rows: 160 rows are begun after the credit of 32
 * iterations, in pieces that are worth a call. */
static void mean_is_a_twentieth_where_others_wait(void **state)
{
    const bt_sched_catch_up_step_t waiting = {
        .alone_us = 1000, .n_seqs = 1, .others_wait = true};
    const struct {
        bt_sched_catch_up_of_t catch_up;
        const bt_sched_catch_up_step_t *step;
    } cases[] = {{BT_SCHED_CATCH_UP_ALL, &waiting},
                 {BT_SCHED_CATCH_UP_ONE, &step_1000}};

    (void)state;
    for (uint32_t k = 0; k < BT_ARRAY_LEN(cases); k++) {
        bt_sched_catch_up_t catch_up = measured();
        uint32_t n_missing = 160;

        for (uint32_t i = 1; i < 32; i++) {
            assert_int_equal(plan_one(&catch_up, cases[k].catch_up,
                                      cases[k].step, n_missing),
                             0);
        }
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(plan_one(&catch_up, cases[k].catch_up,
                                      cases[k].step, n_missing),
                             BT_SCHED_CATCH_UP_LEAST);
            bt_sched_catch_up_learn(&catch_up, 16, 160);
            n_missing -= 16;
        }
        /* Meanwhile 9 x 50 us were gained. */
        assert_int_equal(catch_up.credit_us, 450);
        /* More than the credit of 1024 iterations is never begun. */
        for (uint32_t i = 0; i < 2000; i++) {
            assert_int_equal(
                plan_one(&catch_up, cases[k].catch_up, cases[k].step, 5121), 0);
        }
        assert_int_equal(
            plan_one(&catch_up, cases[k].catch_up, cases[k].step, 5120),
            BT_SCHED_CATCH_UP_LEAST);
    }
}

static void target_of_the_time_between_tokens_is_kept(void **state)
{
    bt_sched_catch_up_step_t step = {
        .alone_us = 1000, .most_us = 1100, .n_seqs = 1};
    bt_sched_catch_up_t catch_up = measured();
    bt_sched_catch_up_t unknown = {0};

    (void)state;
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step, 500),
                     10);
    step.drafts_us = 60;
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step, 500), 4);
    step.drafts_us = 100; /* all that there is */
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step, 500), 0);
    step.drafts_us = 0;
    step.most_us = 1005;
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step, 500), 0);
    step.most_us = 900; /* is missed without, too */
    assert_int_equal(plan_one(&catch_up, BT_SCHED_CATCH_UP_ALL, &step, 500),
                     50);
    /* The first rows may take as long as an iteration. */
    step.most_us = 1990;
    assert_int_equal(plan_one(&unknown, BT_SCHED_CATCH_UP_ALL, &step, 500), 0);
    step.most_us = 2010;
    assert_int_equal(plan_one(&unknown, BT_SCHED_CATCH_UP_ALL, &step, 500),
                     BT_SCHED_CATCH_UP_LEAST);
}

static void slow_measurement_counts_for_a_part(void **state)
{
    bt_sched_catch_up_t catch_up = measured();

    (void)state;
    bt_sched_catch_up_learn(&catch_up, 16, 160000); /* clipped: + 100 % / 4 */
    assert_true(catch_up.row_us == 12.5);
    bt_sched_catch_up_learn(&catch_up, 10, 62.5); /* half: - 50 % / 4 */
    assert_true(catch_up.row_us == 12.5 * 0.875);
    bt_sched_catch_up_learn(&catch_up, 0, 1);
    bt_sched_catch_up_learn(&catch_up, 1, 0);
    assert_true(catch_up.row_us == 12.5 * 0.875);
}

/* A token takes 100 us, of which half is saved at best: 100 rows of 10 us are
 * worth it for 20 tokens, and not for 19. In a trial they are. */
static void sequences_gain_more_than_their_rows_cost(void **state)
{
    const bt_sched_catch_up_step_t step = {.alone_us = 300, .n_seqs = 3};
    const bt_sched_rounds_t all = rounds_of(BT_SCHED_CATCH_UP_ALL);
    const bt_sched_rounds_t trial = {.catch_up = BT_SCHED_CATCH_UP_ONE};
    bt_sched_lag_t lags[3] = {{100, 19}, {100, 20}, {90, 18}};
    bt_sched_catch_up_t catch_up = measured();
    bt_sched_catch_up_plan_t plan;

    (void)state;
    plan = bt_sched_catch_up_plan(&catch_up, &all, &step, lags, 3);
    assert_int_equal(plan.n_rows, BT_SCHED_CATCH_UP_LEAST);
    assert_false(plan.is_one);
    assert_int_equal(bt_sched_catch_up_next(&plan, lags, 3), 1);
    lags[1].n_missing = 0;
    assert_int_equal(bt_sched_catch_up_next(&plan, lags, 3), 2);
    lags[2].n_missing = 0;
    assert_int_equal(bt_sched_catch_up_next(&plan, lags, 3), 3);

    lags[0] = lags[1] = (bt_sched_lag_t){100, 1};
    lags[2] = (bt_sched_lag_t){90, 1};
    plan = bt_sched_catch_up_plan(&catch_up, &trial, &step, lags, 3);
    assert_int_equal(plan.n_rows, BT_SCHED_CATCH_UP_LEAST);
    assert_true(plan.is_one);
    assert_int_equal(bt_sched_catch_up_next(&plan, lags, 3), 2);
}

/* Lives of sequences, one after the other at each seat: their drafts are right
 * with one probability, all drafts of rounds are verified. */
typedef struct sim {
    double right;
    double round_us; /* of one row; an iteration takes 10 ms, and 0.2 a row */
    double row_us;   /* to catch up */
    uint32_t n_seqs, n_prompt, n_answer;
} sim_t;

typedef struct life {
    uint32_t n_tokens, n_left, n_kv;
    bt_sched_acceptance_seq_t acceptance;
} life_t;

typedef struct found {
    double speed; /* of an iteration's tokens, relative to without */
    uint32_t n_tried, n_rows;
} found_t;

#define N_ITERATIONS 20000u

static double catch_all_up(const sim_t *sim, bt_sched_catch_up_t *catch_up,
                           const bt_sched_rounds_t *rounds, double alone_us,
                           life_t *lives, const bt_sched_chain_t *chains,
                           uint32_t *n_rows)
{
    const bt_sched_catch_up_step_t step = {.alone_us = alone_us,
                                           .n_seqs = sim->n_seqs};
    bt_sched_lag_t lags[8];
    bt_sched_catch_up_plan_t plan;
    double us = 0;
    uint32_t i;

    for (i = 0; i < sim->n_seqs; i++) {
        lags[i] = (bt_sched_lag_t){
            chains[i].lags ? lives[i].n_tokens - 1 - lives[i].n_kv : 0,
            lives[i].n_left};
    }
    plan = bt_sched_catch_up_plan(catch_up, rounds, &step, lags, sim->n_seqs);
    while (plan.n_rows > 0) {
        uint32_t n;

        i = bt_sched_catch_up_next(&plan, lags, sim->n_seqs);
        if (i == sim->n_seqs) {
            break;
        }
        n = (lags[i].n_missing < plan.n_rows) ? lags[i].n_missing : plan.n_rows;
        lives[i].n_kv += n;
        lags[i].n_missing = 0;
        *n_rows += n;
        us += n * sim->row_us;
        bt_sched_catch_up_learn(catch_up, n, n * sim->row_us);
        plan.n_rows = plan.is_one ? 0 : plan.n_rows - n;
    }
    return us;
}

static found_t simulate(const sim_t *sim)
{
    bt_sched_row_times_t times = {0};
    bt_sched_rounds_t rounds = {0};
    bt_sched_catch_up_t catch_up = {0};
    bt_sched_acceptance_t all = {0};
    life_t lives[8] = {0};
    found_t found = {0};
    const double alone_us = 10000 + 200.0 * sim->n_seqs;
    uint64_t rng = 5;
    double us = 0;
    double tokens = 0;

    for (uint32_t step_no = 0; step_no < N_ITERATIONS; step_no++) {
        const bt_sched_draft_step_t step = {
            .n_seqs = sim->n_seqs, .max_drafts = 16, .row_us = 200};
        bt_sched_beside_t beside = {.least = INFINITY};
        bt_sched_chain_t chains[8];
        double goodput;
        double extra_us;
        uint32_t n_drafts = 0;
        uint32_t n_on = 1;

        for (uint32_t i = 0; i < sim->n_seqs; i++) {
            life_t *l = &lives[i];
            uint32_t n;

            if (l->n_left < 2) {
                *l = (life_t){.n_tokens = sim->n_prompt + 1,
                              .n_left = sim->n_answer};
            }
            n = l->n_tokens - l->n_kv;
            chains[i] = (bt_sched_chain_t){
                .most = (l->n_left - 1 < bt_sched_acceptance_most(&all))
                            ? l->n_left - 1
                            : bt_sched_acceptance_most(&all),
                .acceptance = bt_sched_acceptance_model(&all, &l->acceptance),
                .survival = 1,
                .lags = n > 8,
                .n_more_rows = (n > 8) ? 0 : n - 1};
        }
        beside.goodput = bt_sched_draft_goodput(&times, &step, NULL, 0);
        goodput = bt_sched_rounds_begin(&times, &rounds, &step, &beside, chains,
                                        sim->n_seqs);
        extra_us = catch_all_up(sim, &catch_up, &rounds, alone_us, lives,
                                chains, &found.n_rows);
        while ((goodput != 0) && (n_on > 0)) {
            uint32_t n_rows = 0;

            n_on = bt_sched_rounds_go_on(&times, &rounds, &step, &beside,
                                         goodput, chains, sim->n_seqs);
            for (uint32_t i = 0; i < sim->n_seqs; i++) {
                if (!chains[i].ended) {
                    n_rows += 1 + chains[i].n_more_rows;
                    chains[i].n_more_rows = 0;
                    chains[i].n++;
                    chains[i].survival *= chains[i].acceptance;
                    chains[i].expected += (double)chains[i].survival;
                    lives[i].n_kv = lives[i].n_tokens + chains[i].n - 1;
                    n_drafts++;
                }
            }
            if (n_on > 0) {
                beside.spent_us += sim->round_us * (1 + 0.05 * n_rows);
                bt_sched_rounds_learn(&rounds, n_rows,
                                      sim->round_us * (1 + 0.05 * n_rows),
                                      goodput < 0);
            }
        }
        found.n_tried += (n_drafts > 0) ? 1 : 0;
        bt_sched_row_times_learn(&times, sim->n_seqs + n_drafts,
                                 alone_us + 200.0 * n_drafts);
        extra_us += beside.spent_us + 200.0 * n_drafts;
        us += alone_us + extra_us;
        for (uint32_t i = 0; i < sim->n_seqs; i++) {
            uint32_t n = 0; /* right ones */
            bool is_right = true;

            while ((n < chains[i].n) && is_right) {
                is_right = (double)draw_below(&rng, 1000) < 1000 * sim->right;
                bt_sched_acceptance_learn(&all, &lives[i].acceptance,
                                          BT_DRAFT_MODEL, 5, is_right);
                n += is_right ? 1 : 0;
            }
            tokens += n + 1;
            lives[i].n_tokens += n + 1;
            lives[i].n_left -= n + 1;
            if (lives[i].n_kv > lives[i].n_tokens - 1) {
                lives[i].n_kv = lives[i].n_tokens - 1;
            }
            if (!is_right) { /* K and V of wrong drafts are not kept */
                const uint32_t n_good = lives[i].n_tokens - 1;

                lives[i].n_kv =
                    (lives[i].n_kv < n_good) ? lives[i].n_kv : n_good;
            }
        }
    }
    found.speed = tokens / us * alone_us / sim->n_seqs;
    return found;
}

/* A draft model of a tenth of the size, prompts of 300 tokens and answers of
 * 200: rows cost 100 us in pieces, rounds 1.2 ms. */
static void drafts_that_are_right_begin_soon_enough_to_pay(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n += 3) {
        const sim_t sim = {.right = 0.8,
                           .round_us = 1200,
                           .row_us = 100,
                           .n_seqs = n,
                           .n_prompt = 300,
                           .n_answer = 200};
        const found_t found = simulate(&sim);
        assert_true(found.speed > ((n == 1) ? 1.8 : 1.4));
    }
}

/* Wrong drafts, dear rows, long prompts, short answers: nothing is lost but a
 * twentieth, and rounds are tried all the same. */
static void drafts_that_are_wrong_cost_a_twentieth_at_most(void **state)
{
    static const sim_t sims[] = {
        {0.02, 1200, 100, 1, 300, 200},  {0.02, 1200, 100, 4, 300, 200},
        {0.02, 5000, 1000, 1, 300, 100}, {0.1, 1200, 100, 2, 2000, 50},
        {0.02, 9000, 3000, 3, 100, 30},  {0.3, 5000, 600, 8, 400, 60},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(sims); i++) {
        const found_t found = simulate(&sims[i]);
        assert_true(found.n_tried > 3);
        assert_true(found.n_rows > 0);
        assert_true(found.speed > 0.94);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unmeasured_rows_are_few),
        BT_TEST(rows_take_a_part_of_an_iteration),
        BT_TEST(mean_is_a_twentieth_where_others_wait),
        BT_TEST(target_of_the_time_between_tokens_is_kept),
        BT_TEST(slow_measurement_counts_for_a_part),
        BT_TEST(sequences_gain_more_than_their_rows_cost),
        BT_TEST(drafts_that_are_right_begin_soon_enough_to_pay),
        BT_TEST(drafts_that_are_wrong_cost_a_twentieth_at_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
