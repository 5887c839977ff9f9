/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are over: which are kept, found and let through. */
#include "tests/support/testsupport.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "router/watch/recent_requests.h"

#define DAY_NS INT64_C(1700000000000000000)

static bt_recent_requests_t past;
static bt_strbuf_t out;
static bt_ledger_t ledger;
static bt_gen_origin_t origin;
static bt_gen_attempt_t attempts[BT_GEN_MAX_ATTEMPTS];
static bt_gen_record_t record;

static int begin(void **state)
{
    (void)state;
    bt_strbuf_init(&out, 1u << 22);
    ledger = (bt_ledger_t){.ok = true,
                           .parse_us = 100,
                           .decode_us = 900,
                           .total_us = 1000,
                           .n_output = 2};
    origin = (bt_gen_origin_t){.number = 1, .answer_id = "cmpl-1"};
    memset(attempts, 0, sizeof(attempts));
    record = (bt_gen_record_t){.ledger = &ledger,
                               .origin = &origin,
                               .arrived_us = 5100,
                               .finish = BT_FINISH_STOP,
                               .trouble = "",
                               .attempts = attempts};
    assert_int_equal(bt_recent_requests_init(&past), BT_OK);
    return 0;
}

static int end(void **state)
{
    (void)state;
    bt_recent_requests_fini(&past);
    bt_strbuf_fini(&out);
    return 0;
}

static void add(uint64_t number, const char *model, uint64_t total_us,
                bt_finish_t finish)
{
    origin.number = number;
    snprintf(origin.answer_id, sizeof(origin.answer_id), "cmpl-%" PRIu64,
             number);
    ledger.total_us = total_us;
    record.finish = finish;
    bt_recent_requests_add(&past, model, &record, DAY_NS,
                           (bt_recent_requests_texts_t){0});
}

/* The ids that are listed, as "3 2 1 ". */
static const char *ids(const bt_recent_requests_filter_t *filter)
{
    static char found[1u << 16];
    bt_json_t json;
    size_t n = 0;

    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_recent_requests_write(&past, filter, &json);
    bt_json_end_object(&json);
    found[0] = '\0';
    for (const char *at = strstr(out.data, "{\"id\":\""); at != NULL;
         at = strstr(at + 1, "{\"id\":\"")) {
        const char *digits = at + strlen("{\"id\":\"");

        n += (size_t)snprintf(found + n, sizeof(found) - n, "%.*s ",
                              (int)strcspn(digits, "\""), digits);
    }
    return found;
}

static void filters_select_requests_latest_first(void **state)
{
    (void)state;
    add(1, "a", 1000, BT_FINISH_STOP);
    add(2, "b", 5000, BT_FINISH_ERROR);
    ledger.ttft_target_us = 10;
    ledger.ttft_us = 11;
    add(3, "a", 9000, BT_FINISH_LENGTH);
    ledger.ttft_target_us = 0;
    add(4, "a", 3000, BT_FINISH_CANCELED);
    assert_string_equal(ids(&(bt_recent_requests_filter_t){0}), "4 3 2 1 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.model = "a"}),
                        "4 3 1 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.model = "c"}), "");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.slow_us = 5000}),
                        "3 2 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.failed = true}),
                        "2 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.missed = true}),
                        "3 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.limit = 2}),
                        "4 3 ");
    assert_string_equal(
        ids(&(bt_recent_requests_filter_t){.limit = 2, .before = 3}), "2 1 ");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.before = 1}), "");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){.before = 77}), "");
    assert_string_equal(ids(&(bt_recent_requests_filter_t){
                            .model = "a", .slow_us = 3000, .limit = 1}),
                        "4 ");
}

static void oldest_requests_are_overwritten(void **state)
{
    const bt_recent_requests_filter_t oldest = {.before = 4};

    (void)state;
    for (uint64_t i = 1; i <= BT_PAST_KEPT + 2; i++) {
        add(i, "a", 1000, BT_FINISH_STOP);
    }
    assert_string_equal(ids(&oldest), "3 ");
    assert_non_null(strstr(out.data, "{\"kept\":1024,"));
    assert_null(bt_recent_requests_find(&past, "2"));
    assert_int_equal(bt_recent_requests_find(&past, "3")->origin.number, 3);
}

static void request_is_found_by_number_or_answer_id(void **state)
{
    (void)state;
    assert_null(bt_recent_requests_find(&past, "1"));
    add(1, "a", 1000, BT_FINISH_STOP);
    origin.choice = 1;
    add(2, "a", 1000, BT_FINISH_STOP);
    assert_int_equal(bt_recent_requests_find(&past, "2")->origin.number, 2);
    assert_int_equal(bt_recent_requests_find(&past, "cmpl-1")->origin.number,
                     1);
    assert_null(
        bt_recent_requests_find(&past, "cmpl-2")); /* no choice 0 is here */
    assert_null(bt_recent_requests_find(&past, ""));
    assert_null(bt_recent_requests_find(&past, "02"));
}

