/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/task.h"

static char why[200];

static bt_json_doc_t *parse(const char *text)
{
    bt_json_doc_t *doc = NULL;

    if (bt_json_doc_parse(text, strlen(text), why, sizeof(why), &doc) !=
        BT_OK) {
        fail_msg("%s: %s", text, why);
    }
    return doc;
}

static void json_values_are_found_by_key(void **state)
{
    bt_json_doc_t *doc = parse(" {\"a\":[1,[2,{}],\"x\"], \"b\":{\"c\":null},"
                               "\"\":true}\n");
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *at;
    uint64_t u64 = 0;

    (void)state;
    assert_int_equal(root->kind, BT_JSON_OBJECT);
    assert_int_equal(root->n, 3);
    at = bt_json_get(doc, root, "a");
    assert_int_equal(at->n, 3);
    at = bt_json_first(at);
    assert_true(bt_json_as_u64(at, &u64) && (u64 == 1));
    at = bt_json_next(doc, at);
    assert_int_equal(at->kind, BT_JSON_ARRAY);
    at = bt_json_next(doc, at);
    assert_true(bt_json_is(at, "x"));
    at = bt_json_get(doc, bt_json_get(doc, root, "b"), "c");
    assert_int_equal(at->kind, BT_JSON_NULL);
    assert_int_equal(bt_json_get(doc, root, "")->kind, BT_JSON_TRUE);
    assert_null(bt_json_get(doc, root, "c"));
    assert_null(bt_json_get(doc, at, "c"));
    assert_null(bt_json_get(doc, NULL, "c"));
    bt_json_doc_free(doc);
}

/* RFC 8259, section 7; U+1F600 is D83D DE00 in UTF-16. */
static void json_escapes_are_decoded(void **state)
{
    bt_json_doc_t *doc = parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\","
                               "\"\\u0041\\u00e9\\ud83d\\ude00z\",\"\"]");
    const bt_json_node_t *at = bt_json_first(bt_json_doc_root(doc));

    (void)state;
    assert_true(bt_json_is(at, "\"\\/\b\f\n\r\t"));
    at = bt_json_next(doc, at);
    assert_true(bt_json_is(at, "A\xC3\xA9\xF0\x9F\x98\x80z"));
    at = bt_json_next(doc, at);
    assert_true(bt_json_is(at, ""));
    bt_json_doc_free(doc);
}

static void json_integers_are_integers_in_any_notation(void **state)
{
    bt_json_doc_t *doc =
        parse("[18446744073709551615,4.0,4e2,-0,-7,1.5,18446744073709551616,"
              "1e400,-9223372036854775807]");
    const bt_json_node_t *at = bt_json_first(bt_json_doc_root(doc));
    static const struct {
        bool is_u64;
        uint64_t u64;
        bool is_i64;
        int64_t i64;
        bool is_double;
    } expected[] = {
        {true, UINT64_MAX, false, 0, true}, {true, 4, true, 4, true},
        {true, 400, true, 400, true},       {true, 0, true, 0, true},
        {false, 0, true, -7, true},         {false, 0, false, 0, true},
        {false, 0, false, 0, true},         {false, 0, false, 0, false},
        {false, 0, true, -INT64_MAX, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        uint64_t u64 = 0;
        int64_t i64 = 0;
        double wide = 0;

        assert_int_equal(bt_json_as_u64(at, &u64), expected[i].is_u64);
        assert_true(u64 == expected[i].u64);
        assert_int_equal(bt_json_as_i64(at, &i64), expected[i].is_i64);
        assert_true(i64 == expected[i].i64);
        assert_int_equal(bt_json_as_double(at, &wide), expected[i].is_double);
        at = bt_json_next(doc, at);
    }
    bt_json_doc_free(doc);
}

static void invalid_json_is_refused_with_its_offset(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"", "the end where a value is due at byte 0"},
        {"[1,]", "what is no value at byte 3"},
        {"[1 2]", "neither a comma nor an end behind a value at byte 3"},
        {"{1:2}", "no key where one is due at byte 1"},
        {"{\"a\" 2}", "no colon behind a key at byte 5"},
        {"[01]", "neither a comma"},
        {"[1.]", "digits behind its point"},
        {"[1e]", "digits in its exponent"},
        {"[-]", "what is no value"},
        {"[nul]", "what is no value"},
        {"[NaN]", "what is no value"},
        {"\"a", "a string without an end"},
        {"\"\\x\"", "an escape that JSON does not have"},
        {"\"\\u12g4\"", "without four hexadecimal digits"},
        {"\"\\udc00\"", "half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
        {"\"\n\"", "a control character"},
        {"\"\\n\n\"", "a control character"},
        {"\"\xC0\x80\"", "it is not UTF-8"},
        {"1 1", "more behind the value at byte 2"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "the key \"a\" stands twice"},
        {"{\"a\":1,\"\\u0061\":3}", "the key \"a\" stands twice"},
        {"{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,"
         "\"9\":9,\"4\":0}",
         "the key \"4\" stands twice"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_json_doc_t *doc = NULL;

        assert_int_equal(bt_json_doc_parse(cases[i].text, strlen(cases[i].text),
                                           why, sizeof(why), &doc),
                         BT_ERR_BAD_FILE);
        assert_null(doc);
        if (strstr(why, cases[i].says) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, why,
                     cases[i].says);
        }
    }
}

/* Bytes before, plain bytes, then what ends them: at every place of the words
 * that are looked at. */
