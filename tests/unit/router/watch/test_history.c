/* SPDX-License-Identifier: Apache-2.0 */
/* The last 15 minutes, with a clock that the test turns. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "router/watch/history.h"

#define STEP  UINT64_C(5000000)
#define START UINT64_C(1000000)
#define DAY   UINT64_C(1700000000000) /* the time of day at START */

static bt_history_t *history;
static bt_series_t *a, *b;
static bt_strbuf_t page;

static void tick(uint64_t us)
{
    bt_history_tick(history, START + us, DAY + us / 1000);
}

static int begin(void **state)
{
    (void)state;
    bt_strbuf_init(&page, 1u << 24);
    assert_int_equal(bt_history_create(START, &history), BT_OK);
    assert_int_equal(bt_history_series(history, "a", &a), BT_OK);
    assert_int_equal(bt_history_series(history, "b", &b), BT_OK);
    return 0;
}

static int end(void **state)
{
    (void)state;
    bt_history_destroy(history);
    bt_strbuf_fini(&page);
    return 0;
}

static const char *write_latest(const bt_history_t *of, uint64_t n)
{
    bt_json_t json;

    bt_strbuf_reset(&page);
    bt_json_init(&json, &page);
    bt_json_object(&json, NULL);
    bt_history_write(of, n, &json);
    bt_json_end_object(&json);
    assert_int_equal(bt_strbuf_status(&page), BT_OK);
    return page.data;
}

static const bt_history_point_t *last(const bt_series_t *series)
{
    return &series->points[(history->n_points - 1) % BT_HISTORY_POINTS];
}

static void step_has_only_its_own_events(void **state)
{
    (void)state;
    bt_series_begun(a, 30);
    bt_series_begun(a, 12);
    bt_series_first_token(a, 10);
    bt_series_next_token(a, 3);
    bt_series_next_token(a, 5);
    bt_series_levels(a, 4, 9);
    bt_series_levels(a, 2, 3);
    tick(STEP - 1);
    assert_int_equal(history->n_points, 0);
    tick(STEP);
    assert_int_equal(history->n_points, 1);
    assert_int_equal(last(a)->begun, 2);
    assert_int_equal(last(a)->in_tokens, 42);
    assert_int_equal(last(a)->out_tokens, 3);
    assert_int_equal(last(a)->waiting, 4); /* the highest */
    assert_int_equal(last(a)->running, 9);
    assert_int_equal(last(a)->ttft_us[0], 10);
    assert_int_equal(last(a)->itl_us[0], 3);
    assert_int_equal(last(a)->itl_us[2], 5);
    tick(2 * STEP);
    assert_int_equal(last(a)->begun, 0);
    assert_int_equal(last(a)->out_tokens, 0);
    assert_int_equal(last(a)->waiting, 0);
    assert_int_equal(last(a)->ttft_us[0], BT_HISTORY_NONE);
}

static void total_series_is_the_sum_with_events_without_model(void **state)
{
    (void)state;
    bt_series_begun(a, 1);
    bt_series_begun(b, 2);
    bt_series_next_token(a, 2);
    bt_series_next_token(a, 2);
    bt_series_next_token(b, 8);
    bt_series_rerun(b);
    bt_series_refused(a);
    bt_series_refused(&history->all);
    bt_series_levels(&history->all, 7, 8);
    tick(STEP);
    assert_int_equal(last(&history->all)->begun, 2);
    assert_int_equal(last(&history->all)->in_tokens, 3);
    assert_int_equal(last(&history->all)->refused, 2);
    assert_int_equal(last(&history->all)->reruns, 1);
    assert_int_equal(last(&history->all)->waiting, 7);
    /* Of 2, 2, 8: not the mean of two medians. */
    assert_int_equal(last(&history->all)->itl_us[0], 2);
    assert_int_equal(last(&history->all)->itl_us[1], 8);
    assert_int_equal(last(a)->refused, 1);
}

