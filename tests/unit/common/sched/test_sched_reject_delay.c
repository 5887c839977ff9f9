/* SPDX-License-Identifier: Apache-2.0 */
/* All times by hand: 100 a second are 10 ms apart, and 20 are a burst. */
#include "tests/support/testsupport.h"

#include "common/sched/sched_admit.h"

#define MS 1000u

static void
rejections_are_sent_at_once_in_a_burst_then_every_10_ms(void **state)
{
    bt_sched_reject_delay_t pace = {0};
    const uint64_t now = 5000 * MS;

    (void)state;
    for (unsigned i = 0; i <= 20; i++) {
        assert_int_equal(bt_sched_reject_delay_us(&pace, now), 0);
    }
    assert_int_equal(bt_sched_reject_delay_us(&pace, now), 10 * MS);
    assert_int_equal(bt_sched_reject_delay_us(&pace, now), 20 * MS);
    /* 15 ms on the next is due, which is the third, 30 ms after the first. */
    assert_int_equal(bt_sched_reject_delay_us(&pace, now + 15 * MS), 15 * MS);
}

static void occasional_rejection_is_not_delayed(void **state)
{
    bt_sched_reject_delay_t pace = {0};
    uint64_t now = 0;

    (void)state;
    for (unsigned i = 0; i < 1000; i++, now += 10 * MS) {
        assert_int_equal(bt_sched_reject_delay_us(&pace, now), 0);
    }
}

static void rejection_delay_has_a_maximum(void **state)
{
    bt_sched_reject_delay_t pace = {0};
    uint64_t longest = 0;

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        const uint64_t us = bt_sched_reject_delay_us(&pace, 7 * MS);

        longest = (us > longest) ? us : longest;
    }
    assert_int_equal(longest, BT_SCHED_REJECT_DELAY_MOST_US);
    /* They are no debt: 200 ms of burst, 250 ms of the longest and 10 ms on
     * nobody is ahead of the next. */
    assert_int_equal(bt_sched_reject_delay_us(&pace, (7 + 460) * MS), 0);
    assert_int_equal(pace.due_us, (7 + 460 + 10) * MS);
}

/* 24 that ask again the moment they hear it, for 10 s: 100 a second, and those
 * of the burst. */
static void immediate_retries_are_rejected_at_the_rate(void **state)
{
    bt_sched_reject_delay_t pace = {0};
    uint64_t next[24] = {0};
    unsigned n = 0;

    (void)state;
    for (;;) {
        unsigned first = 0;

        for (unsigned i = 1; i < 24; i++) {
            first = (next[i] < next[first]) ? i : first;
        }
        if (next[first] >= 10000 * MS) {
            break;
        }
        next[first] += bt_sched_reject_delay_us(&pace, next[first]);
        n++;
    }
    assert_in_range(n, 1000, 1000 + 20 + 24 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rejections_are_sent_at_once_in_a_burst_then_every_10_ms),
        BT_TEST(occasional_rejection_is_not_delayed),
        BT_TEST(rejection_delay_has_a_maximum),
        BT_TEST(immediate_retries_are_rejected_at_the_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
