/* SPDX-License-Identifier: Apache-2.0 */
/* Where a prompt is computed. A worker here takes 5 ms for a chunk and 1 ms for
 * a token of it, and where it generates 8 ms for a step and 1 ms for each
 * sequence; a transfer takes 1 ms and 2 ms for a MiB. All by hand. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/sched/sched_slo.h"
#include "tests/support/draw.h"

#define MS  UINT64_C(1000)
#define MIB (UINT64_C(1) << 20)

static const bt_sched_rates_t measured = {
    .prefill_step_ns = 5000000,
    .prefill_token_ns = 1000000,
    .decode_step_ns = 8000000,
    .decode_seq_ns = 1000000,
    .transfer_start_ns = 1000000,
    .transfer_mib_ns = 2000000,
};

/* 300 tokens in three chunks: 15 ms and 300. */
static bt_sched_disagg_t three_chunks(void)
{
    return (bt_sched_disagg_t){
        .n_tokens = 300,
        .chunk_tokens = 100,
        .away = {.rates = measured},
        .here = {.rates = measured},
        .transfer_rates = measured,
        .batch_rates = measured,
    };
}

static void disaggregated_and_local_forecasts_match_hand_values(void **state)
{
    static const struct {
        uint64_t ahead_away_ms, ahead_here_ms, transfer_bytes;
        uint32_t held_away, held_here, n_running;
        uint64_t away_ms, here_ms, loss_ms;
        bool here;
    } cases[] = {
        /* As soon either way: away, where nobody generates. */
        {0, 0, 0, 0, 0, 0, 315, 315, 0, false},
        /* KV would have to travel, 1 ms + 2 ms. */
        {0, 0, MIB, 0, 0, 0, 318, 315, 0, true},
        {0, 2, MIB, 0, 0, 0, 318, 317, 0, true},
        {0, 3, MIB, 0, 0, 0, 318, 318, 0, false},
        /* A queue there, or here. */
        {50, 0, 0, 0, 0, 0, 365, 315, 0, true},
        {50, 60, 0, 0, 0, 0, 365, 375, 0, false},
        /* One that generates: beside steps of 9 ms there are 41 ms of 50 for
         * prompts, so there are 8 of them; and it waits for the 315 ms in all:
         * 315 + 72 + 315 = 702. */
        {387, 0, 0, 0, 0, 1, 702, 387, 315, false},
        {388, 0, 0, 0, 0, 1, 703, 387, 315, true},
        /* Two: 8 steps of 10 ms; 395 + 630 = 1,025. */
        {710, 0, 0, 0, 0, 2, 1025, 395, 630, false},
        {711, 0, 0, 0, 0, 2, 1026, 395, 630, true},
        /* Twenty: steps of 28 ms, and as long for prompts; 315 + 12 x 28. Four
         * times 315 ms are 1,260: then it costs them their time anyhow. */
        {1259, 0, 0, 0, 0, 20, 1574, 651, 6300, false},
        {1260, 0, 0, 0, 0, 20, 1575, 651, 0, true},
        /* A queue of 315 ms here: 630 + 23 x 28. */
        {1260, 315, 0, 0, 0, 20, 1575, 1274, 0, true},
        {1260, 630, 0, 0, 0, 20, 1575, 1897, 0, false},
        /* 200 tokens are here: a chunk of 100, 105 ms. */
        {0, 0, 0, 0, 200, 0, 315, 105, 0, true},
        {0, 0, 0, 0, 200, 1, 315, 132, 105, true},
        {0, 0, 0, 0, 200, 2, 315, 135, 210, false},
        /* ...there as well: no gain. */
        {0, 0, 0, 200, 200, 0, 105, 105, 0, false},
        /* All of it: its last token is computed, 6 ms. */
        {0, 0, 0, 0, 300, 0, 315, 6, 0, true},
        {0, 0, 0, 0, 1000, 0, 315, 6, 0, true},
        {0, 0, 0, 300, 0, 0, 6, 315, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_sched_disagg_t local = three_chunks();
        bt_sched_disagg_times_t ways;

        local.away.ahead_us = cases[i].ahead_away_ms * MS;
        local.here.ahead_us = cases[i].ahead_here_ms * MS;
        local.transfer_bytes = cases[i].transfer_bytes;
        local.away.n_held = cases[i].held_away;
        local.here.n_held = cases[i].held_here;
        local.n_running = cases[i].n_running;
        ways = bt_sched_disagg_forecast(&local);
        assert_true(ways.is_known);
        assert_int_equal(ways.away_us, cases[i].away_ms * MS);
        assert_int_equal(ways.here_us, cases[i].here_ms * MS);
        assert_int_equal(ways.loss_us, cases[i].loss_ms * MS);
        assert_int_equal(bt_sched_disagg_is_local(&ways, 0, 0), cases[i].here);
    }
}

/* Prompts that go first here generate by then: one of two here is as two that
 * generate, but that its 315 ms come first. */
static void earlier_local_prompts_count_as_generating(void **state)
{
    bt_sched_disagg_t local = three_chunks();
    bt_sched_disagg_times_t ways;

    (void)state;
    local.here.ahead_us = 315 * MS;
    local.n_running = 1;
    local.n_before = 1;
    ways = bt_sched_disagg_forecast(&local);
    assert_int_equal(ways.here_us, (630 + 16 * 10) * MS);
    assert_int_equal(ways.loss_us, 630 * MS);
    local.n_running = 0;
    ways = bt_sched_disagg_forecast(&local);
    assert_int_equal(ways.here_us, (630 + 16 * 9) * MS);
    assert_int_equal(ways.loss_us, 315 * MS);
}

/* Who has a promise does not pay for those that wait; and a static batch that
 * runs takes nobody in, however long the queue is. */
static void local_forecast_counts_slo_and_closed_batch(void **state)
{
    bt_sched_disagg_t local = three_chunks();
    bt_sched_disagg_times_t ways;

    (void)state;
    local.away.ahead_us = 2000 * MS;
    local.n_running = 20;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(bt_sched_disagg_is_local(&ways, 0, 0));
    local.is_promised = true;
    ways = bt_sched_disagg_forecast(&local);
    assert_int_equal(ways.loss_us, 6300 * MS);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
    local.is_promised = false;
    local.is_static = true;
    local.away.ahead_us = 1000000 * MS;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(ways.is_known);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
    local.n_running = 0; /* it is open */
    ways = bt_sched_disagg_forecast(&local);
    assert_true(bt_sched_disagg_is_local(&ways, 0, 0));
}

/* 1 s and 2 ms for a transfer that was slow once: here, and so nothing is ever
 * transferred that could tell otherwise. But of 1,317 ms half is left 20 s
 * after a prompt was last sent away, a quarter after 30 s, 329 ms, and 307
 * after 31: less than the 315 here. */
static void disaggregated_path_is_retried_after_long_disuse(void **state)
{
    const uint64_t s = 1000 * MS;
    bt_sched_disagg_t local = three_chunks();
    bt_sched_disagg_times_t ways;

    (void)state;
    local.transfer_bytes = MIB;
    local.transfer_rates.transfer_start_ns = 1000000000;
    ways = bt_sched_disagg_forecast(&local);
    assert_int_equal(ways.away_us, 1317 * MS);
    assert_true(bt_sched_disagg_is_local(&ways, 1 * s, 1 * s));
    assert_true(bt_sched_disagg_is_local(&ways, 1 * s, 31 * s));
    assert_false(bt_sched_disagg_is_local(&ways, 1 * s, 32 * s));
    /* Nor for ever, if nothing comes: which was taken last is what counts. */
    assert_true(bt_sched_disagg_is_local(&ways, 32 * s, 31 * s));
    /* Not behind others. */
    local.away.ahead_us = 1;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(bt_sched_disagg_is_local(&ways, 1 * s, 3600 * s));

    /* The other way round: a decode worker was slow once. */
    local = three_chunks();
    local.here.rates.prefill_token_ns = 4000000; /* 1,215 ms */
    ways = bt_sched_disagg_forecast(&local);
    assert_false(bt_sched_disagg_is_local(&ways, 30 * s, 1 * s));
    assert_true(bt_sched_disagg_is_local(&ways, 31 * s, 1 * s));
    /* No batch waits for it, nor one that is closed. */
    local.n_running = 1;
    ways = bt_sched_disagg_forecast(&local);
    assert_false(bt_sched_disagg_is_local(&ways, 3600 * s, 1 * s));
    local.is_static = true;
    ways = bt_sched_disagg_forecast(&local);
    assert_false(bt_sched_disagg_is_local(&ways, 3600 * s, 1 * s));
}

/* However long the queue there is. */
static void unmeasured_prompt_is_disaggregated(void **state)
{
    static const bt_sched_rates_t none = {0};
    bt_sched_disagg_t local = three_chunks();
    bt_sched_disagg_times_t ways;

    (void)state;
    local.away.ahead_us = 1000000 * MS;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(bt_sched_disagg_is_local(&ways, 0, 0));

    local.away.rates = none;
    ways = bt_sched_disagg_forecast(&local);
    assert_false(ways.is_known);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
    local.away.rates = measured;

    local.here.rates = none;
    ways = bt_sched_disagg_forecast(&local);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
    local.here.rates = measured;

    /* Steps of a batch only where there is one. */
    local.batch_rates = none;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(bt_sched_disagg_is_local(&ways, 0, 0));
    local.n_running = 1;
    ways = bt_sched_disagg_forecast(&local);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
    local.n_running = 0;

    /* A transfer that nobody has measured: as if it took no time. */
    local.away.ahead_us = 0;
    local.transfer_bytes = 100 * MIB;
    local.transfer_rates = none;
    ways = bt_sched_disagg_forecast(&local);
    assert_true(ways.is_known);
    assert_int_equal(ways.away_us, 315 * MS);
}

/* 1 us for a pair, and for a read: tokens 200 to 299 are 25,050 pairs, 100 x
 * 200 + 5,050, and their chunk reads 250 positions in the mean. */
static void
forecast_of_a_cached_prompt_counts_attention_to_its_prefix(void **state)
{
    const bt_sched_rates_t rates = {.prefill_kilopair_ns = 1024000,
                                    .prefill_kiloread_ns = 1024000};

    (void)state;
    assert_int_equal(bt_sched_rates_rest_us(&rates, 200, 300, 100), 25300);
    assert_int_equal(bt_sched_rates_rest_us(&rates, 300, 300, 100), 0);
    assert_int_equal(bt_sched_rates_rest_us(&rates, 301, 300, 100), 0);
    assert_int_equal(bt_sched_rates_transfer_us(&measured, 0), 0);
    assert_int_equal(bt_sched_rates_transfer_us(&measured, MIB / 2), 2000);
}

static bt_sched_rates_t any_rates(uint64_t *draw)
{
    return (bt_sched_rates_t){
        .prefill_step_ns = draw_below(draw, 10000000),
        .prefill_token_ns = 1000 + draw_below(draw, 2000000),
        .prefill_kilopair_ns = draw_below(draw, 10000),
        .decode_step_ns = 1000 + draw_below(draw, 30000000),
        .decode_seq_ns = draw_below(draw, 1000000),
        .transfer_start_ns = draw_below(draw, 1000000),
        .transfer_mib_ns = draw_below(draw, 3000000),
    };
}

/* By the lines of sched_cost.h, once more. */
static double prompt_us(const bt_sched_rates_t *r, uint32_t from, uint32_t to,
                        uint32_t chunk)
{
    const double n = (double)to - from;
    const double pairs = n * from + n * (n + 1) / 2;

    return ((double)((to - from + chunk - 1) / chunk) *
                (double)r->prefill_step_ns +
            n * (double)r->prefill_token_ns +
            pairs / 1024 * (double)r->prefill_kilopair_ns) /
           1000;
}

static bt_sched_disagg_t any_local(uint64_t *draw)
{
    const uint32_t n = 1 + (uint32_t)draw_below(draw, 8000);

    return (bt_sched_disagg_t){
        .n_tokens = n,
        .chunk_tokens = 1 + (uint32_t)draw_below(draw, 1024),
        .away = {.rates = any_rates(draw),
                 .ahead_us = draw_below(draw, 5000000),
                 .n_held = (uint32_t)draw_below(draw, n)},
        .here = {.rates = any_rates(draw),
                 .ahead_us = draw_below(draw, 5000000),
                 .n_held = (uint32_t)draw_below(draw, n)},
        .transfer_bytes = draw_below(draw, 1000 * MIB),
        .transfer_rates = any_rates(draw),
        .batch_rates = any_rates(draw),
        .n_running = (uint32_t)draw_below(draw, 8),
    };
}

/* Of 100,000 prompts none goes where it would be later, by more than the
 * microseconds that are rounded off, where nobody generates; and where somebody
 * does, none goes here that would not have, had nobody been there. */
static void empty_batch_takes_the_earlier_path(void **state)
{
    uint32_t n_here = 0, n_away = 0;
    uint64_t draw = 18;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        bt_sched_disagg_t l = any_local(&draw);
        const bt_sched_disagg_times_t beside = bt_sched_disagg_forecast(&l);
        const double away =
            (double)l.away.ahead_us +
            prompt_us(&l.away.rates, l.away.n_held, l.n_tokens,
                      l.chunk_tokens) +
            ((l.transfer_bytes > 0)
                 ? ((double)l.transfer_rates.transfer_start_ns +
                    (double)l.transfer_bytes / (double)MIB *
                        (double)l.transfer_rates.transfer_mib_ns) /
                       1000
                 : 0);
        const double here =
            (double)l.here.ahead_us +
            prompt_us(&l.here.rates, l.here.n_held, l.n_tokens, l.chunk_tokens);
        bt_sched_disagg_times_t alone;

        l.n_running = 0;
        alone = bt_sched_disagg_forecast(&l);
        assert_int_equal(alone.loss_us, 0);
        if (bt_sched_disagg_is_local(&alone, 0, 0)) {
            assert_true(here < away + 3);
            n_here++;
        } else {
            assert_true(away < here + 3);
            assert_false(bt_sched_disagg_is_local(&beside, 0, 0));
            n_away++;
        }
    }
    assert_true((n_here > 10000) && (n_away > 10000));
}

