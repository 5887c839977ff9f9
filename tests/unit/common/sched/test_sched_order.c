/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_queue.h"

#define SEC 1000000u /* µs */

static uint64_t slack(bt_sched_order_t order, uint64_t whole_us,
                      uint64_t left_us, uint64_t deadline_us)
{
    const bt_sched_work_t work = {.since_us = 10 * SEC,
                                  .deadline_us = deadline_us,
                                  .whole_us = whole_us,
                                  .left_us = left_us};

    return bt_sched_slack_us(order, &work);
}

static void fcfs_has_no_slack(void **state)
{
    (void)state;
    assert_int_equal(slack(BT_SCHED_FCFS, 5 * SEC, 5 * SEC, 11 * SEC), 0);
}

/* Four times the whole, down from the last 32nd: 128 times what is left. */
static void prompt_is_overtaken_for_four_times_its_length(void **state)
{
    const uint64_t whole = 8 * SEC;

    (void)state;
    assert_int_equal(slack(BT_SCHED_SRPT, whole, whole, UINT64_MAX), 32 * SEC);
    assert_int_equal(slack(BT_SCHED_SRPT, whole, 2 * SEC, UINT64_MAX),
                     32 * SEC);
    assert_int_equal(slack(BT_SCHED_SRPT, whole, SEC / 4, UINT64_MAX),
                     32 * SEC);
    assert_int_equal(slack(BT_SCHED_SRPT, whole, SEC / 8, UINT64_MAX),
                     16 * SEC);
    assert_int_equal(slack(BT_SCHED_SRPT, whole, 0, UINT64_MAX), 0);
}

static void slack_is_the_time_to_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(slack(BT_SCHED_DEADLINE, SEC, SEC, 13 * SEC), 3 * SEC);
    assert_int_equal(slack(BT_SCHED_DEADLINE, SEC, SEC, 10 * SEC), 0);
    assert_int_equal(slack(BT_SCHED_DEADLINE, SEC, SEC, 9 * SEC), 0); /* over */
}

static void slack_is_at_most_two_minutes(void **state)
{
    (void)state;
    assert_int_equal(slack(BT_SCHED_SRPT, 31 * SEC, 31 * SEC, UINT64_MAX),
                     120 * SEC);
    assert_int_equal(slack(BT_SCHED_SRPT, UINT64_MAX, UINT64_MAX, UINT64_MAX),
                     120 * SEC);
    assert_int_equal(slack(BT_SCHED_DEADLINE, SEC, SEC, 131 * SEC), 120 * SEC);
    assert_int_equal(slack(BT_SCHED_DEADLINE, SEC, SEC, UINT64_MAX), 120 * SEC);
}

static void queue_orders_are_found_by_name(void **state)
{
    static const char *const names[BT_SCHED_N_ORDERS] = {
        [BT_SCHED_SRPT] = "srpt",
        [BT_SCHED_FCFS] = "fcfs",
        [BT_SCHED_DEADLINE] = "deadline",
        [BT_SCHED_LENGTH] = "length",
    };
    bt_sched_order_t order = BT_SCHED_N_ORDERS;

    (void)state;
    for (unsigned i = 0; i < BT_SCHED_N_ORDERS; i++) {
        assert_true(bt_sched_order_find(names[i], &order));
        assert_int_equal(order, i);
    }
    assert_false(bt_sched_order_find("sjf", &order));
    assert_int_equal(order, BT_SCHED_N_ORDERS - 1);
}

/* A short prompt that comes later goes first, unless it comes after the long
 * one's time: 10 s + 4 x 3 s, less 4 x 0.1 s of its own. */
static void queue_is_ordered_by_slack(void **state)
{
    static const uint64_t came_us[] = {12 * SEC, 21500000, 21700000};
    bt_sched_turn_t turns[4];
    bt_list_t queue;

    (void)state;
    bt_list_init(&queue);
    bt_sched_turn_init(&turns[3], 0, 10 * SEC);
    turns[3].slack_us = slack(BT_SCHED_SRPT, 3 * SEC, 3 * SEC, UINT64_MAX);
    bt_sched_queue_insert(&queue, &turns[3]);
    for (unsigned i = 0; i < 3; i++) {
        bt_sched_turn_init(&turns[i], 0, came_us[i]);
        turns[i].slack_us =
            slack(BT_SCHED_SRPT, SEC / 10, SEC / 10, UINT64_MAX);
        bt_sched_queue_insert(&queue, &turns[i]);
    }
    assert_ptr_equal(queue.next, &turns[0].link);
    assert_ptr_equal(queue.next->next, &turns[1].link);
    assert_ptr_equal(queue.next->next->next, &turns[3].link);
    assert_ptr_equal(queue.prev, &turns[2].link);

    /* Nearly there: 128 x 0.001 s. */
    bt_sched_queue_set_slack(
        &queue, &turns[3],
        slack(BT_SCHED_SRPT, 3 * SEC, SEC / 1000, UINT64_MAX));
    assert_ptr_equal(queue.next, &turns[3].link);
    /* In no queue it goes to none. */
    bt_list_remove(&turns[0].link);
    bt_sched_queue_set_slack(&queue, &turns[0], 7);
    assert_int_equal(turns[0].slack_us, 7);
    assert_ptr_equal(queue.next->next, &turns[1].link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(fcfs_has_no_slack),
        BT_TEST(prompt_is_overtaken_for_four_times_its_length),
        BT_TEST(slack_is_the_time_to_the_deadline),
        BT_TEST(slack_is_at_most_two_minutes),
        BT_TEST(queue_orders_are_found_by_name),
        BT_TEST(queue_is_ordered_by_slack),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
