/* SPDX-License-Identifier: Apache-2.0 */
/* What workers are thought to have of a prompt. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/sched/sched_slo.h"

#define N   100000u
#define PER 16u

static bt_sched_prefix_estimate_t held;
static uint32_t text[N]; /* all different */
static const bt_hash128_t all = {0}, other = {.lo = 1};

static int begin(void **state)
{
    (void)state;
    memset(&held, 0, sizeof(held));
    for (uint32_t i = 0; i < N; i++) {
        text[i] = i;
    }
    return bt_test_setup(state);
}

static uint32_t find(uint64_t whose, bt_hash128_t space, uint32_t n)
{
    return bt_sched_prefix_estimate_find(&held, whose, space, text, n, PER);
}

/* 40 tokens are two blocks and a half. */
static void prefix_estimate_finds_common_whole_blocks(void **state)
{
    (void)state;
    assert_int_equal(find(1, all, 40), 0);
    bt_sched_prefix_estimate_add(&held, 1, all, text, 40, PER);
    assert_int_equal(find(1, all, 40), 32);
    assert_int_equal(find(1, all, 100), 32);
    assert_int_equal(find(1, all, 31), 16);
    assert_int_equal(find(1, all, 15), 0);
    assert_int_equal(find(1, all, 0), 0);
    text[17]++; /* in the second block */
    assert_int_equal(find(1, all, 40), 16);
    text[0]++; /* what stands behind another beginning is another */
    assert_int_equal(find(1, all, 40), 0);
}

static void prefix_estimate_separates_workers_and_namespaces(void **state)
{
    (void)state;
    bt_sched_prefix_estimate_add(&held, 1, all, text, 32, PER);
    assert_int_equal(find(2, all, 32), 0);
    assert_int_equal(find(1, other, 32), 0);
    bt_sched_prefix_estimate_add(&held, 2, other, text, 16, PER);
    assert_int_equal(find(2, other, 32), 16);
    assert_int_equal(find(1, all, 32), 32);
}

/* Of a long prompt 2,048 blocks count; of many the table has room for. */
static void prefix_estimate_is_bounded_and_keeps_the_latest(void **state)
{
    (void)state;
    bt_sched_prefix_estimate_add(&held, 1, all, text, N, PER);
    assert_in_range(find(1, all, N), 0, BT_SCHED_PREFIX_MAX_BLOCKS * PER);
    bt_sched_prefix_estimate_add(&held, 1, all, text, 64, PER);
    assert_int_equal(find(1, all, 64), 64);
    for (uint32_t whose = 2; whose < 60; whose++) {
        bt_sched_prefix_estimate_add(&held, whose, all, text, N, PER);
    }
    /* 2,048 blocks of each of 58 fell on 16,384 places: of an early one hardly
     * any is left, and nothing is found that was never there. */
    assert_in_range(find(1, all, N), 0, 20 * PER);
    assert_int_equal(find(99, all, N), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            prefix_estimate_finds_common_whole_blocks, begin, bt_test_teardown),
        cmocka_unit_test_setup_teardown(
            prefix_estimate_separates_workers_and_namespaces, begin,
            bt_test_teardown),
        cmocka_unit_test_setup_teardown(
            prefix_estimate_is_bounded_and_keeps_the_latest, begin,
            bt_test_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