static void disagg_forecast_saturates_on_huge_numbers(void **state)
{
    bt_sched_disagg_t local = three_chunks();
    bt_sched_disagg_times_t ways;

    (void)state;
    local.away.ahead_us = UINT64_MAX;
    local.here.ahead_us = UINT64_MAX;
    local.n_running = UINT32_MAX;
    local.n_before = UINT32_MAX;
    local.is_promised = true;
    local.context_tokens = UINT32_MAX;
    local.transfer_bytes = UINT64_MAX;
    ways = bt_sched_disagg_forecast(&local);
    assert_int_equal(ways.away_us, UINT64_C(1) << 42);
    assert_int_equal(ways.here_us, UINT64_C(1) << 42);
    assert_int_equal(ways.loss_us, UINT64_C(1) << 42);
    assert_false(bt_sched_disagg_is_local(&ways, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(disaggregated_and_local_forecasts_match_hand_values),
        BT_TEST(earlier_local_prompts_count_as_generating),
        BT_TEST(local_forecast_counts_slo_and_closed_batch),
        BT_TEST(disaggregated_path_is_retried_after_long_disuse),
        BT_TEST(unmeasured_prompt_is_disaggregated),
        BT_TEST(forecast_of_a_cached_prompt_counts_attention_to_its_prefix),
        BT_TEST(empty_batch_takes_the_earlier_path),
        BT_TEST(disagg_forecast_saturates_on_huge_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