static void each_end_counts_once_and_a_cancel_misses_no_target(void **state)
{
    const bt_ledger_t met = {.ok = true,
                             .ttft_target_us = 100,
                             .itl_target_us = 10,
                             .ttft_us = 100,
                             .n_output = 3,
                             .handover_us = 12,
                             .decode_us = 8};
    bt_ledger_t ledger = met;

    (void)state;
    bt_series_ledger(a, &ledger);
    ledger.ttft_us = 101; /* late */
    ledger.decode_us = 9; /* 21 us for two gaps of 10 */
    bt_series_ledger(a, &ledger);
    ledger.ok = false; /* an error, without a token */
    ledger.ttft_us = 0;
    bt_series_ledger(a, &ledger);
    ledger.canceled = true;
    bt_series_ledger(a, &ledger);
    ledger = (bt_ledger_t){.ok = true}; /* without targets */
    bt_series_ledger(a, &ledger);
    tick(STEP);
    assert_int_equal(last(a)->ended, 3);
    assert_int_equal(last(a)->failed, 1);
    assert_int_equal(last(a)->canceled, 1);
    assert_int_equal(last(a)->ttft_targets, 3);
    assert_int_equal(last(a)->ttft_met, 1);
    assert_int_equal(last(a)->itl_targets, 3);
    assert_int_equal(last(a)->itl_met, 1);
}

static void full_ring_drops_the_oldest_points(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= BT_HISTORY_POINTS + 3; i++) {
        bt_series_begun(a, i);
        tick(i * STEP);
    }
    assert_int_equal(history->n_points, BT_HISTORY_POINTS + 3);
    assert_non_null(
        strstr(write_latest(history, UINT64_MAX), "\"in_tokens\":[4,5,6,"));
    assert_non_null(strstr(page.data, ",182,183],"));
    assert_non_null(strstr(page.data, "{\"model\":null,"));
    assert_non_null(strstr(page.data, "{\"model\":\"a\","));
}

static void points_have_the_end_time_of_their_step(void **state)
{
    (void)state;
    tick(2 * STEP + 1500000); /* held up: two ended, the last 1.5 s ago */
    assert_int_equal(history->n_points, 2);
    assert_non_null(strstr(write_latest(history, 2),
                           "\"unix_ms\":[1700000005000,1700000010000]"));
    assert_non_null(
        strstr(write_latest(history, 1), "\"unix_ms\":[1700000010000]"));
    assert_non_null(strstr(page.data, "\"step_ms\":5000,"));
    assert_non_null(strstr(page.data, "\"ttft_p50_ms\":[null]"));
}

static void long_stall_resumes_at_once(void **state)
{
    const uint64_t day = UINT64_C(86400000000);

    (void)state;
    bt_series_begun(a, 1);
    tick(day);
    assert_true(history->n_points <= BT_HISTORY_POINTS + 1);
    assert_true(history->end_us > START + day);
    assert_true(history->end_us <= START + day + STEP);
}

static void later_series_begins_with_empty_points(void **state)
{
    bt_series_t *late = NULL, *same = NULL;

    (void)state;
    bt_series_begun(a, 1);
    tick(STEP);
    assert_int_equal(bt_history_series(history, "late", &late), BT_OK);
    assert_int_equal(bt_history_series(history, "late", &same), BT_OK);
    assert_ptr_equal(late, same);
    bt_series_begun(late, 5);
    tick(2 * STEP);
    assert_non_null(strstr(write_latest(history, 2),
                           "{\"model\":\"late\",\"begun\":[0,1],"));
    assert_non_null(strstr(page.data, "\"itl_p99_ms\":[null,null]"));
}

static void milliseconds_have_the_needed_decimals(void **state)
{
    (void)state;
    bt_series_first_token(a, 12);   /* 0.012 ms */
    bt_series_next_token(a, 16000); /* a cell of 512 us: 15872 to 16383 */
    tick(STEP);
    assert_non_null(
        strstr(write_latest(history, 1), "\"ttft_p50_ms\":[0.012]"));
    assert_non_null(strstr(page.data, "\"itl_p50_ms\":[16.127]"));
}

static void copy_keeps_the_values_of_its_time(void **state)
{
    bt_history_t *copy = NULL;
    char before[16384];

    (void)state;
    bt_series_begun(a, 1);
    tick(STEP);
    snprintf(before, sizeof(before), "%s", write_latest(history, 9));
    assert_int_equal(bt_history_copy(history, &copy), BT_OK);
    bt_series_begun(a, 1);
    tick(2 * STEP);
    assert_string_equal(write_latest(copy, 9), before);
    bt_history_destroy(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
        TEST(step_has_only_its_own_events),
        TEST(total_series_is_the_sum_with_events_without_model),
        TEST(each_end_counts_once_and_a_cancel_misses_no_target),
        TEST(full_ring_drops_the_oldest_points),
        TEST(points_have_the_end_time_of_their_step),
        TEST(long_stall_resumes_at_once),
        TEST(later_series_begins_with_empty_points),
        TEST(milliseconds_have_the_needed_decimals),
        TEST(copy_keeps_the_values_of_its_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
