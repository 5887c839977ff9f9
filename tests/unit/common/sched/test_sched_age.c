/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_cost.h"

#define S UINT64_C(1000000)

static void estimate_halves_after_each_half_life(void **state)
{
    (void)state;
    assert_true(bt_sched_age_left(0, 10 * S) == 1);
    assert_true(bt_sched_age_left(10 * S, 10 * S) == 0.5);
    assert_true(bt_sched_age_left(30 * S, 10 * S) == 0.125);
    assert_true(bt_sched_age_left(UINT64_MAX, 1) == 0);
    assert_true(bt_sched_age_left(1, 0) == 0);
    assert_int_equal(bt_sched_age_us(0, 5), 0); /* nothing was */
    assert_int_equal(bt_sched_age_us(5, 3), 0);
    assert_int_equal(bt_sched_age_us(3, 5), 2);
}

static void rare_samples_weigh_more(void **state)
{
    (void)state;
    assert_true(bt_sched_age_share(0.1, 0, 30 * S) == 0.1);
    assert_true(bt_sched_age_share(0.1, S, 30 * S) == 0.1);
    assert_true(bt_sched_age_share(0.1, 30 * S, 30 * S) == 0.5);
    assert_true(bt_sched_age_share(0.1, UINT64_MAX, 30 * S) == 1);
}

static void probes_run_one_at_a_time_a_second_apart(void **state)
{
    bt_sched_probe_t probe = {0};

    (void)state;
    assert_true(bt_sched_probe_is_due(&probe, 0));
    bt_sched_probe_sent(&probe);
    assert_false(bt_sched_probe_is_due(&probe, 100 * S));
    bt_sched_probe_back(&probe, 100 * S);
    assert_false(bt_sched_probe_is_due(&probe, 101 * S - 1));
    assert_true(bt_sched_probe_is_due(&probe, 101 * S));
    bt_sched_probe_back(&probe, 200 * S); /* measured, without a probe */
    assert_false(bt_sched_probe_is_due(&probe, 200 * S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(estimate_halves_after_each_half_life),
        BT_TEST(rare_samples_weigh_more),
        BT_TEST(probes_run_one_at_a_time_a_second_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
