/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_cost.h"

/* At most 100 up, never beyond what the promise took; 100 / 200 down. */
static void missed_forecast_weighs_as_many_met_ones(void **state)
{
    bt_sched_safety_factor_t m;

    (void)state;
    bt_sched_safety_factor_init(&m, 500);
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 1000);
    bt_sched_safety_factor_learn(&m, 1000, 1050, 0);
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 1050);
    bt_sched_safety_factor_learn(&m, 1000, 1500, 0);
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 1150);
    for (int i = 0; i < 200; i++) {
        bt_sched_safety_factor_learn(&m, 1000, 900, 0);
    }
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 1050);
    bt_sched_safety_factor_learn(&m, 0, 5000, 0); /* nothing was promised */
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 1050);
}

static void safety_factor_stays_between_minimum_and_two(void **state)
{
    bt_sched_safety_factor_t m, kept;

    (void)state;
    bt_sched_safety_factor_init(&m, 500);
    bt_sched_safety_factor_init(&kept, 1000);
    for (int i = 0; i < 5000; i++) {
        bt_sched_safety_factor_learn(&m, 1000, 10, 0);
        bt_sched_safety_factor_learn(&kept, 1000, 10, 0);
    }
    assert_int_equal(bt_sched_safety_factor_now(&m, 0), 500);
    assert_int_equal(bt_sched_safety_factor_now(&kept, 0), 1000);
    for (int i = 0; i < 20; i++) {
        bt_sched_safety_factor_learn(&m, 1, UINT64_MAX, 0);
    }
    assert_int_equal(bt_sched_safety_factor_now(&m, 0),
                     BT_SCHED_SAFETY_FACTOR_MOST);
}

/* Times of 700 to 1,300 thousandths of the forecast, equally often, in an order
 * that visits all of them: one of 200 is above 1,297. The factor moves by up to
 * 3 about it, in steps of half of one. */
static void safety_factor_is_exceeded_by_one_forecast_in_200(void **state)
{
    bt_sched_safety_factor_t m;
    uint32_t n_broken = 0;

    (void)state;
    bt_sched_safety_factor_init(&m, 500);
    for (uint64_t i = 0; i < 60100; i++) {
        const uint64_t us = 700 + i * 229 % 601;

        n_broken +=
            ((i >= 6010) && (us > bt_sched_safety_factor_now(&m, 0))) ? 1 : 0;
        bt_sched_safety_factor_learn(&m, 1000, us, 0);
    }
    assert_in_range(bt_sched_safety_factor_now(&m, 0), 1250, 1300);
    assert_in_range(n_broken, 54090 / 200, 54090 / 20);
}

/* Twenty broken promises make it 2. After the rest it is half as far from 1
 * with each half-life, on either side, and what comes then moves it from there.
 */
static void safety_factor_decays_to_one_without_samples(void **state)
{
    const uint64_t rest = BT_SCHED_SAFETY_FACTOR_REST_US;
    const uint64_t half = BT_SCHED_SAFETY_FACTOR_HALF_US;
    bt_sched_safety_factor_t m;

    (void)state;
    bt_sched_safety_factor_init(&m, 500);
    for (uint64_t i = 0; i < 20; i++) {
        bt_sched_safety_factor_learn(&m, 1000, 9000, 1000 + i);
    }
    assert_int_equal(bt_sched_safety_factor_now(&m, 1019 + rest), 2000);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1019 + rest + half), 1500);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1019 + rest + 2 * half),
                     1250);
    assert_int_equal(bt_sched_safety_factor_now(&m, UINT64_MAX), 1000);
    assert_int_equal(bt_sched_safety_factor_now(&m, 0),
                     2000); /* no such time */
    bt_sched_safety_factor_learn(&m, 1000, 9000, 1019 + rest + half);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1019 + rest + half), 1600);
    m.factor = 0.5;
    m.at_us = 7;
    assert_int_equal(bt_sched_safety_factor_now(&m, 7 + rest + half), 750);
}

/* 2,000, and a probe that took what was forecast: 1,750, 1,563, 1,422. One that
 * took longer moves it up as a promise does. */
static void probe_moves_safety_factor_by_a_quarter(void **state)
{
    bt_sched_safety_factor_t m;

    (void)state;
    bt_sched_safety_factor_init(&m, 1000);
    m.factor = 2;
    bt_sched_safety_factor_probe(&m, 0, 5000, 1);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1), 2000);
    bt_sched_safety_factor_probe(&m, 1000, 1000, 1);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1), 1750);
    bt_sched_safety_factor_probe(&m, 1000, 1000, 1);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1), 1563);
    bt_sched_safety_factor_probe(&m, 1000, 9000, 1);
    assert_int_equal(bt_sched_safety_factor_now(&m, 1), 1663);
    for (int i = 0; i < 20; i++) {
        bt_sched_safety_factor_probe(&m, 1000, 10, 1);
    }
    assert_int_equal(bt_sched_safety_factor_now(&m, 1), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(missed_forecast_weighs_as_many_met_ones),
        BT_TEST(safety_factor_stays_between_minimum_and_two),
        BT_TEST(safety_factor_is_exceeded_by_one_forecast_in_200),
        BT_TEST(safety_factor_decays_to_one_without_samples),
        BT_TEST(probe_moves_safety_factor_by_a_quarter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
