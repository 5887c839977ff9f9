/* SPDX-License-Identifier: Apache-2.0 */
/* Expected texts follow RFC 8259; the doubles' shortest forms are what Python's
 * repr() prints for the same numbers. */
#include "tests/support/testsupport.h"

#include <math.h>
#include <string.h>

#include "common/base/json.h"

static void expect(bt_strbuf_t *out, const char *text)
{
    assert_int_equal(bt_strbuf_status(out), BT_OK);
    assert_string_equal((out->data == NULL) ? "" : out->data, text);
    bt_strbuf_reset(out);
}

static void commas_stand_between_values_and_nowhere_else(void **state)
{
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_json_object(&json, "empty");
    bt_json_end_object(&json);
    bt_json_array(&json, "none");
    bt_json_end_array(&json);
    bt_json_str(&json, "a", "x");
    bt_json_array(&json, "list");
    bt_json_u64(&json, NULL, 1);
    bt_json_object(&json, NULL);
    bt_json_bool(&json, "t", true);
    bt_json_null(&json, "n");
    bt_json_end_object(&json);
    bt_json_array(&json, NULL);
    bt_json_bool(&json, NULL, false);
    bt_json_end_array(&json);
    bt_json_end_array(&json);
    bt_json_raw(&json, "raw", "[0]");
    bt_json_end_object(&json);
    expect(&out,
           "{\"empty\":{},\"none\":[],\"a\":\"x\",\"list\":[1,{\"t\":true,"
           "\"n\":null},[false]],\"raw\":[0]}");

    /* One writer after the other: each begins without a comma. */
    bt_json_init(&json, &out);
    bt_json_str(&json, NULL, NULL);
    expect(&out, "null");
    bt_strbuf_fini(&out);
}

static void whole_numbers_are_written_with_all_their_digits(void **state)
{
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_array(&json, NULL);
    bt_json_u64(&json, NULL, 0);
    bt_json_u64(&json, NULL, UINT64_MAX);
    bt_json_i64(&json, NULL, INT64_MIN);
    bt_json_i64(&json, NULL, -1);
    bt_json_i64(&json, NULL, INT64_MAX);
    bt_json_end_array(&json);
    expect(&out, "[0,18446744073709551615,-9223372036854775808,-1,"
                 "9223372036854775807]");
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_json_i64(&json, "a", -7);
    bt_json_i64(&json, "b", -8);
    bt_json_end_object(&json);
    expect(&out, "{\"a\":-7,\"b\":-8}");
    bt_strbuf_fini(&out);
}

static void a_double_reads_back_as_it_was(void **state)
{
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_array(&json, NULL);
    bt_json_double(&json, NULL, 0.1);
    bt_json_double(&json, NULL, 0.1 + 0.2);
    bt_json_double(&json, NULL, -2.5);
    bt_json_double(&json, NULL, 1e300);
    bt_json_double(&json, NULL, (double)NAN);
    bt_json_double(&json, NULL, (double)INFINITY);
    bt_json_double(&json, NULL, -1.0 / 3);
    bt_json_double(&json, NULL, 123456.789012);
    bt_json_end_array(&json);
    expect(&out, "[0.1,0.30000000000000004,-2.5,1e+300,null,null,"
                 "-0.3333333333333333,123456.789012]");
    bt_strbuf_reset(&out);
    bt_json_init(&json, &out);
    bt_json_array(&json, NULL);
    bt_json_float(&json, NULL, 0.1f);
    bt_json_float(&json, NULL, 16777217.0f); /* 2^24: one more is none */
    bt_json_float(&json, NULL, -1.0f / 3);
    bt_json_float(&json, NULL, (float)NAN);
    bt_json_float(&json, NULL, 1e-45f);
    bt_json_end_array(&json);
    expect(&out, "[0.1,16777216,-0.33333334,null,1.4013e-45]");
    bt_strbuf_fini(&out);
}

static void a_key_may_need_escapes(void **state)
{
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_json_key(&json, "a\"b\0", 4);
    bt_json_u64(&json, NULL, 7);
    bt_json_key(&json, "", 0);
    bt_json_double(&json, NULL, -0.5);
    bt_json_end_object(&json);
    expect(&out, "{\"a\\\"b\\u0000\":7,\"\":-0.5}");
    bt_strbuf_fini(&out);
}

static void any_bytes_become_a_valid_string(void **state)
{
    static const char text[] = "\"\\\n\x01\0\xC3\xA4\xFF\xED\xA0\x80";
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_json_init(&json, &out);
    bt_json_strn(&json, NULL, text, sizeof(text) - 1);
    expect(&out, "\"\\\"\\\\\\n\\u0001\\u0000\xC3\xA4\xEF\xBF\xBD"
                 "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    bt_strbuf_fini(&out);
}

static void a_full_buffer_is_told_at_the_end(void **state)
{
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&out, 8);
    bt_json_init(&json, &out);
    bt_json_str(&json, NULL, "longer than that");
    assert_int_equal(bt_strbuf_status(&out), BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(commas_stand_between_values_and_nowhere_else),
        BT_TEST(whole_numbers_are_written_with_all_their_digits),
        BT_TEST(a_double_reads_back_as_it_was),
        BT_TEST(a_key_may_need_escapes),
        BT_TEST(any_bytes_become_a_valid_string),
        BT_TEST(a_full_buffer_is_told_at_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
