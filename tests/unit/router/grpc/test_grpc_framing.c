/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/framing.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/support/testsupport.h"

static void messages_are_split_however_they_arrive(void **state)
{
    static const char in[] = "\0\0\0\0\3abc"
                             "\1\0\0\0\0"
                             "\0\0\0\1\0";
    char large[sizeof(in) - 1 + 256];

    (void)state;
    memcpy(large, in, sizeof(in) - 1);
    memset(large + sizeof(in) - 1, 'x', 256);
    for (size_t step = 1; step <= sizeof(large); step++) {
        bt_grpc_reader_t reader = {.limit = 256};
        size_t lengths[3];
        bool packed[3];
        size_t n = 0;

        for (size_t at = 0; at < sizeof(large);) {
            const size_t left = sizeof(large) - at;
            size_t used = 0;
            const bt_status_t status = bt_grpc_reader_feed(
                &reader, large + at, (left < step) ? left : step, &used);

            assert_true((status == BT_OK) || (status == BT_INPROGRESS));
            at += used;
            if (status == BT_OK) {
                bt_strbuf_t body;

                assert_true(n < 3);
                packed[n] = bt_grpc_reader_take(&reader, &body);
                lengths[n++] = body.len;
                if (n == 1) {
                    assert_memory_equal(body.data, "abc", 3);
                }
                bt_strbuf_fini(&body);
            }
        }
        assert_int_equal(n, 3);
        assert_false(bt_grpc_reader_is_busy(&reader));
        assert_true((lengths[0] == 3) && !packed[0]);
        assert_true((lengths[1] == 0) && packed[1]);
        assert_true((lengths[2] == 256) && !packed[2]);
        bt_grpc_reader_fini(&reader);
    }
}

static void oversized_message_is_known_from_its_prefix(void **state)
{
    bt_grpc_reader_t reader = {.limit = 10};
    size_t used = 0;

    (void)state;
    assert_int_equal(bt_grpc_reader_feed(&reader, "\0\0\0\0\x0b", 5, &used),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(reader.length, 11);
    bt_grpc_reader_fini(&reader);
    reader = (bt_grpc_reader_t){.limit = SIZE_MAX};
    /* 4 GiB are announced, and take nothing. */
    assert_int_equal(bt_grpc_reader_feed(&reader,
                                         "\0\xff\xff\xff\xff"
                                         "a",
                                         6, &used),
                     BT_INPROGRESS);
    assert_true(reader.body.cap < 1024);
    bt_grpc_reader_fini(&reader);
    reader = (bt_grpc_reader_t){.limit = 10};
    assert_int_equal(bt_grpc_reader_feed(&reader, "\2\0\0\0\0", 5, &used),
                     BT_ERR_BAD_MESSAGE);
    bt_grpc_reader_fini(&reader);
}

static void short_memory_reads_no_message(void **state)
{
    bt_grpc_reader_t reader = {.limit = 10};
    size_t used = 0;

    (void)state;
    bt_alloc_fail_at(1);
    assert_int_equal(bt_grpc_reader_feed(&reader, "\0\0\0\0\2ab", 7, &used),
                     BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    bt_grpc_reader_fini(&reader);
}

static void prefixes_are_big_endian(void **state)
{
    uint8_t prefix[BT_GRPC_PREFIX_BYTES];

    (void)state;
    bt_grpc_prefix_write(prefix, true, 0x01020304);
    assert_memory_equal(prefix, "\1\1\2\3\4", 5);
}

static void timeouts_have_a_unit(void **state)
{
    static const struct {
        const char *text;
        uint64_t us;
    } good[] = {
        {"1H", 3600000000u},
        {"2M", 120000000u},
        {"3S", 3000000u},
        {"100m", 100000u},
        {"7u", 7u},
        {"1n", 1u},
        {"1001n", 2u},
        {"0S", 0u},
        {"99999999H", 99999999ull * 3600000000ull},
    };
    static const char *const bad[] = {
        "", "S", "1", "1s", "-1S", "1.5S", "1SS", "123456789S", " 1S", "1S "};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        uint64_t us = 42;

        assert_int_equal(bt_grpc_timeout_parse(good[i].text, &us), BT_OK);
        assert_true(us == good[i].us);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        uint64_t us = 42;

        assert_int_equal(bt_grpc_timeout_parse(bad[i], &us),
                         BT_ERR_INVALID_PARAM);
        assert_true(us == 42);
    }
}

static void error_texts_are_percent_encoded(void **state)
{
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 100);
    bt_grpc_message_encode("a%b\n\xc3\xa4~", 100, &out);
    assert_string_equal(out.data, "a%25b%0A%C3%A4~");
    bt_strbuf_reset(&out);
    bt_grpc_message_encode("ab\n\n", 6, &out); /* never half of a %XX */
    assert_string_equal(out.data, "ab%0A");
    bt_strbuf_fini(&out);
}

static void codes_map_to_http_statuses(void **state)
{
    static const struct {
        int http;
        bt_grpc_code_t code;
    } rows[] = {
        {400, BT_GRPC_INVALID_ARGUMENT},
        {403, BT_GRPC_PERMISSION_DENIED},
        {404, BT_GRPC_NOT_FOUND},
        {408, BT_GRPC_DEADLINE_EXCEEDED},
        {413, BT_GRPC_RESOURCE_EXHAUSTED},
        {418, BT_GRPC_INVALID_ARGUMENT},
        {429, BT_GRPC_RESOURCE_EXHAUSTED},
        {500, BT_GRPC_INTERNAL},
        {501, BT_GRPC_UNIMPLEMENTED},
        {503, BT_GRPC_UNAVAILABLE},
        {504, BT_GRPC_DEADLINE_EXCEEDED},
        {599, BT_GRPC_INTERNAL},
        {200, BT_GRPC_OK},
        {100, BT_GRPC_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        assert_int_equal(bt_grpc_code_of_http(rows[i].http), rows[i].code);
    }
    assert_int_equal(bt_grpc_http_of_code(BT_GRPC_OK), 200);
    assert_int_equal(bt_grpc_http_of_code(BT_GRPC_UNAVAILABLE), 503);
    assert_int_equal(bt_grpc_http_of_code(BT_GRPC_CANCELLED), 499);
    assert_int_equal(bt_grpc_http_of_code(BT_GRPC_UNKNOWN), 500);
}

static void header_fields_are_recognised(void **state)
{
    (void)state;
    assert_true(bt_grpc_is_content_type("application/grpc"));
    assert_true(bt_grpc_is_content_type("application/grpc+proto"));
    assert_true(bt_grpc_is_content_type("application/grpc;charset=x"));
    assert_false(bt_grpc_is_content_type("application/grpc-web"));
    assert_false(bt_grpc_is_content_type("application/grpc+json"));
    assert_false(bt_grpc_is_content_type("application/json"));
    assert_true(bt_grpc_accepts_gzip("identity, deflate, gzip"));
    assert_true(bt_grpc_accepts_gzip("gzip"));
    assert_false(bt_grpc_accepts_gzip("identity,xgzip, deflate"));
    assert_false(bt_grpc_accepts_gzip(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(messages_are_split_however_they_arrive),
        BT_TEST(oversized_message_is_known_from_its_prefix),
        BT_TEST(short_memory_reads_no_message),
        BT_TEST(prefixes_are_big_endian),
        BT_TEST(timeouts_have_a_unit),
        BT_TEST(error_texts_are_percent_encoded),
        BT_TEST(codes_map_to_http_statuses),
        BT_TEST(header_fields_are_recognised),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
