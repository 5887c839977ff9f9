/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_pipeline.h"

/* A prompt of 100 ms that came at 1 s: four times that later it wants the
 * cores. */
static void
prompt_borrows_cores_after_waiting_four_times_its_length(void **state)
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
static void short_waits_request_no_cores(void **state)
{
    const bt_sched_work_t work = {.since_us = 0, .whole_us = 10000};

    (void)state;
    assert_false(bt_sched_wants_cores(&work, 40000));
    assert_false(bt_sched_wants_cores(&work, BT_SCHED_DONATION_LEAST_US - 1));
    assert_true(bt_sched_wants_cores(&work, BT_SCHED_DONATION_LEAST_US));
}

/* Of 10 ms with 40 to spare it becomes 20; of 30 with 20 it becomes 50 and no
 * more; with nothing it stays. */
static void donation_at_most_doubles_a_step(void **state)
{
    (void)state;
    assert_int_equal(bt_sched_donation_us(10000, 40000), 10000);
    assert_int_equal(bt_sched_donation_us(25000, 25000), 25000);
    assert_int_equal(bt_sched_donation_us(30000, 20000), 20000);
    assert_int_equal(bt_sched_donation_us(50000, 0), 0);
    assert_int_equal(bt_sched_donation_us(0, 50000), 0);
}

/* A target of 40 ms is one of 35 here: the 10th token after the first is due
 * 350 ms after it. */
static void sequence_donates_the_slack_of_its_mean_itl(void **state)
{
    const bt_sched_itl_progress_t first = {40000, 0, 0},
                                  fast = {40000, 90000, 9},
                                  late = {40000, 340000, 9};

    (void)state;
    assert_int_equal(bt_sched_spare_us(&first, 10000), 25000);
    assert_int_equal(bt_sched_spare_us(&first, 35000), 0);
    assert_int_equal(bt_sched_spare_us(&first, 100000), 0);
    assert_int_equal(bt_sched_spare_us(&fast, 10000), 250000);
    assert_int_equal(bt_sched_spare_us(&late, 9000), 1000);
    assert_int_equal(bt_sched_spare_us(&late, 10001), 0);
}

/* Whatever a process says of itself. */
static void donation_has_a_maximum(void **state)
{
    const bt_sched_itl_progress_t slow = {UINT64_MAX, 0, UINT32_MAX},
                                  never = {1, UINT64_MAX, 0};

    (void)state;
    assert_true(bt_sched_spare_us(&slow, 1000) == UINT64_C(1000000000000));
    assert_int_equal(bt_sched_spare_us(&never, UINT64_MAX), 0);
}

/* Steps of 5 to 30 ms by turns, and somebody always wants the cores: the mean
 * time between 200 tokens stays within the target after each of them, and all
 * but the margin of it is given away. */
static void donation_at_every_step_keeps_the_itl_target(void **state)
{
    bt_sched_itl_progress_t pace = {.itl_us = 40000};

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        const uint64_t step_us = 5000 + 25000 * (uint64_t)(i / 20 % 2);

        pace.spent_us +=
            bt_sched_donation_us(step_us, bt_sched_spare_us(&pace, step_us));
        pace.spent_us += step_us;
        pace.n_tokens++;
        assert_true(pace.spent_us <= (uint64_t)pace.n_tokens * 35000);
    }
    assert_true(pace.spent_us > UINT64_C(200) * 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prompt_borrows_cores_after_waiting_four_times_its_length),
        BT_TEST(short_waits_request_no_cores),
        BT_TEST(donation_at_most_doubles_a_step),
        BT_TEST(sequence_donates_the_slack_of_its_mean_itl),
        BT_TEST(donation_has_a_maximum),
        BT_TEST(donation_at_every_step_keeps_the_itl_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