static void request_explains_placement_and_failed_attempts(void **state)
{
    char why[] = "d-0 was lost";
    bt_json_t json;

    (void)state;
    attempts[0] = (bt_gen_attempt_t){
        .at_us = 5200,
        .prefill = "p-0",
        .decode = "d-0",
        .cause = "pair",
        .prefill_why = "load",
        .decode_why = "only one",
        .knew = {.n_prefill = 2,
                 .n_decode = 1,
                 .ahead_requests = 3,
                 .ahead_tokens = 400,
                 .ahead_us = 90100,
                 .prefill_held_tokens = 16,
                 .seats_used = 4,
                 .seats = 32,
                 .blocks_used = 110,
                 .blocks = 4096},
        .ended = why,
    };
    attempts[1] = (bt_gen_attempt_t){.at_us = 5600,
                                     .decode = "d-1",
                                     .cause = "costs less",
                                     .decode_why = "turn"};
    record.n_attempts = 2;
    record.trouble = "d-0 was lost";
    add(9, "a", 1000, BT_FINISH_STOP);
    bt_json_init(&json, &out);
    bt_recent_requests_write_one(bt_recent_requests_find(&past, "9"), &json);
    /* It began 100 us before it was parsed, so at 5000. */
    assert_non_null(strstr(out.data, "\"begin_unix_ms\":1700000000005,"));
    assert_non_null(strstr(out.data, "\"trouble\":\"d-0 was lost\","
                                     "\"attempts\":2,\"prefill\":null,"
                                     "\"decode\":\"d-1\","));
    assert_non_null(strstr(
        out.data,
        "\"phases\":[{\"name\":\"parse\",\"at\":\"router\",\"start_ms\":0,"
        "\"length_ms\":0.1},{\"name\":\"decode\",\"at\":\"decode\","
        "\"worker\":\"d-1\",\"start_ms\":0.1,\"length_ms\":0.9}]"));
    assert_non_null(strstr(
        out.data,
        "\"tries\":[{\"number\":1,\"start_ms\":0.2,\"cause\":\"pair\","
        "\"prefill\":{\"worker\":\"p-0\",\"why\":\"load\",\"of_workers\":2,"
        "\"ahead_requests\":3,\"ahead_tokens\":400,\"ahead_ms\":90.1,"
        "\"held_tokens\":16},\"decode\":{\"worker\":\"d-0\","
        "\"why\":\"only one\",\"of_workers\":1,\"seats_used\":4,\"seats\":32,"
        "\"blocks_used\":110,\"blocks\":4096,\"held_tokens\":0},"
        "\"ended\":\"d-0 was lost\"},{\"number\":2,\"start_ms\":0.6,"
        "\"cause\":\"costs less\",\"decode\":{\"worker\":\"d-1\","));
}

static void texts_are_written_once_and_freed(void **state)
{
    bt_recent_requests_texts_t texts = {.prompt = bt_strdup("a\"b"),
                                        .answer = bt_strdup("")};
    bt_json_t json;

    (void)state;
    bt_recent_requests_add(&past, "a", &record, DAY_NS, texts);
    assert_string_equal(ids(&(bt_recent_requests_filter_t){0}), "1 ");
    assert_null(strstr(out.data, "a\\\"b")); /* not in the list */
    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_recent_requests_write_one(bt_recent_requests_find(&past, "1"), &json);
    assert_non_null(strstr(out.data, "\"prompt_text\":\"a\\\"b\","
                                     "\"answer_text\":\"\","));
    for (uint64_t i = 0; i < BT_PAST_KEPT; i++) { /* it is written over */
        add(2 + i, "a", 1000, BT_FINISH_STOP);
    }
    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_recent_requests_write_one(bt_recent_requests_find(&past, "2"), &json);
    assert_non_null(
        strstr(out.data, "\"prompt_text\":null,\"answer_text\":null,"));
    texts.prompt = bt_strdup("left");
    texts.answer = NULL;
    bt_recent_requests_add(&past, "a", &record, DAY_NS,
                           texts); /* freed at the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
        TEST(filters_select_requests_latest_first),
        TEST(oldest_requests_are_overwritten),
        TEST(request_is_found_by_number_or_answer_id),
        TEST(request_explains_placement_and_failed_attempts),
        TEST(texts_are_written_once_and_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
