/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include "common/sched/sched_cost.h"

/* 1 ms an iteration of prompts and 100 us a token, 2 us for 1,024 pairs; 8 ms
 * an iteration of generation, 1 ms for a sequence, 4 ms for 1,024 reads. */
static const bt_sched_rates_t prefill = {.prefill_step_ns = 1000000,
                                         .prefill_token_ns = 100000,
                                         .prefill_kilopair_ns = 2000};
static const bt_sched_rates_t decode = {.decode_step_ns = 8000000,
                                        .decode_seq_ns = 1000000,
                                        .decode_kiloread_ns = 4000000};

static uint64_t price_of(const bt_sched_token_cost_t *price, uint32_t n_cached,
                         uint32_t n_prompt, uint32_t n_new)
{
    const bt_sched_charge_t piece = {.n_cached = n_cached,
                                     .n_prompt = n_prompt,
                                     .n_context = n_prompt,
                                     .n_new = n_new};

    return bt_sched_token_cost_of(price, &piece);
}

static void token_costs_are_equal_until_both_phases_are_measured(void **state)
{
    bt_sched_token_cost_t price;

    (void)state;
    bt_sched_token_cost_init(&price);
    assert_int_equal(price_of(&price, 0, 7, 5), 12);
    assert_int_equal(price_of(&price, 4, 7, 5), 8);
    assert_int_equal(price_of(&price, 9, 7, 0), 1); /* never for nothing */
    bt_sched_token_cost_learn(&price, &prefill, 0);
    assert_int_equal(price_of(&price, 0, 7, 5), 12);
    bt_sched_token_cost_learn(&price, &decode, 0);
    assert_true(price_of(&price, 0, 7, 5) > 12);
    /* What a worker has not measured is not forgotten. */
    bt_sched_token_cost_learn(&price, &prefill, 0);
    assert_true(price_of(&price, 0, 7, 5) > 12);
}

/* By hand. 512 tokens: two chunks, 2 x 1,000 + 512 x 100 us, and
 * 512 x 513 / 2 = 131,328 pairs, 128.25 x 2 = 256.5 us. 1,024 tokens: 4,000 +
 * 102,400, and 524,800 pairs, 512.5 x 2 = 1,025 us. */
static void prompt_cost_counts_only_computed_tokens(void **state)
{
    bt_sched_token_cost_t price;

    (void)state;
    bt_sched_token_cost_init(&price);
    bt_sched_token_cost_learn(&price, &prefill, 0);
    bt_sched_token_cost_learn(&price, &decode, 0);
    assert_int_equal(price_of(&price, 0, 512, 0), 53456);
    assert_int_equal(price_of(&price, 0, 1024, 0), 107425);
    assert_int_equal(price_of(&price, 512, 1024, 0), 107425 - 53456);
    assert_int_equal(price_of(&price, 1024, 1024, 0), 1);
}

/* By hand. Alone a token takes 8 + 1 ms; of 4 sequences 8 / 4 + 1. 128 of them
 * behind 960 read 960 + 64 positions each, which is 4 ms. */
static void decode_token_cost_is_its_share_of_an_iteration(void **state)
{
    bt_sched_token_cost_t price;
    bt_sched_charge_t piece = {.n_context = 960, .n_new = 128};

    (void)state;
    bt_sched_token_cost_init(&price);
    bt_sched_token_cost_learn(&price, &prefill, 0);
    bt_sched_token_cost_learn(&price, &decode, 0);
    assert_int_equal(bt_sched_token_cost_of(&price, &piece), 128 * 13000);
    bt_sched_token_cost_learn(&price, &decode, 4);
    assert_int_equal(bt_sched_token_cost_of(&price, &piece), 128 * 7000);
    bt_sched_token_cost_learn(&price, &decode, 14); /* the mean is 5 then */
    assert_int_equal(bt_sched_token_cost_of(&price, &piece), 128 * 6600);
    bt_sched_token_cost_learn(&price, &decode, 0); /* it rests: says nothing */
    assert_int_equal(bt_sched_token_cost_of(&price, &piece), 128 * 6600);
}

static void settled_cost_is_proportional_to_actual_tokens(void **state)
{
    const bt_sched_charge_t thought = {
        .n_prompt = 10, .n_context = 10, .n_new = 90};
    const bt_sched_charge_t less = {
        .n_cached = 8, .n_prompt = 10, .n_context = 10, .n_new = 3};
    const bt_sched_charge_t more = {
        .n_prompt = 10, .n_context = 10, .n_new = 190};
    bt_sched_token_cost_t price;

    (void)state;
    bt_sched_token_cost_init(&price);
    assert_int_equal(bt_sched_token_cost_settled(&price, 100, &thought, &less),
                     5);
    assert_int_equal(bt_sched_token_cost_settled(&price, 100, &thought, &more),
                     200);
    /* Charged in tokens, corrected when more is known: it stays in tokens. */
    bt_sched_token_cost_learn(&price, &prefill, 0);
    bt_sched_token_cost_learn(&price, &decode, 1);
    assert_int_equal(
        bt_sched_token_cost_settled(&price, 100, &thought, &thought), 100);
    assert_in_range(bt_sched_token_cost_settled(&price, 100, &thought, &more),
                    200, 230);
    assert_int_equal(bt_sched_token_cost_settled(&price, 0, &thought, &more),
                     1);
}

static void token_costs_do_not_overflow(void **state)
{
    const bt_sched_rates_t huge = {.prefill_token_ns = UINT64_MAX,
                                   .prefill_step_ns = 1,
                                   .decode_step_ns = UINT64_MAX,
                                   .decode_kiloread_ns = UINT64_MAX};
    const bt_sched_charge_t all = {
        .n_prompt = UINT32_MAX, .n_context = UINT32_MAX, .n_new = UINT32_MAX};
    bt_sched_token_cost_t price;

    (void)state;
    bt_sched_token_cost_init(&price);
    bt_sched_token_cost_learn(&price, &prefill, 0);
    bt_sched_token_cost_learn(&price, &huge, UINT32_MAX);
    assert_true(bt_sched_token_cost_of(&price, &all) <= UINT64_C(1) << 40);
    assert_true(bt_sched_token_cost_settled(&price, UINT64_MAX, &all, &all) <=
                UINT64_C(1) << 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(token_costs_are_equal_until_both_phases_are_measured),
        BT_TEST(prompt_cost_counts_only_computed_tokens),
        BT_TEST(decode_token_cost_is_its_share_of_an_iteration),
        BT_TEST(settled_cost_is_proportional_to_actual_tokens),
        BT_TEST(token_costs_do_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
