/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_admit.h"

#define S UINT64_C(1000000)

/* By hand: 10 a second, 50 at most. */
static void bucket_fills_at_the_rate_up_to_the_burst(void **state)
{
    bt_sched_bucket_t b;

    (void)state;
    bt_sched_bucket_init(&b, 10, 50, 7 * S);
    assert_int_equal(bt_sched_bucket_left(&b, 7 * S), 50);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 50, 7 * S), 0);
    bt_sched_bucket_take(&b, 50, 7 * S);
    assert_int_equal(bt_sched_bucket_left(&b, 7 * S), 0);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 1, 7 * S), S / 10);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 15, 8 * S), S / 2);
    assert_int_equal(bt_sched_bucket_full_us(&b, 8 * S), 4 * S);
    assert_int_equal(bt_sched_bucket_left(&b, 100 * S), 50);
    assert_int_equal(bt_sched_bucket_left(&b, UINT64_MAX), 50);
}

static void frequent_bucket_reads_lose_no_tokens(void **state)
{
    bt_sched_bucket_t b;

    (void)state;
    bt_sched_bucket_init(&b, 3, 1000, 0);
    bt_sched_bucket_take(&b, 1000, 0);
    for (uint64_t us = 1; us <= S; us++) {
        (void)bt_sched_bucket_left(&b, us);
    }
    assert_int_equal(bt_sched_bucket_left(&b, S), 3);
}

/* 120 of a burst of 50: a full bucket lets it go, and 7 s pass until it is out
 * of debt again. */
static void amount_over_the_burst_waits_for_a_full_bucket(void **state)
{
    bt_sched_bucket_t b;

    (void)state;
    bt_sched_bucket_init(&b, 10, 50, 0);
    bt_sched_bucket_take(&b, 10, 0);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 120, 0), S);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 120, S), 0);
    bt_sched_bucket_take(&b, 120, S);
    assert_int_equal(bt_sched_bucket_left(&b, S), 0);
    assert_int_equal(bt_sched_bucket_wait_us(&b, 1, S), 7 * S + S / 10);
    bt_sched_bucket_give(&b, 100, S);
    assert_int_equal(bt_sched_bucket_left(&b, S), 30);
    bt_sched_bucket_give(&b, UINT64_MAX, S);
    assert_int_equal(bt_sched_bucket_left(&b, S), 50);
}

static void bucket_rate_can_change_and_zero_is_unlimited(void **state)
{
    bt_sched_bucket_t b;

    (void)state;
    bt_sched_bucket_init(&b, 0, 1, 0);
    assert_int_equal(bt_sched_bucket_wait_us(&b, UINT64_MAX, 0), 0);
    bt_sched_bucket_take(&b, UINT64_MAX, 0);
    bt_sched_bucket_change(&b, 10, 50, 0);
    assert_int_equal(bt_sched_bucket_left(&b, 0), 50);
    bt_sched_bucket_take(&b, 45, 0);
    bt_sched_bucket_change(&b, 1000, 3, 0);
    assert_int_equal(bt_sched_bucket_left(&b, 0), 3);
    bt_sched_bucket_take(&b, UINT64_MAX, 0); /* bounded, no overflow */
    assert_true(bt_sched_bucket_wait_us(&b, 1, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(bucket_fills_at_the_rate_up_to_the_burst),
        BT_TEST(frequent_bucket_reads_lose_no_tokens),
        BT_TEST(amount_over_the_burst_waits_for_a_full_bucket),
        BT_TEST(bucket_rate_can_change_and_zero_is_unlimited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
