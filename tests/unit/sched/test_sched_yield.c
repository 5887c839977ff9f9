/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_yield.h"

/* A prompt of 100 ms that came at 1 s: four times that later it wants the
 * cores. */
static void a_prompt_wants_cores_after_four_times_its_own(void **state)
{
    const bt_sched_work_t work = {.since_us = 1000000, .whole_us = 100000};

    (void)state;
    assert_false(bt_sched_wants_cores(&work, 0)); /* a clock before it */
    assert_false(bt_sched_wants_cores(&work, 1000000));
    assert_false(bt_sched_wants_cores(&work, 1399999));
    assert_true(bt_sched_wants_cores(&work, 1400000));
    assert_true(bt_sched_wants_cores(&work, UINT64_MAX));
}

/* 10 ms would be 40; so little is no wait. */
static void short_waits_are_nobodys_concern(void **state)
{
    const bt_sched_work_t work = {.since_us = 0, .whole_us = 10000};

    (void)state;
    assert_false(bt_sched_wants_cores(&work, 40000));
    assert_false(bt_sched_wants_cores(&work, BT_SCHED_YIELD_LEAST_US - 1));
    assert_true(bt_sched_wants_cores(&work, BT_SCHED_YIELD_LEAST_US));
}

/* Steps of 10 ms with a target of 50 become 20; of 30 they become 50 and no
 * more; of 50 and 80 they stay. */
static void a_step_at_most_doubles_within_the_target(void **state)
{
    (void)state;
    assert_int_equal(bt_sched_yield_us(10000, 50000), 10000);
    assert_int_equal(bt_sched_yield_us(25000, 50000), 25000);
    assert_int_equal(bt_sched_yield_us(30000, 50000), 20000);
    assert_int_equal(bt_sched_yield_us(50000, 50000), 0);
    assert_int_equal(bt_sched_yield_us(80000, 50000), 0);
    assert_int_equal(bt_sched_yield_us(0, 50000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_prompt_wants_cores_after_four_times_its_own),
        BT_TEST(short_waits_are_nobodys_concern),
        BT_TEST(a_step_at_most_doubles_within_the_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
