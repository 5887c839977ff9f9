/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdint.h>
#include <string.h>

#include "common/base/log.h"

#define N BT_LOG_LIMIT_LINES

static bt_log_limit_t limit;
static const char refused[] = "request %u refused";
static const char drains[] = "worker %s drains";
static const char lost[] = "worker %s lost";

/* @return how many of @a n lines are written */
static unsigned take(const char *format, unsigned n, uint64_t now_ms)
{
    unsigned taken = 0;

    for (unsigned i = 0; i < n; i++) {
        taken += bt_log_limit_take(&limit, format, 2, now_ms) ? 1 : 0;
    }
    return taken;
}

static void assert_over(uint64_t now_ms, const char *format, uint32_t n_held)
{
    bt_log_kind_t told;

    assert_true(bt_log_limit_over(&limit, now_ms, &told));
    assert_ptr_equal(told.format, format);
    assert_int_equal(told.n_held, n_held);
    assert_int_equal(told.level, 2);
}

static void assert_none_over(uint64_t now_ms)
{
    bt_log_kind_t told;

    assert_false(bt_log_limit_over(&limit, now_ms, &told));
}

static int forget(void **state)
{
    memset(&limit, 0, sizeof(limit));
    return bt_test_setup(state);
}

static void log_lines_of_one_kind_are_limited_per_second(void **state)
{
    (void)state;
    assert_int_equal(take(refused, N - 1, 5000), N - 1);
    assert_int_equal(take(refused, 10, 5999), 1);
    assert_none_over(5999);
    assert_over(6000, refused, 9);
    assert_none_over(6000); /* told once */
    assert_int_equal(take(refused, 10 * N, 6000), N);
    assert_over(7000, refused, 9 * N);
    assert_int_equal(take(refused, N, 7000), N);
    assert_none_over(9000);
}

static void log_limit_of_one_kind_does_not_hold_another(void **state)
{
    (void)state;
    assert_int_equal(take(refused, 100, 5000), N);
    assert_int_equal(take(lost, 3, 5000), 3);
    assert_int_equal(take(drains, 100, 5400), N);
    assert_over(6000, refused, 100 - N);
    assert_none_over(6399);
    assert_over(6400, drains, 100 - N);
}

static void log_limit_second_begins_with_the_first_line(void **state)
{
    (void)state;
    assert_int_equal(take(lost, 1, 5000), 1);
    assert_int_equal(take(lost, 100, 6500), N);
    assert_none_over(7499);
    assert_over(7500, lost, 100 - N);
}

static void log_kinds_beyond_the_table_are_not_limited(void **state)
{
    static const char formats[BT_LOG_LIMIT_KINDS + 8];

    (void)state;
    for (unsigned i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        assert_int_equal(take(&formats[i], N + 1, 5000), N);
    }
    assert_int_equal(take(&formats[BT_LOG_LIMIT_KINDS], 1000, 5000), 1000);
    for (unsigned i = 0; i < BT_LOG_LIMIT_KINDS; i++) {
        bt_log_kind_t told;

        assert_true(bt_log_limit_over(&limit, 6000, &told));
        assert_int_equal(told.n_held, 1);
    }
    assert_none_over(UINT64_MAX);
}

#define LIMIT_TEST(fn) \
    cmocka_unit_test_setup_teardown(fn, forget, bt_test_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(log_lines_of_one_kind_are_limited_per_second),
        LIMIT_TEST(log_limit_of_one_kind_does_not_hold_another),
        LIMIT_TEST(log_limit_second_begins_with_the_first_line),
        LIMIT_TEST(log_kinds_beyond_the_table_are_not_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
