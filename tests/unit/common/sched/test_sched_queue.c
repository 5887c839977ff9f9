/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_queue.h"
#include "tests/support/draw.h"

#define N     8u
#define SEC   1000000u /* µs */
#define LEVEL 5u       /* seconds that a level is worth */

static bt_list_t queue;
static bt_sched_turn_t turns[N];

static void add(uint32_t i, uint32_t priority, uint64_t since_us)
{
    bt_sched_turn_init(&turns[i], priority, since_us);
    bt_sched_queue_insert(&queue, &turns[i]);
}

/* The queue as the places of its turns, from the first. */
static void assert_order(const char *want)
{
    const bt_list_t *pos = queue.next;

    for (; *want != '\0'; want++, pos = pos->next) {
        assert_ptr_equal(pos, &turns[*want - '0'].link);
    }
    assert_ptr_equal(pos, &queue);
}

static void queue_is_fifo_within_a_priority(void **state)
{
    (void)state;
    bt_list_init(&queue);
    assert_null(bt_sched_queue_first(&queue));
    assert_null(bt_sched_queue_last(&queue));
    add(0, 3, 30 * SEC);
    add(1, 3, 10 * SEC);
    add(2, 3, 20 * SEC);
    add(3, 3, 10 * SEC); /* as 1, but put in later */
    assert_order("1320");
    assert_ptr_equal(bt_sched_queue_first(&queue), &turns[1]);
    assert_ptr_equal(bt_sched_queue_last(&queue), &turns[0]);
}

static void higher_priority_goes_first(void **state)
{
    (void)state;
    bt_list_init(&queue);
    add(0, 0, 1 * SEC);
    add(1, 1, 2 * SEC);
    add(2, 2, 3 * SEC);
    add(3, 1, 2 * SEC);
    assert_order("2130");
}

/* Two levels are ten seconds. */
static void waiting_five_seconds_raises_priority_by_one_level(void **state)
{
    (void)state;
    bt_list_init(&queue);
    add(0, 1, 100 * SEC);
    add(1, 3, (100 + 2 * LEVEL) * SEC - 1);
    add(2, 3, (100 + 2 * LEVEL) * SEC + 1);
    assert_order("102");
    add(3, 3, (100 + 2 * LEVEL) * SEC); /* alike: the higher one */
    assert_order("1302");
}

/* 24 levels are 120 seconds, and more there are not. */
static void no_request_is_overtaken_for_over_two_minutes(void **state)
{
    (void)state;
    bt_list_init(&queue);
    add(0, 0, 100 * SEC);
    add(1, UINT32_MAX, 220 * SEC - 1);
    add(2, UINT32_MAX, 220 * SEC + 1);
    add(3, 24, 220 * SEC - 2);
    assert_order("3102");
}

/* A strict weak order, so that a sorted list is one: over triples near to each
 * other, each of a few times and priorities. */
static void queue_order_is_a_strict_weak_order(void **state)
{
    uint64_t rng = 7;

    (void)state;
    for (uint32_t round = 0; round < 200000; round++) {
        bool ab, bc, ac, same_ab, same_bc;

        for (uint32_t i = 0; i < 3; i++) {
            bt_sched_turn_init(&turns[i], (uint32_t)draw_below(&rng, 4) * 9,
                               draw_below(&rng, 30) * LEVEL * SEC);
        }
        ab = bt_sched_turn_before(&turns[0], &turns[1]);
        bc = bt_sched_turn_before(&turns[1], &turns[2]);
        ac = bt_sched_turn_before(&turns[0], &turns[2]);
        same_ab = !ab && !bt_sched_turn_before(&turns[1], &turns[0]);
        same_bc = !bc && !bt_sched_turn_before(&turns[2], &turns[1]);
        assert_false(bt_sched_turn_before(&turns[0], &turns[0]));
        assert_false(ab && bt_sched_turn_before(&turns[1], &turns[0]));
        assert_true(!(ab && bc) || ac);
        assert_true(!(same_ab && same_bc) ||
                    (!ac && !bt_sched_turn_before(&turns[2], &turns[0])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(queue_is_fifo_within_a_priority),
        BT_TEST(higher_priority_goes_first),
        BT_TEST(waiting_five_seconds_raises_priority_by_one_level),
        BT_TEST(no_request_is_overtaken_for_over_two_minutes),
        BT_TEST(queue_order_is_a_strict_weak_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
