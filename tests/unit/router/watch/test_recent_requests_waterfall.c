/* SPDX-License-Identifier: Apache-2.0 */
/* Stations that add up, whatever workers claim. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "router/watch/recent_requests.h"
#include "tests/support/draw.h"

static const bt_ledger_t whole = {
    .parse_us = 1,
    .tokenize_us = 2,
    .queue_us = 3,
    .prefill_queue_us = 4,
    .prefill_us = 50,
    .first_token_us = 6,
    .handover_us = 100,
    .decode_us = 900,
    .grant_wait_us = 10,
    .transfer_tail_us = 20,
    .join_wait_us = 30,
    .n_chunks = 7,
    .ttft_us = 66,
    .total_us = 1066,
    .n_output = 5,
};

static void is(const bt_phase_t *s, const char *name, bt_phase_site_t at,
               uint64_t start_us, uint64_t length_us)
{
    assert_string_equal(s->name, name);
    assert_int_equal(s->at, at);
    assert_int_equal(s->start_us, start_us);
    assert_int_equal(s->length_us, length_us);
}

static void waterfall_has_each_phase_once_in_order(void **state)
{
    bt_waterfall_t w;

    (void)state;
    bt_waterfall_of(&whole, &w);
    assert_int_equal(w.n, 11);
    is(&w.phases[0], "parse", BT_AT_ROUTER, 0, 1);
    is(&w.phases[1], "tokenize", BT_AT_ROUTER, 1, 2);
    is(&w.phases[2], "queue", BT_AT_ROUTER, 3, 3);
    is(&w.phases[3], "prefill_queue", BT_AT_PREFILL, 6, 4);
    is(&w.phases[4], "prefill", BT_AT_PREFILL, 10, 50);
    is(&w.phases[5], "first_token", BT_AT_ROUTER, 60, 6);
    is(&w.phases[6], "grant_wait", BT_AT_PREFILL, 66, 10);
    is(&w.phases[7], "kv_transfer", BT_AT_PREFILL, 76, 20);
    is(&w.phases[8], "join_wait", BT_AT_DECODE, 96, 30);
    is(&w.phases[9], "second_token", BT_AT_DECODE, 126, 40);
    is(&w.phases[10], "decode", BT_AT_DECODE, 166, 900);
    assert_int_equal(w.phases[4].n_chunks, 7);
    assert_int_equal(w.phases[3].n_chunks, 0);
}

static void reported_times_are_capped_at_the_measured_time(void **state)
{
    bt_ledger_t ledger = whole;
    bt_waterfall_t w;

    (void)state;
    ledger.transfer_tail_us = 95; /* 10 of the 100 are the grant's */
    bt_waterfall_of(&ledger, &w);
    assert_int_equal(w.n, 9);
    is(&w.phases[7], "kv_transfer", BT_AT_PREFILL, 76, 90);
    is(&w.phases[8], "decode", BT_AT_DECODE, 166, 900);
}

static void one_token_or_none_ends_with_the_rest(void **state)
{
    bt_ledger_t ledger = {.prefill_us = 5,
                          .first_token_us = 1,
                          .handover_us = 2,
                          .ttft_us = 6,
                          .total_us = 8,
                          .n_output = 1};
    bt_waterfall_t w;

    (void)state;
    bt_waterfall_of(&ledger, &w);
    assert_int_equal(w.n, 3);
    is(&w.phases[1], "first_token", BT_AT_ROUTER, 5, 1);
    is(&w.phases[2], "rest", BT_AT_DECODE, 6, 2);

    ledger = (bt_ledger_t){.queue_us = 3, .first_token_us = 4, .total_us = 7};
    bt_waterfall_of(&ledger, &w);
    assert_int_equal(w.n, 2);
    is(&w.phases[0], "queue", BT_AT_ROUTER, 0, 3);
    is(&w.phases[1], "rest", BT_AT_ROUTER, 3, 4);
}

static void phases_add_up_to_the_total_of_any_ledger(void **state)
{
    uint64_t seed = 11;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        const uint64_t most = UINT64_C(1) << draw_below(&seed, 40);
        bt_ledger_t l = {0};
        bt_waterfall_t w;
        uint64_t at = 0;
        uint64_t *const parts[] = {&l.parse_us,    &l.tokenize_us,
                                   &l.queue_us,    &l.prefill_queue_us,
                                   &l.prefill_us,  &l.first_token_us,
                                   &l.handover_us, &l.decode_us};
        uint64_t *const claims[] = {&l.grant_wait_us, &l.transfer_tail_us,
                                    &l.join_wait_us};

        for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++) {
            *parts[k] =
                (draw_below(&seed, 3) > 0) ? draw_below(&seed, most) : 0;
            l.total_us += *parts[k];
        }
        for (size_t k = 0; k < sizeof(claims) / sizeof(*claims); k++) {
            *claims[k] = draw_below(&seed, 2 * most);
        }
        bt_waterfall_of(&l, &w);
        for (uint32_t k = 0; k < w.n; k++) {
            assert_int_equal(w.phases[k].start_us, at);
            assert_true(w.phases[k].length_us > 0);
            at += w.phases[k].length_us;
        }
        assert_int_equal(at, l.total_us);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(waterfall_has_each_phase_once_in_order),
        BT_TEST(reported_times_are_capped_at_the_measured_time),
        BT_TEST(one_token_or_none_ends_with_the_rest),
        BT_TEST(phases_add_up_to_the_total_of_any_ledger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
