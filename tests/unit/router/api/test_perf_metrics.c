/* SPDX-License-Identifier: Apache-2.0 */
/* Names, types and values by hand, as TensorRT-LLM's backend has them. */
#include "router/api/perf_metrics.h"

#include "tests/support/testsupport.h"

static const bt_gen_perf_t perf = {.arrival_us = 1000,
                                   .first_scheduled_us = 2000,
                                   .first_token_us = 3000,
                                   .last_token_us = 5000000000000,
                                   .n_prompt = 40,
                                   .n_output = 20,
                                   .n_blocks = 4,
                                   .n_reused_blocks = 1,
                                   .n_drafted = 16,
                                   .n_accepted = 12};

static double value_of(const char *name)
{
    const bt_perf_metric_t *metric = bt_perf_metric_named(name);

    assert_non_null(metric);
    assert_string_equal(metric->name, name);
    return metric->value(&perf);
}

static void metrics_have_the_values_of_the_generation(void **state)
{
    const bt_gen_perf_t nothing = {0};

    (void)state;
    assert_true(value_of("kv_cache_alloc_new_blocks") == 3.0);
    assert_true(value_of("kv_cache_reused_blocks") == 1.0);
    assert_true(value_of("kv_cache_alloc_total_blocks") == 4.0);
    assert_true(value_of("arrival_time_ns") == 1e6);
    assert_true(value_of("first_scheduled_time_ns") == 2e6);
    assert_true(value_of("first_token_time_ns") == 3e6);
    assert_true(value_of("last_token_time_ns") == 5e15);
    assert_true(value_of("acceptance_rate") == 0.75);
    assert_true(value_of("total_draft_tokens") == 16.0);
    assert_true(value_of("total_accepted_draft_tokens") == 12.0);
    assert_true(value_of("num_input_tokens") == 40.0);
    assert_true(value_of("num_output_tokens") == 20.0);
    assert_true(bt_perf_metric_named("acceptance_rate")->value(&nothing) ==
                0.0);
}

static void unknown_name_has_no_metric(void **state)
{
    (void)state;
    assert_null(bt_perf_metric_named("sequence_index"));
    assert_null(bt_perf_metric_named(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(metrics_have_the_values_of_the_generation),
        BT_TEST(unknown_name_has_no_metric),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
