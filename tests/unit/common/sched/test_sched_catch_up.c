/* SPDX-License-Identifier: Apache-2.0 */
/* How many rows a draft model catches up by. Expected numbers are worked by
 * hand from the bounds of the header. */
#include "common/sched/sched_catch_up.h"

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

static void unmeasured_rows_are_few(void **state)
{
    const bt_sched_catch_up_step_t step = {.alone_us = 1000};
    bt_sched_catch_up_t catch_up = {0};

    (void)state;
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 0), 0);
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 5), 5);
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 500),
                     BT_SCHED_CATCH_UP_LEAST);
}

/* Half of 1000 us: 50 rows; of 100 us 5, but 16 are worth a call. */
static void rows_take_a_part_of_an_iteration(void **state)
{
    const bt_sched_catch_up_step_t step = {.alone_us = 1000};
    const bt_sched_catch_up_step_t long_step = {.alone_us = 9000};
    const bt_sched_catch_up_step_t short_step = {.alone_us = 100};
    bt_sched_catch_up_t catch_up = measured();

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 500), 50);
        bt_sched_catch_up_learn(&catch_up, 50, 500);
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 30), 30);
        bt_sched_catch_up_learn(&catch_up, 30, 300);
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &short_step, 500),
                         BT_SCHED_CATCH_UP_LEAST);
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &short_step, 7), 7);
    }
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &long_step, 500),
                     BT_SCHED_CATCH_UP_ROWS);
}

/* A twentieth of 1000 us is 5 rows: 160 rows are begun after the credit of 32
 * iterations, in pieces that are worth a call. */
static void mean_is_a_twentieth_where_others_wait(void **state)
{
    const bt_sched_catch_up_step_t step = {.alone_us = 1000,
                                           .delays_others = true};
    bt_sched_catch_up_t catch_up = measured();
    uint32_t n_missing = 160;

    (void)state;
    for (uint32_t i = 1; i < 32; i++) {
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, n_missing),
                         0);
    }
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, n_missing),
                         BT_SCHED_CATCH_UP_LEAST);
        bt_sched_catch_up_learn(&catch_up, 16, 160);
        n_missing -= 16;
    }
    /* Meanwhile 9 x 50 us were gained. */
    assert_int_equal(catch_up.credit_us, 450);
    /* More than the credit of 1024 iterations is never begun. */
    for (uint32_t i = 0; i < 2000; i++) {
        assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 5121), 0);
    }
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 5120),
                     BT_SCHED_CATCH_UP_LEAST);
}

static void target_of_the_time_between_tokens_is_kept(void **state)
{
    bt_sched_catch_up_step_t step = {.alone_us = 1000, .most_us = 1100};
    bt_sched_catch_up_t catch_up = measured();

    (void)state;
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 500), 10);
    step.most_us = 1005;
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 500), 0);
    step.most_us = 900; /* is missed without, too */
    assert_int_equal(bt_sched_catch_up_rows(&catch_up, &step, 500), 50);
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

/* 100 rows of 10 us for 20 tokens of 100 us, of which half is saved at best. */
static void prompt_that_costs_more_than_drafts_save_does_not_pay(void **state)
{
    const bt_sched_catch_up_t nothing = {0};
    const bt_sched_catch_up_t catch_up = measured();

    (void)state;
    assert_true(bt_sched_catch_up_pays(&catch_up, 100, 100, 20));
    assert_false(bt_sched_catch_up_pays(&catch_up, 100, 100, 19));
    assert_true(bt_sched_catch_up_pays(&nothing, 100, 100, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unmeasured_rows_are_few),
        BT_TEST(rows_take_a_part_of_an_iteration),
        BT_TEST(mean_is_a_twentieth_where_others_wait),
        BT_TEST(target_of_the_time_between_tokens_is_kept),
        BT_TEST(slow_measurement_counts_for_a_part),
        BT_TEST(prompt_that_costs_more_than_drafts_save_does_not_pay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
