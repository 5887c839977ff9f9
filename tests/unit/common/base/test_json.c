/* SPDX-License-Identifier: Apache-2.0 */
/* Expected texts follow RFC 8259; the doubles' shortest forms are what Python's
 * repr() prints for the same numbers. */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/decimal.h"
#include "common/base/json.h"
#include "common/base/status.h"

static void expect(bt_strbuf_t *out, const char *text)
{
    assert_int_equal(bt_strbuf_status(out), BT_OK);
    assert_string_equal((out->data == NULL) ? "" : out->data, text);
    bt_strbuf_reset(out);
}

static void json_commas_stand_only_between_values(void **state)
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

static void json_integers_are_written_with_all_digits(void **state)
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

static void double_reads_back_unchanged(void **state)
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
    expect(&out, "[0.1,16777216,-0.33333334,null,1e-45]");
    bt_strbuf_fini(&out);
}

static void json_keys_are_escaped(void **state)
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

static void json_string_of_any_bytes_is_valid(void **state)
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

static void json_writer_reports_a_full_buffer_at_the_end(void **state)
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

/* ---- floats ---- */

/* The expected text is printf's, with as few digits as strtof reads back; of
 * subnormal floats printf gives more digits than are needed. */
static void shortest_text_of_a_float_is_that_of_printf(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7F800000u; bits += 39989) {
        char text[BT_DECIMAL_TEXT_BYTES], want[32];
        float value;
        size_t n;

        memcpy(&value, &bits, sizeof(value));
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(want, sizeof(want), "%.*g", digits, (double)value);
            if (strtof(want, NULL) == value) {
                break;
            }
        }
        n = bt_float_text(value, text);
        assert_int_equal(strlen(text), n);
        assert_true(strtof(text, NULL) == value);
        if (bits >= 0x00800000u) {
            assert_string_equal(text, want);
        }
        assert_true(strlen(text) <= strlen(want));
        n = bt_float_text(-value, text);
        assert_int_equal(strlen(text), n);
        assert_true(strtof(text, NULL) == -value);
    }
}

/* The same of doubles, all exponents and random fractions. */
static void shortest_text_of_a_double_is_that_of_printf(void **state)
{
    uint64_t random = 88172645463325252u;

    (void)state;
    for (uint64_t exponent = 0; exponent < 0x7FF; exponent++) {
        for (int i = 0; i < 20; i++) {
            char text[BT_DECIMAL_TEXT_BYTES], want[32];
            uint64_t bits;
            double value;
            size_t n;

            random ^= random << 13; /* xorshift64, G. Marsaglia */
            random ^= random >> 7;
            random ^= random << 17;
            bits = random >> ((i % 4 == 3) ? 40 : 12);
            bits = (exponent << 52) | ((i == 0) ? 0 : bits);
            memcpy(&value, &bits, sizeof(value));
            for (int digits = 15; digits <= 17; digits++) {
                snprintf(want, sizeof(want), "%.*g", digits, value);
                if (strtod(want, NULL) == value) {
                    break;
                }
            }
            n = bt_double_text(value, text);
            assert_int_equal(strlen(text), n);
            assert_true(strtod(text, NULL) == value);
            /* A shorter one reads back that is not the nearest of its digits:
             * 7.120236347223045e-307, as Python's repr() has it. */
            assert_true(strlen(text) <= strlen(want));
            if (strlen(text) == strlen(want)) {
                assert_string_equal(text, want);
            }
        }
    }
}

