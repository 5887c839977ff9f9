/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_margin.h"

/* At most 100 up, never beyond what the promise took; 100 / 200 down. */
static void a_broken_promise_counts_as_many_kept_ones(void **state)
{
    bt_sched_margin_t m;

    (void)state;
    bt_sched_margin_init(&m, 500);
    assert_int_equal(bt_sched_margin_factor(&m), 1000);
    bt_sched_margin_learn(&m, 1000, 1050);
    assert_int_equal(bt_sched_margin_factor(&m), 1050);
    bt_sched_margin_learn(&m, 1000, 1500);
    assert_int_equal(bt_sched_margin_factor(&m), 1150);
    for (int i = 0; i < 200; i++) {
        bt_sched_margin_learn(&m, 1000, 900);
    }
    assert_int_equal(bt_sched_margin_factor(&m), 1050);
    bt_sched_margin_learn(&m, 0, 5000); /* nothing was promised */
    assert_int_equal(bt_sched_margin_factor(&m), 1050);
}

static void it_stays_between_the_least_and_twice_the_time(void **state)
{
    bt_sched_margin_t m, kept;

    (void)state;
    bt_sched_margin_init(&m, 500);
    bt_sched_margin_init(&kept, 1000);
    for (int i = 0; i < 5000; i++) {
        bt_sched_margin_learn(&m, 1000, 10);
        bt_sched_margin_learn(&kept, 1000, 10);
    }
    assert_int_equal(bt_sched_margin_factor(&m), 500);
    assert_int_equal(bt_sched_margin_factor(&kept), 1000);
    for (int i = 0; i < 20; i++) {
        bt_sched_margin_learn(&m, 1, UINT64_MAX);
    }
    assert_int_equal(bt_sched_margin_factor(&m), BT_SCHED_MARGIN_MOST);
}

/* Times of 700 to 1,300 thousandths of the forecast, equally often, in an order
 * that visits all of them: one of 200 is above 1,297. The factor moves by up to
 * 3 about it, in steps of half of one. */
static void one_of_so_many_takes_longer(void **state)
{
    bt_sched_margin_t m;
    uint32_t n_broken = 0;

    (void)state;
    bt_sched_margin_init(&m, 500);
    for (uint64_t i = 0; i < 60100; i++) {
        const uint64_t us = 700 + i * 229 % 601;

        n_broken += ((i >= 6010) && (us > bt_sched_margin_factor(&m))) ? 1 : 0;
        bt_sched_margin_learn(&m, 1000, us);
    }
    assert_in_range(bt_sched_margin_factor(&m), 1250, 1300);
    assert_in_range(n_broken, 54090 / 200, 54090 / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_broken_promise_counts_as_many_kept_ones),
        BT_TEST(it_stays_between_the_least_and_twice_the_time),
        BT_TEST(one_of_so_many_takes_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
