/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/sched/sched_slo.h"

static bt_sched_forecast_t outlook(uint64_t ahead_us, uint64_t prompt_us,
                                   uint32_t n_over, uint64_t seat_us)
{
    return (bt_sched_forecast_t){.ahead_us = ahead_us,
                                 .prompt_us = prompt_us,
                                 .n_over = n_over,
                                 .seat_us = seat_us,
                                 .step_us = 20000};
}

/* The longer of both waits, and the own prompt; then the mean error. */
static void forecast_waits_for_earlier_prompts_and_seats(void **state)
{
    bt_sched_forecast_t o = outlook(3000, 500, 0, 7000);

    (void)state;
    assert_int_equal(bt_sched_forecast_ttft_us(&o), 3500);
    o.n_over = 2;
    assert_int_equal(bt_sched_forecast_ttft_us(&o), 14500);
    o.ahead_us = 20000;
    assert_int_equal(bt_sched_forecast_ttft_us(&o), 20500);
    assert_int_equal(bt_sched_forecast_itl_us(&o), 20000);
    o.error = 100;
    assert_int_equal(bt_sched_forecast_ttft_us(&o), 22550);
    assert_int_equal(bt_sched_forecast_itl_us(&o), 22000);
    o.first_factor = 1200;
    o.between_factor = 500;
    assert_int_equal(bt_sched_forecast_ttft_us(&o), 27060);
    assert_int_equal(bt_sched_forecast_itl_us(&o), 11000);
    /* Nothing is beyond what can be said. */
    o.ahead_us = UINT64_MAX;
    o.seat_us = UINT64_MAX;
    o.n_over = UINT32_MAX;
    assert_true(bt_sched_forecast_ttft_us(&o) == UINT64_C(1) << 42);
}

static void missed_slo_returns_retry_after_seconds(void **state)
{
    bt_sched_forecast_t o = outlook(3000000, 500000, 0, 7000000);
    bt_sched_slo_t target = {0};
    uint32_t retry_s = 77;

    (void)state;
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_SLO_MET);
    target.ttft_ms = 3500;
    target.itl_ms = 20;
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_SLO_MET);
    assert_int_equal(retry_s, 77);
    target.ttft_ms = 3499; /* a millisecond too much: come in the next second */
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_TTFT_MISSED);
    assert_int_equal(retry_s, 1);
    target.ttft_ms = 1000; /* 2.5 s too much */
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_TTFT_MISSED);
    assert_int_equal(retry_s, 3);
    target.ttft_ms = 0;
    target.itl_ms = 19; /* when the next seat is free, 7 s */
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_ITL_MISSED);
    assert_int_equal(retry_s, 8);
    target.ttft_ms = 1;
    o.ahead_us = UINT64_MAX;
    assert_int_equal(bt_sched_slo_check(&target, &o, &retry_s),
                     BT_SCHED_TTFT_MISSED);
    assert_int_equal(retry_s, BT_SCHED_RETRY_MOST_S);
}

/* 4 ms, 1 ms for a sequence and 2 ms for 1,024 tokens in the cache. */
static void batch_is_limited_to_what_keeps_the_itl_target(void **state)
{
    static const bt_sched_rates_t rates = {.decode_step_ns = 4000000,
                                           .decode_seq_ns = 1000000,
                                           .decode_kiloread_ns = 2000000};
    static const bt_sched_rates_t none = {0};

    (void)state;
    assert_int_equal(bt_sched_rates_step_us(&rates, 5, 512), 14000);
    assert_int_equal(bt_sched_rates_seats(&rates, 512, 14000, 64), 5);
    assert_int_equal(bt_sched_rates_seats(&rates, 512, 13999, 64), 4);
    assert_int_equal(bt_sched_rates_seats(&rates, 512, 200000, 64), 64);
    assert_int_equal(bt_sched_rates_seats(&rates, 0, 14000, 64), 10);
    /* One may always run, and where nothing is known, all. */
    assert_int_equal(bt_sched_rates_seats(&rates, 512, 1, 64), 1);
    assert_int_equal(bt_sched_rates_seats(&none, 512, 1, 64), 64);
    assert_int_equal(bt_sched_rates_step_us(&none, 5, 512), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(forecast_waits_for_earlier_prompts_and_seats),
        BT_TEST(missed_slo_returns_retry_after_seconds),
        BT_TEST(batch_is_limited_to_what_keeps_the_itl_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