static void edge_case_floats_have_the_text_of_printf(void **state)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {0.0f, "0"},
        {-0.0f, "-0"},
        {1.0f, "1"},
        {-1.5f, "-1.5"},
        {0.1f, "0.1"},
        {100000.0f, "100000"},
        {1000000.0f, "1e+06"},
        {1234567.0f, "1234567"},
        {0.0001f, "0.0001"},
        {0.00001f, "1e-05"},
        {16777216.0f, "16777216"},
        {3.4028235e38f, "3.4028235e+38"},
        {-1.17549435e-38f, "-1.1754944e-38"},
        {1e-45f, "1e-45"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char text[BT_DECIMAL_TEXT_BYTES];

        (void)bt_float_text(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* ---- slices ---- */

#define N_ITEMS 1000u

static void put_item(bt_json_t *json, const void *a, const void *b, size_t i)
{
    const uint32_t *times = a;

    (void)b;
    if (i % 3 == 0) {
        bt_json_object(json, NULL);
        bt_json_u64(json, "i", i * *times);
        bt_json_end_object(json);
    } else {
        bt_json_u64(json, NULL, i * *times);
    }
}

/* Long arrays, short ones and empty ones, among them one at the very end. */
static void put_document(bt_json_t *json, const uint32_t *times)
{
    bt_json_object(json, NULL);
    bt_json_array_of(json, "empty", 5, 5, put_item, times, NULL);
    bt_json_array_of(json, "long", 0, N_ITEMS, put_item, times, NULL);
    bt_json_str(json, "between", "x");
    bt_json_array_of(json, "short", 2, 7, put_item, times, NULL);
    bt_json_array_of(json, "again", 3, N_ITEMS, put_item, times, NULL);
    bt_json_array_of(json, "next", 0, BT_JSON_SLICED_ITEMS, put_item, times,
                     NULL);
    bt_json_end_object(json);
}

static void json_slices_of_any_size_give_the_whole_document(void **state)
{
    static const size_t sizes[] = {1, 7, 100, 4096, 1u << 20, SIZE_MAX};
    static const uint32_t times = 7;
    bt_strbuf_t whole;
    bt_json_t json;

    (void)state;
    bt_strbuf_init(&whole, 1u << 20);
    bt_json_init(&json, &whole);
    put_document(&json, &times);
    assert_non_null(
        strstr(whole.data, "\"empty\":[],\"long\":[{\"i\":0},7,14,"));
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        bt_json_slices_t slices;
        bt_strbuf_t out;
        size_t n = 1;

        bt_json_slices_init(&slices, 1u << 20);
        bt_strbuf_init(&out, 1u << 20);
        bt_json_slices_begin(&slices, &json);
        put_document(&json, &times);
        while (bt_json_slices_write(&slices, sizes[i], &out)) {
            n++;
        }
        assert_int_equal(bt_strbuf_status(&out), BT_OK);
        assert_string_equal(out.data, whole.data);
        assert_true((sizes[i] < 4096) ? n > 4 : n < 10);
        bt_strbuf_fini(&out);
        bt_json_slices_fini(&slices);
    }
    bt_strbuf_fini(&whole);
}

static size_t n_formatted;

static void count_item(bt_json_t *json, const void *a, const void *b, size_t i)
{
    (void)a;
    (void)b;
    n_formatted++;
    bt_json_u64(json, NULL, i);
}

static void
a_document_beyond_its_limit_stops_at_the_first_failed_append(void **state)
{
    bt_json_slices_t slices;
    bt_strbuf_t out;
    bt_json_t json;

    (void)state;
    n_formatted = 0;
    bt_json_slices_init(&slices, 1u << 20);
    bt_strbuf_init(&out, 100);
    bt_json_slices_begin(&slices, &json);
    bt_json_array_of(&json, NULL, 0, 1u << 30, count_item, NULL, NULL);
    assert_false(bt_json_slices_write(&slices, SIZE_MAX, &out));
    assert_int_equal(bt_strbuf_status(&out), BT_ERR_TOO_LARGE);
    assert_true(n_formatted < 100);
    bt_json_slices_fini(&slices);
    bt_strbuf_fini(&out);

    n_formatted = 0;
    bt_strbuf_init(&out, 100);
    bt_json_init(&json, &out);
    bt_json_array_of(&json, NULL, 0, 1u << 30, count_item, NULL, NULL);
    assert_int_equal(bt_strbuf_status(&out), BT_ERR_TOO_LARGE);
    assert_true(n_formatted < 100);
    bt_strbuf_fini(&out);
}

static void json_slices_report_a_failed_allocation(void **state)
{
    static const uint32_t times = 7;
    int n_left = 0;

    (void)state;
    for (int nth = 1; n_left == 0; nth++) {
        bt_json_slices_t slices;
        bt_strbuf_t out;
        bt_json_t json;

        bt_json_slices_init(&slices, 1u << 20);
        bt_strbuf_init(&out, 1u << 20);
        (void)bt_alloc_fail_at(nth);
        bt_json_slices_begin(&slices, &json);
        put_document(&json, &times);
        while (bt_json_slices_write(&slices, 100, &out)) {
        }
        n_left = bt_alloc_fail_at(0);
        /* Without memory for a series its items belong to the frame. */
        if (bt_strbuf_status(&out) == BT_OK) {
            assert_int_equal(out.data[out.len - 1], '}');
        } else {
            assert_int_equal(bt_strbuf_status(&out), BT_ERR_NO_MEMORY);
        }
        bt_json_slices_fini(&slices);
        bt_strbuf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(json_commas_stand_only_between_values),
        BT_TEST(json_integers_are_written_with_all_digits),
        BT_TEST(double_reads_back_unchanged),
        BT_TEST(json_keys_are_escaped),
        BT_TEST(json_string_of_any_bytes_is_valid),
        BT_TEST(json_writer_reports_a_full_buffer_at_the_end),
        BT_TEST(shortest_text_of_a_float_is_that_of_printf),
        BT_TEST(shortest_text_of_a_double_is_that_of_printf),
        BT_TEST(edge_case_floats_have_the_text_of_printf),
        BT_TEST(json_slices_of_any_size_give_the_whole_document),
        BT_TEST(a_document_beyond_its_limit_stops_at_the_first_failed_append),
        BT_TEST(json_slices_report_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