static void plain_text_scan_stops_at_the_first_special_byte(void **state)
{
    char text[64];

    (void)state;
    for (size_t before = 0; before < 8; before++) {
        for (size_t n = 0; n < 24; n++) {
            const size_t end = before + 1 + n;
            bt_json_doc_t *doc = NULL;
            bt_json_fault_t fault;

            memset(text, ' ', before);
            text[before] = '"';
            memset(text + before + 1, 0x7F, n);
            memcpy(text + end, "\"", 2);
            doc = parse(text);
            assert_int_equal(bt_json_doc_root(doc)->len, n);
            bt_json_doc_free(doc);
            memcpy(text + end, "\\t\xC3\xBF!\"", 7);
            doc = parse(text);
            assert_int_equal(bt_json_doc_root(doc)->len, n + 4);
            assert_memory_equal(bt_json_doc_root(doc)->text + n, "\t\xC3\xBF!",
                                4);
            bt_json_doc_free(doc);
            memcpy(text + end, "\x1F\"", 3);
            assert_int_not_equal(
                bt_json_doc_parse_client(text, end + 2, 9, &fault, &doc),
                BT_OK);
            assert_string_equal(fault.what, "a control character in a string");
            assert_int_equal(fault.at, end);
        }
    }
}

static void half_of_a_surrogate_pair_is_told(void **state)
{
    static const struct {
        const char *text;
        size_t at;
    } cases[] = {
        {"[\"\\ud83d\\ude00\", \"\xEF\xBF\xBD\", \"\\ufffd\"]", SIZE_MAX},
        {"[1, \"ab\\ud800\", \"\\udc00\"]", 7},
        {"{\"\\udc00\": 1}", 2},
        {"\"\\ud800\\ud800\\udc00\"", 1},
        {"[]", SIZE_MAX},
    };
    bt_json_fault_t fault;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_json_doc_t *doc = NULL;

        assert_int_equal(bt_json_doc_parse_client(cases[i].text,
                                                  strlen(cases[i].text), 9,
                                                  &fault, &doc),
                         BT_OK);
        assert_int_equal(bt_json_doc_half(doc), cases[i].at);
        bt_json_doc_free(doc);
    }
}

static void count(void *ctx)
{
    ++*(unsigned *)ctx;
}

/* A character across every place where a piece of the text ends, and one that
 * is cut short there. What is long lets others run (task.h). */
static void long_json_strings_are_read_in_pieces(void **state)
{
    const size_t n = (size_t)1 << 18;
    char *const text = bt_calloc(n, 1);
    unsigned n_polls = 0;
    bt_task_t task;

    (void)state;
    assert_non_null(text);
    bt_task_init(&task);
    task.yield = count;
    task.ctx = &n_polls;
    for (size_t shift = 0; shift < 4; shift++) {
        const size_t bytes = 1 + shift + n / 4 / 4 * 12 + 1;
        bt_json_doc_t *doc = NULL;
        bt_task_t *before;

        memset(text, 'a', 1 + shift);
        text[0] = '"';
        for (size_t at = 1 + shift; at + 1 < bytes; at += 4) {
            memcpy(text + at, "\xF0\x9F\x98\x80", 4);
        }
        text[bytes - 1] = '"';
        before = bt_task_enter(&task);
        assert_int_equal(bt_json_doc_parse(text, bytes, why, sizeof(why), &doc),
                         BT_OK);
        bt_task_leave(before);
        assert_int_equal(bt_json_doc_root(doc)->len, bytes - 2);
        bt_json_doc_free(doc);
        text[(size_t)1 << 16] = 'a';
        assert_int_not_equal(
            bt_json_doc_parse(text, bytes, why, sizeof(why), &doc), BT_OK);
        assert_non_null(strstr(why, "it is not UTF-8 at byte 655"));
    }
    assert_true(n_polls >= 4 * 4);
    bt_free(text);
}

static void json_nesting_is_bounded(void **state)
{
    char text[2 * BT_JSON_DOC_DEPTH + 4] = "";
    bt_json_doc_t *doc = NULL;

    (void)state;
    memset(text, '[', BT_JSON_DOC_DEPTH);
    memset(text + BT_JSON_DOC_DEPTH, ']', BT_JSON_DOC_DEPTH);
    assert_int_equal(bt_json_doc_parse(text, (size_t)2 * BT_JSON_DOC_DEPTH, why,
                                       sizeof(why), &doc),
                     BT_OK);
    bt_json_doc_free(doc);
    memset(text, '[', sizeof(text));
    doc = NULL;
    assert_int_equal(
        bt_json_doc_parse(text, BT_JSON_DOC_DEPTH + 1, why, sizeof(why), &doc),
        BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "nested too deeply"));
}

static void json_doc_reports_a_failed_allocation(void **state)
{
    static const char text[] =
        "{\"1\":\"\\n\",\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,"
        "\"8\":8,\"9\":9}";
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_json_doc_t *doc = NULL;
    int nth = 0;

    (void)state;
    while (status == BT_ERR_NO_MEMORY) {
        assert_null(doc);
        bt_alloc_fail_at(++nth);
        status = bt_json_doc_parse(text, strlen(text), why, sizeof(why), &doc);
        bt_alloc_fail_at(0);
    }
    assert_int_equal(status, BT_OK);
    assert_int_equal(nth, 5); /* document, nodes, decoded, table: then none */
    bt_json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(json_values_are_found_by_key),
        BT_TEST(json_escapes_are_decoded),
        BT_TEST(json_integers_are_integers_in_any_notation),
        BT_TEST(invalid_json_is_refused_with_its_offset),
        BT_TEST(plain_text_scan_stops_at_the_first_special_byte),
        BT_TEST(half_of_a_surrogate_pair_is_told),
        BT_TEST(long_json_strings_are_read_in_pieces),
        BT_TEST(json_nesting_is_bounded),
        BT_TEST(json_doc_reports_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
