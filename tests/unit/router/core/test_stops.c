/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "router/core/stops.h"

/* Push a text cut into pieces of @a step bytes; expect what comes out before
 * the stop word, or everything. */
static void check_cut(const char *const *words, uint32_t n, const char *text,
                      size_t step, const char *expected, bool stops_expected)
{
    const size_t bytes = strlen(text);
    bt_stops_t stops = {0};
    bool stopped = false;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1000);
    assert_int_equal(bt_stops_init(&stops, words, n), BT_OK);
    for (size_t at = 0; (at < bytes) && !stopped; at += step) {
        const size_t left = bytes - at;

        stopped =
            bt_stops_push(&stops, text + at, (left < step) ? left : step, &out);
    }
    if (!stopped) {
        bt_stops_finish(&stops, &out);
    }
    assert_int_equal(stopped, stops_expected);
    assert_int_equal(stops.met != NULL, stops_expected);
    assert_string_equal((out.len > 0) ? out.data : "", expected);
    bt_stops_fini(&stops);
    bt_strbuf_fini(&out);
}

static void check(const char *const *words, uint32_t n, const char *text,
                  const char *expected, bool stops_expected)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        check_cut(words, n, text, step, expected, stops_expected);
    }
}

/* "bcd" is complete at byte 4, with the longer "abcd". */
static void the_longest_word_complete_first_is_named(void **state)
{
    const char *const words[] = {"bcd", "cde", "abcd", "abcdef"};
    bt_stops_t stops = {0};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 1000);
    assert_int_equal(bt_stops_init(&stops, words, 4), BT_OK);
    assert_false(bt_stops_push(&stops, "xab", 3, &out));
    assert_null(stops.met);
    assert_true(bt_stops_push(&stops, "cdef", 4, &out));
    assert_string_equal(stops.met, "abcd");
    assert_string_equal(out.data, "x");
    bt_stops_fini(&stops);
    bt_strbuf_fini(&out);
}

static void stop_word_ends_text_however_tokens_are_cut(void **state)
{
    const char *const end[] = {"END"};
    const char *const repeated[] = {"aab"};
    const char *const two[] = {"bcd", "cde", "abcdef"};
    const char *const utf8[] = {"\xe2\x82\xac"}; /* euro sign */

    (void)state;
    check(end, 1, "one ENE END two", "one ENE ", true);
    check(end, 1, "one EN", "one EN", false);
    check(end, 1, "END", "", true);
    check(repeated, 1, "aaaab!", "aa", true);
    /* "bcd" is complete first, at byte 4. */
    check(two, 3, "abcdef", "a", true);
    check(utf8, 1, "5 \xe2\x82\xaa 6 \xe2\x82\xac 7", "5 \xe2\x82\xaa 6 ",
          true);
}

static void longest_of_stop_words_ending_together_is_cut(void **state)
{
    const char *const words[] = {"\n", "\n\nHuman:", "n:"};

    (void)state;
    check(words + 1, 2, "ok\n\nHuman: hi", "ok", true);
    check(words, 3, "ok\n\nHuman: hi", "ok", true);
}

static void only_a_possible_beginning_is_held_back(void **state)
{
    const char *const words[] = {"stop"};
    bt_stops_t stops = {0};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 1000);
    assert_int_equal(bt_stops_init(&stops, words, 1), BT_OK);
    assert_false(bt_stops_push(&stops, "please st", 9, &out));
    assert_string_equal(out.data, "please ");
    assert_false(bt_stops_push(&stops, "ay and s", 8, &out));
    assert_string_equal(out.data, "please stay and ");
    assert_true(bt_stops_push(&stops, "top here", 8, &out));
    assert_string_equal(out.data, "please stay and ");
    bt_stops_fini(&stops);
    bt_strbuf_fini(&out);
}

static void bad_stop_words_and_short_memory_are_reported(void **state)
{
    const char *const empty[] = {"a", ""};
    const char *const word[] = {"a", "b"};
    bt_stops_t stops = {0};
    bt_strbuf_t out;

    (void)state;
    assert_int_equal(bt_stops_init(&stops, empty, 2), BT_ERR_INVALID_PARAM);
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_stops_init(&stops, word, 2), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_int_equal(stops.n, 0);
    }
    assert_int_equal(bt_stops_init(&stops, word, 2), BT_OK);
    bt_strbuf_init(&out, 1000);
    bt_alloc_fail_at(1);
    assert_false(bt_stops_push(&stops, "x", 1, &out));
    bt_alloc_fail_at(0);
    assert_int_equal(bt_strbuf_status(&out), BT_ERR_NO_MEMORY);
    bt_stops_fini(&stops);
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stop_word_ends_text_however_tokens_are_cut),
        BT_TEST(the_longest_word_complete_first_is_named),
        BT_TEST(longest_of_stop_words_ending_together_is_cut),
        BT_TEST(only_a_possible_beginning_is_held_back),
        BT_TEST(bad_stop_words_and_short_memory_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
