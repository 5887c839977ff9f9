/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles from cells, against those of the sorted values themselves. */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "router/watch/history.h"
#include "tests/support/draw.h"

#define N 20000u

static bt_latency_histogram_t histogram;

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void small_values_are_exact(void **state)
{
    (void)state;
    histogram = (bt_latency_histogram_t){0};
    for (uint64_t us = 1; us <= 10; us++) {
        bt_latency_histogram_add(&histogram, us);
    }
    /* The nearest rank: the 5th, the 9th and the 10th of ten. */
    assert_int_equal(bt_latency_histogram_percentile(&histogram, 50), 5);
    assert_int_equal(bt_latency_histogram_percentile(&histogram, 90), 9);
    assert_int_equal(bt_latency_histogram_percentile(&histogram, 99), 10);
    assert_int_equal(bt_latency_histogram_percentile(&histogram, 100), 10);
}

static void empty_histogram_has_no_percentile(void **state)
{
    (void)state;
    histogram = (bt_latency_histogram_t){0};
    assert_int_equal(bt_latency_histogram_percentile(&histogram, 50), 0);
}

static void percentile_is_within_its_cell_of_the_sorted_value(void **state)
{
    static const uint32_t percents[] = {1, 50, 90, 99, 100};
    static uint64_t values[N];
    uint64_t seed = 7;

    (void)state;
    histogram = (bt_latency_histogram_t){0};
    for (uint32_t i = 0; i < N; i++) {
        /* Of all sizes up to an hour. */
        values[i] = draw_below(&seed, UINT64_C(1) << draw_below(&seed, 33));
        bt_latency_histogram_add(&histogram, values[i]);
    }
    qsort(values, N, sizeof(*values), by_size);
    for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
        const uint32_t rank = (N * percents[i] + 99) / 100;
        const double right = (double)values[rank - 1];
        const double said =
            (double)bt_latency_histogram_percentile(&histogram, percents[i]);

        assert_true(said >= right * 0.968);
        assert_true(said <= right * 1.032);
    }
}

static void longest_values_are_in_the_last_cell(void **state)
{
    (void)state;
    histogram = (bt_latency_histogram_t){0};
    bt_latency_histogram_add(&histogram, UINT64_MAX);
    bt_latency_histogram_add(&histogram, UINT64_C(1) << 40);
    assert_int_equal(histogram.cells[BT_HISTOGRAM_CELLS - 1], 2);
    assert_true(bt_latency_histogram_percentile(&histogram, 50) >
                UINT64_C(9) * 3600000000);
}

static void merged_histogram_equals_that_of_all_values(void **state)
{
    static bt_latency_histogram_t one, other, both;
    uint64_t seed = 3;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        const uint64_t us = draw_below(&seed, 100000);

        bt_latency_histogram_add((i % 3 == 0) ? &one : &other, us);
        bt_latency_histogram_add(&both, us);
    }
    bt_latency_histogram_merge(&one, &other);
    assert_memory_equal(&one, &both, sizeof(one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(small_values_are_exact),
        BT_TEST(empty_histogram_has_no_percentile),
        BT_TEST(percentile_is_within_its_cell_of_the_sorted_value),
        BT_TEST(longest_values_are_in_the_last_cell),
        BT_TEST(merged_histogram_equals_that_of_all_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
